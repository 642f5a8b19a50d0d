"""Splits: sizes, shares of the classes, groups, and what the data prescribe."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.data import Dataset, draw_splits
from layline.data.images import ImageArrays
from layline.data.splits import (
    SPLIT_WORDS,
    assign_folds,
    assign_splits,
    find_groups,
    hold_out_calibration,
    stratified_holdout,
)

COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=8)
FRACTIONS = st.floats(0.01, 0.3)
SEEDS = st.integers(0, 1000)


def samples(counts, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def dataset_of(ranks, groups=None, words=None, validation=0.1, test=0.2):
    classes = tuple(f"class {k}" for k in range(max(2, ranks.max() + 1)))
    groups = None if groups is None else tuple(groups)
    return Dataset(
        ImageArrays(np.zeros((len(ranks), 2, 2), dtype=np.uint8)),
        ranks,
        classes,
        assign_splits(words, ranks, classes, groups),
        groups=groups,
        shares={"validation": validation, "test": test},
    )


def draw(ranks, seed=0, calibration=0.0, per_class=None, **options):
    return draw_splits(dataset_of(ranks, **options), seed, calibration, per_class=per_class)


def is_partition(splits, count):
    return sorted(np.concatenate(list(splits.by_name().values()))) == list(range(count))


@given(COUNTS, st.floats(0, 0.999), SEEDS)
def test_a_holdout_keeps_every_class_and_has_the_promised_size(counts, fraction, seed):
    ranks = samples(counts)
    kept, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    assert sorted([*kept, *held_out]) == list(range(len(ranks)))
    assert (np.diff(kept) > 0).all()
    assert set(ranks[kept]) == set(ranks)
    wanted = max(1, round(fraction * len(ranks))) if fraction > 0 else 0
    assert len(held_out) == min(wanted, len(ranks) - len(counts))


def test_the_largest_remainders_get_the_rest_and_ties_are_random():
    ranks = samples([10, 14, 16])  # shares of 4: 1.0, 1.4, 1.6
    _, held_out = stratified_holdout(ranks, 0.1, np.random.default_rng(0))
    assert np.bincount(ranks[held_out]).tolist() == [1, 1, 2]
    ranks = samples([5, 5])
    drawn = [stratified_holdout(ranks, 0.1, np.random.default_rng(seed))[1] for seed in range(20)]
    assert {int(ranks[each[0]]) for each in drawn} == {0, 1}
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=rf"fraction must be in \[0, 1\), got {fraction}"):
            stratified_holdout(np.arange(4), fraction, np.random.default_rng(0))


@given(st.lists(st.integers(5, 40), min_size=1, max_size=6), FRACTIONS, FRACTIONS, SEEDS)
def test_three_splits_have_their_sizes_and_every_class_its_share(counts, validation, test, seed):
    ranks = samples(counts)
    splits = draw(ranks, seed, validation=validation, test=test).splits
    assert is_partition(splits, len(ranks))
    for index, fraction in ((splits.validation, validation), (splits.test, test)):
        assert len(index) == max(1, round(fraction * len(ranks)))
        shares = np.bincount(ranks[index], minlength=len(counts))
        assert (np.abs(shares - len(index) * np.array(counts) / len(ranks)) < 1).all()
    assert set(ranks[splits.train]) == set(ranks)


@pytest.mark.parametrize("groups", [None, np.arange(100) // 3])
def test_the_seed_determines_the_splits_and_the_global_generator_is_unused(groups):
    ranks = samples([50, 50])
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (draw(ranks, seed, groups=groups).splits for seed in (3, 3, 4))
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert first.test.tolist() == again.test.tolist() != other.test.tolist()


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
def test_groups_are_never_divided(data, validation, test, seed):
    ranks, groups = data
    splits = draw(ranks, seed, groups=groups, validation=validation, test=test).splits
    assert is_partition(splits, len(ranks))
    found = [{groups[i] for i in index} for index in splits.by_name().values()]
    assert sum(map(len, found)) == len(set(groups))
    assert all(found)
    assert set(ranks[splits.train]) == set(ranks)


@given(SEEDS)
def test_with_many_groups_the_shares_are_near(seed):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(200), rng.integers(1, 8, 200))
    ranks = np.clip(rng.integers(0, 4, 200)[groups] + rng.integers(0, 2, len(groups)), 0, 3)
    splits = draw(ranks, seed, groups=groups).splits
    for index, fraction in ((splits.validation, 0.1), (splits.test, 0.2)):
        shares = np.bincount(ranks[index]) / np.bincount(ranks)
        np.testing.assert_allclose(shares, fraction, atol=0.03)


def test_large_groups_are_tested_too_and_a_class_of_one_group_is_in_training():
    sizes = np.arange(1, 41)
    groups = np.repeat(sizes, sizes)
    tested = [draw(groups % 2, seed, groups=groups).splits.test for seed in range(20)]
    assert max(groups[index].max() for index in tested) > 35
    groups = np.repeat(np.arange(12), 4)
    ranks = np.where(groups == 5, 1, 0)
    for seed in range(10):
        assert set(ranks[draw(ranks, seed, groups=groups).splits.train]) == {0, 1}


def test_few_groups_suffice_if_possible_and_are_refused_otherwise():
    ranks, groups = np.array([0, 1, 0, 1]), ["a", "b", "both", "both"]
    assert draw(ranks, groups=groups).splits.train.tolist() == [2, 3]
    for groups, count in ((["a", "a", "b", "b", "b", "b"], 2), (["a", "a", "b", "b", "c", "d"], 4)):
        with pytest.raises(ValueError, match=f"^{count} groups are too few for 3 splits"):
            draw(np.array([0, 0, 1, 1, 2, 3]), groups=groups)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 0.0}, "validation must be a finite number above 0, got 0.0"),
        ({"validation": 0.5, "test": 0.5}, "must be below 1 together, got"),
        ({"seed": -1}, "seed must be an integer, at least 0, got -1"),
        ({"groups": ["a"]}, "1 groups for 20 samples"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(options, message):
    with pytest.raises(ValueError, match=message):
        draw(samples([10, 10]), **options)
    with pytest.raises(ValueError, match="too few samples: 3 of 2 classes"):
        draw(np.array([0, 0, 1]))


RANKS = np.tile([0, 1], 30)


@pytest.mark.parametrize("words", [("train", "val", "test"), ("Training", "DEV", "testing")])
def test_splits_that_are_given_are_not_changed(words):
    dataset = draw(RANKS, words=np.repeat(words, 20).tolist())
    for index, start in zip(dataset.splits.by_name().values(), (0, 20, 40), strict=True):
        assert index.tolist() == list(range(start, start + 20))
    assert dataset.notes == ()


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (["train"] * 40 + ["test"] * 20, (36, 4, 20)),
        (["train"] * 60, (42, 6, 12)),
    ],
)
@pytest.mark.parametrize("groups", [None, [i // 4 for i in range(60)]])
def test_missing_splits_are_taken_from_training(words, sizes, groups):
    dataset = draw(RANKS, words=words, groups=groups)
    splits = dataset.splits
    assert is_partition(splits, 60)
    found = tuple(len(index) for index in splits.by_name().values())
    np.testing.assert_allclose(found, sizes, atol=0 if groups is None else 4)
    if groups is not None:
        assert sum(len({groups[i] for i in index}) for index in splits.by_name().values()) == 15
    assert len(dataset.notes) == 3 - len(set(words))


@pytest.mark.parametrize(
    ("words", "ranks", "groups", "message"),
    [
        (["train", "holdout"] * 30, RANKS, None, f"'holdout' .* {', '.join(SPLIT_WORDS)}"),
        (["train"] * 40 + ["test"] * 20, RANKS, [*range(40), *range(39, 59)], "The group 39 is in"),
        (["train"] * 40 + ["test"] * 20, np.arange(60) // 50, None, "without training .* class 1"),
        (["test"] * 60, RANKS, None, "no training split"),
    ],
)
def test_given_splits_that_cannot_be_used_are_refused(words, ranks, groups, message):
    with pytest.raises(ValueError, match=message):
        dataset_of(ranks, groups, words)


@given(st.lists(st.integers(40, 60), min_size=2, max_size=5), st.floats(0.2, 0.4), SEEDS)
def test_calibration_is_taken_from_training_alone_and_stratified(counts, share, seed):
    ranks = samples(counts)
    before, after = draw(ranks, seed).splits, draw(ranks, seed, calibration=share).splits
    assert before.validation.tolist() == after.validation.tolist()
    assert before.test.tolist() == after.test.tolist()
    assert sorted([*after.train, *after.calibration]) == before.train.tolist()
    wanted = share * np.bincount(ranks[before.train])
    assert np.abs(np.bincount(ranks[after.calibration], minlength=len(counts)) - wanted).max() < 2


def test_calibration_keeps_groups_together_and_has_a_useful_size():
    ranks = samples([60, 60, 60])
    groups = np.arange(180) // 3
    splits = draw(ranks, calibration=0.2, groups=groups).splits
    assert len(splits.calibration) > 9
    found = [{*groups[index]} for index in splits.by_name().values()]
    assert sum(map(len, found)) == 60
    many, few = samples([20_000, 20_000]), samples([30, 30])
    assert len(draw(many, calibration=0.1).splits.calibration) == 1000
    dataset = draw(few, calibration=0.1)
    assert len(dataset.splits.calibration) == 0
    assert "no prediction ranges" in dataset.notes[-1]


def test_a_calibration_split_that_is_given_is_kept_and_a_wrong_share_refused():
    words = ["train"] * 6 + ["val"] * 2 + ["test"] * 2 + ["calibration"] * 2
    dataset = draw(np.array([0, 1] * 6), calibration=0.3, words=words)
    assert dataset.splits.calibration.tolist() == [10, 11]
    for share in (-0.1, 1, 2):
        with pytest.raises(ValueError, match=r"calibration must be in \[0, 1\)"):
            hold_out_calibration(dataset.splits, dataset.ranks, share, 0)


# folds


@given(st.lists(st.integers(2, 30), min_size=1, max_size=8), st.integers(2, 10), SEEDS)
def test_each_fold_has_its_share_of_every_class(counts, folds, seed):
    ranks = samples(counts)
    fold_of = assign_folds(ranks, folds, seed)
    assert fold_of.min() == 0
    assert sorted({*fold_of}) == list(range(fold_of.max() + 1))  # none is empty
    for rank in range(len(counts)):
        sizes = np.bincount(fold_of[ranks == rank], minlength=folds)
        assert sizes.max() - sizes.min() <= 1
        assert sizes.max() < counts[rank]  # some are left to learn from


@given(grouped(), st.integers(2, 6), SEEDS)
def test_each_group_is_in_one_fold_and_its_classes_are_learned_from_others(data, folds, seed):
    ranks, groups = data
    fold_of = assign_folds(ranks, folds, seed, groups)
    assert len({*zip(groups, fold_of, strict=True)}) == len({*groups})
    assert sorted({*fold_of}) == list(range(fold_of.max() + 1))
    assert fold_of.max() < folds
    for rank in {*ranks}:
        assert len({*fold_of[ranks == rank]}) > 1


def test_folds_with_many_groups_are_nearly_equal():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), rng.integers(1, 8, 200))
    ranks = np.clip(rng.integers(0, 4, 200)[groups] + rng.integers(0, 2, len(groups)), 0, 3)
    fold_of = assign_folds(ranks, 5, 0, groups)
    for fold in range(5):
        shares = np.bincount(ranks[fold_of == fold], minlength=4) / np.bincount(ranks)
        np.testing.assert_allclose(shares, 0.2, atol=0.06)


def test_what_a_class_needs_for_training_is_in_no_fold():
    ranks = np.array([0] * 10 + [1] + [2] * 3)
    fold_of = assign_folds(ranks, 5, 0)
    assert fold_of[10] == -1
    assert (np.delete(fold_of, 10) >= 0).all()
    patients = ["a"] * 5 + ["b"] * 5 + ["c"] + ["d"] * 3  # d alone has the class 2
    assert (assign_folds(ranks, 5, 0, patients)[:10] >= 0).all()
    assert assign_folds(ranks, 5, 0, patients)[10:].tolist() == [-1] * 4
    assert assign_folds(np.arange(5), 5, 0).tolist() == [-1] * 5


def test_there_are_not_more_folds_than_groups():
    ranks, groups = np.tile([0, 1], 9), np.repeat(["a", "b", "c"], 6)
    fold_of = assign_folds(ranks, 5, 0, groups)
    assert sorted(fold_of.tolist()) == [0] * 6 + [1] * 6 + [2] * 6


def test_the_seed_determines_the_folds():
    ranks = samples([50, 50])
    first, again, other = (assign_folds(ranks, 5, seed).tolist() for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize("calibration", [0.0, 0.2])
def test_small_data_have_no_validation_and_calibration_splits(calibration):
    dataset = dataset_of(samples([40, 60]))
    for fewest, whole in ((80, False), (81, True)):  # 20 of the 100 are for the test
        made = draw_splits(dataset, 0, calibration, fewest)
        assert is_partition(made.splits, 100)
        expected = {"train", "test"} | ({"validation"} if not whole else set())
        assert {*made.splits.by_name()} - {"calibration"} == expected
        assert len(made.splits.test) == 20
        assert (len(made.splits.calibration) > 0) == (calibration > 0 and not whole)
        assert len(made.notes) == (1 if whole or not calibration else 2)


def test_a_prescribed_validation_split_is_kept_unless_folds_are_wanted():
    words = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    dataset = dataset_of(RANKS, words=words)
    assert len(draw_splits(dataset, 0, 0.0, fewest=1000).splits.validation) == 10
    splits = draw_splits(dataset, 0, 0.0, fewest=np.inf).splits
    assert splits.train.tolist() == list(range(50))
    assert splits.test.tolist() == list(range(50, 60))


def test_samples_can_be_dropped_and_an_incomplete_data_set_is_refused():
    dataset = draw(RANKS).drop([0, 5, 59])
    assert len(dataset.inputs) == 57
    assert is_partition(dataset.splits, 57)
    dataset.check_complete()
    only_low = dataset.drop(np.flatnonzero(dataset.ranks == 1))
    with pytest.raises(ValueError, match="no training samples of class 1"):
        only_low.check_complete()
    with pytest.raises(ValueError, match="test split is empty"):
        dataset.drop(dataset.splits.test).check_complete()


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"p\d+", ("p1", "p1", "p2")),
        (r"/p(\d+)_", ("1", "1", "2")),
        (r"(left)|p(\d)", ("left", "1", "2")),  # the first that takes part
        (r"^[^/]+", ("low", "high", "high")),
    ],
)
def test_the_first_capture_or_the_match_names_the_group(pattern, groups):
    paths = ["low/left/p1_a.jpg", "high/p1_b.jpg", "high/p2_a.jpg"]
    assert find_groups(pattern, paths) == groups
    for wrong in ("(", r"p2", "x*"):
        with pytest.raises(ValueError, match="group_by"):
            find_groups(wrong, paths)


def kept_of(splits):
    """The labelled samples outside the test split."""
    return set(np.concatenate([splits.train, splits.validation, splits.calibration]).tolist())


@given(st.lists(st.integers(4, 40), min_size=2, max_size=6), SEEDS, st.booleans())
def test_a_limit_on_labels_is_nested_and_does_not_change_the_test_split(counts, seed, prescribed):
    ranks = samples(counts)
    words = None
    if prescribed:  # every class is in all splits
        words = np.empty(len(ranks), dtype=object)
        for k in range(len(counts)):
            own = np.flatnonzero(ranks == k)
            words[own] = np.resize(["train", "validation", "test", "train"], len(own))
    whole = draw(ranks, seed, words=words).splits
    labelled, before = kept_of(whole), set()
    for limit in (2, 5, 10, 1000):
        splits = draw(ranks, seed, 0.15, per_class=limit, words=words).splits
        kept = kept_of(splits)
        assert splits.test.tolist() == whole.test.tolist()
        assert before <= kept <= labelled
        available = np.bincount(ranks[list(labelled)], minlength=len(counts))
        counted = np.bincount(ranks[list(kept)], minlength=len(counts))
        assert counted.tolist() == np.minimum(available, limit).tolist()
        assert set(ranks[splits.train]) == set(ranks[list(labelled)])
        assert len(splits.validation) == max(1, round(0.1 * len(kept)))
        before = kept
    assert kept == labelled


def test_a_limit_is_noted_and_rare_classes_keep_a_training_sample():
    ranks = samples([1, 2, 3, 200, 200])
    dataset = draw_splits(dataset_of(ranks), 0, per_class=5)
    dataset.check_complete()
    kept = len(kept_of(dataset.splits))
    assert (
        f"Only 5 samples per class are used: {kept} of the 325 labelled samples." in dataset.notes
    )


def test_groups_stay_in_one_split_with_a_limit():
    ranks = samples([60, 60, 60])
    groups = np.arange(180) // 2
    splits = draw(ranks, 1, 0.1, per_class=12, groups=groups).splits
    found = [set(groups[index]) for index in splits.by_name().values()]
    assert len(set.union(*found)) == sum(map(len, found))
    assert len(kept_of(splits)) == 36


@pytest.mark.parametrize("fewest", [100, 1000, np.inf])
def test_the_test_split_depends_neither_on_the_limit_nor_on_a_cross_validation(fewest):
    dataset = dataset_of(samples([80, 90, 60]))
    usual = draw_splits(dataset, 3).splits.test
    for limit in (1, 5, 20, 50, None):
        splits = draw_splits(dataset, 3, 0.1, fewest, limit).splits
        assert splits.test.tolist() == usual.tolist()
        # the samples that are kept count, not all that the data set has
        assert (len(splits.validation) == 0) == (len(kept_of(splits)) < fewest)
