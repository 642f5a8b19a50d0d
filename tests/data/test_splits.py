import numpy as np
import pytest

from layline.data.splits import WORDS, given, split

RANKS = np.tile([0, 1], 30)
OPTIONS = {"validation": 0.1, "test": 0.2, "seed": 0}


def parts_of(splits, ranks=RANKS, **options):
    partition, notes = given(splits, ranks, ("low", "high"), **OPTIONS, **options)
    together = np.concatenate(list(partition.parts().values()))
    assert sorted(together) == list(range(len(ranks)))
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
    homes = [{groups[i] for i in part} for part in partition.parts().values()]
    assert sum(map(len, homes)) == 15


def test_without_a_split_one_is_made_and_told():
    for groups, ending in ((None, "each class alike"), (RANKS.tolist(), "kept together")):
        groups = groups and list(range(60))
        partition, (note,) = split(None, RANKS, ("low", "high"), **OPTIONS, groups=groups)
        assert len(partition.test) == 12
        assert note.endswith(ending)


def test_an_unknown_word_is_answered_with_the_known():
    with pytest.raises(ValueError, match=f"one of {', '.join(WORDS)}, got 'holdout'"):
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
