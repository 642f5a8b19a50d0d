import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from layline.data.dataset import KnownClasses
from layline.data.splits import (
    PART_WORDS,
    UNDRAWN,
    RandomSplit,
    stratified_holdout,
    with_calibration,
)

COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=8)
SEEDS = st.integers(0, 1000)


def samples(counts, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def draw(ranks, validation, test, seed, groups=None):
    return RandomSplit(validation, test, seed).draw(ranks, groups)


@given(COUNTS, st.floats(0, 0.999), SEEDS)
def test_the_parts_are_sorted_and_make_up_the_whole(counts, fraction, seed):
    ranks = samples(counts)
    kept, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held_out) > 0).all()
    assert sorted([*kept, *held_out]) == list(range(len(ranks)))


@given(COUNTS, st.floats(0, 0.999), SEEDS)
def test_every_class_keeps_a_sample_and_the_total_is_as_promised(counts, fraction, seed):
    ranks = samples(counts)
    kept, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    assert set(ranks[kept]) == set(ranks)
    wanted = max(1, round(fraction * len(ranks))) if fraction > 0 else 0
    assert len(held_out) == min(wanted, len(ranks) - len(counts))


@given(st.lists(st.integers(3, 30), min_size=1, max_size=8), st.floats(0.01, 0.5), SEEDS)
def test_no_class_is_a_whole_sample_away_from_its_share(counts, fraction, seed):
    ranks = samples(counts)
    _, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    shares = np.bincount(ranks[held_out], minlength=len(counts))
    assert (np.abs(shares - len(held_out) * np.array(counts) / len(ranks)) < 1).all()


def test_the_largest_remainders_get_the_rest():
    ranks = samples([10, 14, 16])  # shares of 4: 1.0, 1.4, 1.6
    _, held_out = stratified_holdout(ranks, 0.1, np.random.default_rng(0))
    assert np.bincount(ranks[held_out]).tolist() == [1, 1, 2]


def test_a_tie_is_broken_by_chance():
    ranks = samples([5, 5])
    drawn = {
        int(ranks[stratified_holdout(ranks, 0.1, np.random.default_rng(seed))[1][0]])
        for seed in range(20)
    }
    assert drawn == {0, 1}


def test_single_samples_are_never_held_out():
    kept, held_out = stratified_holdout(np.arange(5), 0.5, np.random.default_rng(0))
    assert len(held_out) == 0
    assert kept.tolist() == [0, 1, 2, 3, 4]


def test_what_a_single_sample_cannot_give_the_others_do():
    ranks = np.array([0] + [1] * 9)
    _, held_out = stratified_holdout(ranks, 0.5, np.random.default_rng(0))
    assert len(held_out) == 5
    assert 0 not in held_out


def test_the_generator_decides():
    ranks = samples([50, 50])
    first, again, other = (
        stratified_holdout(ranks, 0.2, np.random.default_rng(seed))[1].tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_fraction_that_leaves_nothing_is_named(fraction):
    with pytest.raises(ValueError, match=rf"fraction must be in \[0, 1\), got {fraction}"):
        stratified_holdout(np.arange(4), fraction, np.random.default_rng(0))


FRACTIONS = st.floats(0.01, 0.3)


@given(st.lists(st.integers(5, 40), min_size=1, max_size=6), FRACTIONS, FRACTIONS, SEEDS)
def test_three_parts_have_their_sizes_and_every_class_its_share(counts, validation, test, seed):
    ranks = samples(counts)
    parts = draw(ranks, validation, test, seed).by_name()
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(ranks)))
    for name, fraction in {"validation": validation, "test": test}.items():
        part = parts[name]
        assert len(part) == max(1, round(fraction * len(ranks)))
        shares = np.bincount(ranks[part], minlength=len(counts))
        assert (np.abs(shares - len(part) * np.array(counts) / len(ranks)) < 1).all()
    assert set(ranks[parts["train"]]) == set(ranks)


def test_the_seed_decides_whatever_the_global_state():
    ranks = samples([50, 50])
    groups = np.arange(100) // 3
    for labels in (None, groups):
        np.random.seed(1)  # noqa: NPY002
        first = draw(ranks, 0.1, 0.2, 3, labels)
        state = np.random.get_state()[1].copy()  # noqa: NPY002
        again, other = (draw(ranks, 0.1, 0.2, seed, labels) for seed in (3, 4))
        assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
        for name, part in first.by_name().items():
            assert part.tolist() == again.by_name()[name].tolist()
        assert first.test.tolist() != other.test.tolist()


@st.composite
def grouped(draw):
    """Samples of up to five classes in groups of up to six, each class in three groups or more."""
    num_classes = draw(st.integers(1, 5))
    each = st.lists(st.integers(0, num_classes - 1), min_size=1, max_size=6)
    sets = draw(st.lists(each, min_size=3, max_size=40))
    sets += [[k] for k in range(num_classes)] * 3
    ranks = np.array([rank for members in sets for rank in members])
    groups = [f"patient {i}" for i, members in enumerate(sets) for _ in members]
    return ranks, groups


@given(grouped(), FRACTIONS, FRACTIONS, SEEDS)
def test_groups_never_cross(data, validation, test, seed):
    ranks, groups = data
    parts = draw(ranks, validation, test, seed, groups).by_name()
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(ranks)))
    homes = [{groups[i] for i in part} for part in parts.values()]
    assert sum(map(len, homes)) == len(set(groups))
    assert all(homes)
    assert set(ranks[parts["train"]]) == set(ranks)


@given(SEEDS)
def test_with_many_groups_the_shares_are_near(seed):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(200), rng.integers(1, 8, 200))
    ranks = np.clip(rng.integers(0, 4, 200)[groups] + rng.integers(0, 2, len(groups)), 0, 3)
    partition = draw(ranks, 0.1, 0.2, seed, groups)
    counts = np.bincount(ranks)
    for part, fraction in ((partition.validation, 0.1), (partition.test, 0.2)):
        np.testing.assert_allclose(np.bincount(ranks[part]) / counts, fraction, atol=0.03)


def test_large_groups_are_tested_too():
    sizes = np.arange(1, 41)
    groups = np.repeat(sizes, sizes)
    tested = [draw(groups % 2, 0.1, 0.2, seed, groups).test for seed in range(20)]
    assert max(groups[part].max() for part in tested) > 35
    assert len({tuple(part) for part in tested}) > 15


def test_a_class_of_one_group_is_in_training():
    groups = np.repeat(np.arange(12), 4)
    ranks = np.where(groups == 5, 1, 0)
    for seed in range(10):
        partition = draw(ranks, 0.2, 0.2, seed, groups)
        assert set(ranks[partition.train]) == {0, 1}


def test_a_few_groups_are_enough_where_there_is_a_way():
    ranks, groups = np.array([0, 1, 0, 1]), ["a", "b", "both", "both"]
    partition = draw(ranks, 0.1, 0.2, 0, groups)
    assert partition.train.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("groups", "got"), [(["a", "a", "b", "b", "b", "b"], 2), (["a", "a", "b", "b", "c", "d"], 4)]
)
def test_too_few_groups_are_refused_with_the_cure(groups, got):
    ranks = np.array([0, 0, 1, 1, 2, 3])
    with pytest.raises(
        ValueError, match=f"3 parts .* in training, got {got}: give samples of more"
    ):
        draw(ranks, 0.1, 0.2, 0, groups)


def test_too_few_samples_are_refused_with_the_cure():
    with pytest.raises(ValueError, match="got 3 samples of 2 classes to hold 2 out: give more"):
        draw(np.array([0, 0, 1]), 0.1, 0.2, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.2, 0), "validation must be a finite number above 0, got 0.0"),
        ((0.1, "a fifth", 0), "test must be a finite number above 0, got 'a fifth'"),
        ((0.5, 0.5, 0), "validation and test must be below 1 together, got 0.5 and 0.5"),
        ((0.1, 0.2, -1), "seed must be an integer, at least 0, got -1"),
        ((0.1, 0.2, 0, ["a"]), "groups must be 20, got 1: one for each sample"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(samples([10, 10]), *arguments)


RANKS = np.tile([0, 1], 30)
SPLIT = RandomSplit(validation=0.1, test=0.2, seed=0)


def parts_of(words, ranks=RANKS, groups=None):
    partition, notes = SPLIT.partition(ranks, ("low", "high"), words, groups)
    assert sorted(np.concatenate(list(partition.by_name().values()))) == list(range(len(ranks)))
    return partition, notes


@pytest.mark.parametrize("words", [("train", "val", "test"), ("Training", "DEV", "testing")])
def test_the_parts_are_those_that_were_named(words):
    partition, notes = parts_of(np.repeat(words, 20).tolist())
    assert partition.train.tolist() == list(range(20))
    assert partition.validation.tolist() == list(range(20, 40))
    assert partition.test.tolist() == list(range(40, 60))
    assert notes == ("The split is the one given, whatever the partition",)


def test_a_missing_validation_part_is_taken_from_training_and_told():
    partition, notes = parts_of(["train"] * 40 + ["test"] * 20)
    assert partition.test.tolist() == list(range(40, 60))
    assert np.bincount(RANKS[partition.validation]).tolist() == [2, 2]
    assert len(notes) == 1
    assert notes[0].startswith("No validation part was given: 4 of the 40 training samples")


def test_a_missing_test_part_is_taken_from_training_not_from_validation():
    partition, notes = parts_of(["train"] * 40 + ["val"] * 20)
    assert partition.validation.tolist() == list(range(40, 60))
    assert len(partition.test) == 8
    assert notes[0].startswith("No test part was given: 8 of the 40 training samples")


def test_both_may_be_missing():
    partition, notes = parts_of(["train"] * 60)
    assert (len(partition.validation), len(partition.test), len(notes)) == (6, 12, 2)


def test_what_is_taken_respects_the_groups():
    groups = [i // 4 for i in range(60)]
    partition, _ = parts_of(["train"] * 40 + ["test"] * 20, groups=groups)
    homes = [{groups[i] for i in part} for part in partition.by_name().values()]
    assert sum(map(len, homes)) == 15


def test_without_a_split_one_is_made_and_told():
    for groups, ending in ((None, "each class alike"), (RANKS.tolist(), "kept together")):
        groups = groups and list(range(60))
        partition, (note,) = parts_of(None, groups=groups)
        assert len(partition.test) == 12
        assert note.endswith(ending)


def test_an_unknown_word_is_answered_with_the_known():
    with pytest.raises(ValueError, match=f"one of {', '.join(PART_WORDS)}, got 'holdout'"):
        parts_of(["train", "holdout"] * 30)


def test_a_group_in_two_parts_is_named():
    groups = [*range(40), *range(39, 59)]
    with pytest.raises(ValueError, match="in one part only, got 39 in train and test"):
        parts_of(["train"] * 40 + ["test"] * 20, groups=groups)


def test_a_class_that_training_never_sees_is_named():
    ranks = np.where(np.arange(60) == 50, 1, 0)
    with pytest.raises(ValueError, match=r"test part must have classes of the train .* got high"):
        parts_of(["train"] * 40 + ["test"] * 20, ranks)


def test_training_has_to_be_there():
    with pytest.raises(ValueError, match="split must have a train part, got none"):
        parts_of(["test"] * 60)


@given(st.lists(st.integers(40, 60), min_size=2, max_size=5), st.floats(0.2, 0.4), SEEDS)
def test_calibration_is_taken_from_training_alone_each_class_alike(counts, share, seed):
    ranks = samples(counts)
    before = draw(ranks, 0.1, 0.2, seed)
    after, notes = with_calibration(before, ranks, share, seed)
    assert np.array_equal(before.validation, after.validation)
    assert np.array_equal(before.test, after.test)
    assert sorted([*after.train, *after.calibration]) == before.train.tolist()
    wanted = share * np.bincount(ranks[before.train])
    assert np.abs(np.bincount(ranks[after.calibration], minlength=len(counts)) - wanted).max() < 2
    assert f"{len(after.calibration)} of the {len(before.train)} training samples" in notes[0]


def test_no_group_is_in_training_and_in_calibration():
    ranks = samples([60, 60, 60])
    groups = tuple(np.arange(180) // 3)
    before = draw(ranks, 0.1, 0.2, 0, groups)
    after, _ = with_calibration(before, ranks, 0.2, 0, groups)
    in_part = [{groups[i] for i in part} for part in after.by_name().values()]
    assert len(after.calibration) > 9
    assert sum(map(len, in_part)) == len(set.union(*in_part))


def test_calibration_takes_no_more_than_it_needs_and_nothing_where_it_is_no_use():
    many = samples([20_000, 20_000])
    assert len(with_calibration(draw(many, 0.1, 0.2, 0), many, 0.1, 0)[0].calibration) == 1000
    few = samples([30, 30])
    parts, notes = with_calibration(draw(few, 0.1, 0.2, 0), few, 0.1, 0)
    assert len(parts.calibration) == 0
    assert "would be 4, and 9 are needed" in notes[0]


def test_a_calibration_part_that_is_given_is_kept():
    words = ["train"] * 6 + ["val"] * 2 + ["test"] * 2 + ["calibration"] * 2
    ranks = np.array([0, 1] * 6)
    parts, _ = RandomSplit(0.1, 0.2, 0, 0.3).partition(ranks, ("a", "b"), words)
    assert parts.calibration.tolist() == [10, 11]


@pytest.mark.parametrize("share", [-0.1, 1, 2])
def test_a_share_for_calibration_is_below_one(share):
    ranks = samples([30, 30])
    with pytest.raises(ValueError, match=r"calibration must be a share in \[0, 1\)"):
        with_calibration(draw(ranks, 0.1, 0.2, 0), ranks, share, 0)


COPIES = st.lists(st.integers(-1, 6), min_size=30, max_size=80)


@given(COPIES, st.integers(2, 4), SEEDS)
def test_copies_are_in_one_part_and_training_has_every_class(copies, num_classes, seed):
    copies = np.array(copies)
    ranks = np.random.default_rng(seed).integers(0, num_classes, len(copies))
    try:
        parts = RandomSplit(0.1, 0.2, seed).draw(ranks, copies=copies).by_name()
    except ValueError:
        assume(False)  # too few different ones
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(copies)))
    assert all(len(part) for part in parts.values())
    assert set(ranks[parts["train"]]) == set(ranks)
    for group in set(copies) - {-1}:
        assert sum(group in copies[part] for part in parts.values()) == 1


@given(st.lists(st.integers(-1, 8), min_size=40, max_size=80), SEEDS)
def test_groups_and_copies_together_keep_both_in_one_part(copies, seed):
    copies = np.where(np.array(copies) > 3, -1, copies)
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 25, len(copies)).tolist()
    ranks = rng.integers(0, 2, len(copies))
    try:
        parts = RandomSplit(0.1, 0.2, seed).draw(ranks, groups, copies).by_name()
    except ValueError:
        assume(False)  # too few groups are left
    for numbers in (np.array(groups), copies):
        for number in set(numbers.tolist()) - {-1}:
            assert sum(number in numbers[part] for part in parts.values()) == 1


@given(COUNTS, SEEDS)
def test_without_copies_the_drawing_is_the_same(counts, seed):
    ranks = samples([count + 3 for count in counts])
    split = RandomSplit(0.1, 0.1, seed, calibration=0.3)
    names = [str(k) for k in range(len(counts))]
    alone = np.arange(len(ranks))  # groups of one
    for copies in (np.full(len(ranks), -1), alone):
        first, again = (
            split.partition(ranks, names, None, None, each)[0].by_name() for each in (None, copies)
        )
        assert first.keys() == again.keys()
        assert all(np.array_equal(first[name], again[name]) for name in first)


@given(SEEDS)
def test_copies_within_groups_change_nothing(seed):
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(0, 20, 60))
    ranks = rng.integers(0, 3, 60)
    split = RandomSplit(0.15, 0.15, seed)
    first, again = (split.draw(ranks, groups.tolist(), each) for each in (None, groups))
    assert np.array_equal(first.test, again.test)


def test_few_copies_leave_the_sizes_of_the_parts_and_classes_exact():
    ranks = samples([300, 200, 500])
    copies = np.full(1000, -1)
    copies[:60] = np.repeat(np.arange(20), 3)
    parts = RandomSplit(0.1, 0.2, 0).draw(ranks, copies=copies).by_name()
    assert [len(part) for part in parts.values()] == [700, 100, 200]
    for part, size in zip(parts.values(), (700, 100, 200), strict=True):
        assert np.abs(np.bincount(ranks[part]) / size - [0.3, 0.2, 0.5]).max() < 0.02


def test_a_hundred_thousand_images_with_some_copies_are_divided_exactly():
    ranks = np.random.default_rng(0).integers(0, 5, 100_000)
    copies = np.full(len(ranks), -1)
    copies[:2000] = np.repeat(np.arange(1000), 2)
    parts = RandomSplit(0.1, 0.2, 0).draw(ranks, copies=copies).by_name()
    assert [len(part) for part in parts.values()] == [70_000, 10_000, 20_000]


def test_what_is_not_to_be_drawn_is_left_as_it_is():
    split = RandomSplit(0.1, 0.2, UNDRAWN, 0.1)
    ranks = np.array([0, 1, 2])
    parts, notes = split.partition(ranks, ("a", "b", "c"), None)
    assert parts.test.tolist() == [0, 1, 2]
    assert len(parts.train) == len(parts.validation) == len(parts.calibration) == len(notes) == 0
    parts, _ = split.partition(ranks, ("a", "b", "c"), ["test", "val", "test"])
    assert (parts.test.tolist(), parts.validation.tolist()) == ([0, 2], [1])


def test_a_part_may_have_a_class_that_training_lacks_if_a_model_knows_it():
    words, ranks = ["train", "train", "val", "test"], np.array([0, 1, 1, 2])
    split = RandomSplit(0.1, 0.2, 0)
    with pytest.raises(ValueError, match="got c"):
        split.partition(ranks, ("a", "b", "c"), words)
    parts, _ = split.partition(ranks, KnownClasses(("a", "b", "c")), words)
    assert parts.test.tolist() == [3]
