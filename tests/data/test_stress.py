"""Stress tests change labels outside the test split only."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.data import Dataset, draw_splits, stress_labels
from layline.data.images import ImageArrays


def dataset_of(counts, seed=0):
    ranks = np.random.default_rng(1).permutation(np.repeat(np.arange(len(counts)), counts))
    images = ImageArrays(np.zeros((len(ranks), 2, 2), dtype=np.uint8))
    classes = tuple(f"class {k}" for k in range(len(counts)))
    return draw_splits(Dataset(images, ranks, classes), seed, 0.2)


@given(st.lists(st.integers(5, 40), min_size=2, max_size=6), st.integers(0, 99))
def test_noise_moves_a_fifth_of_the_labels_by_one_class_and_none_of_the_test_split(counts, seed):
    before = dataset_of(counts)
    after = stress_labels(before, "noise", seed)
    change = after.ranks - before.ranks
    others = np.setdiff1d(np.arange(len(before.ranks)), before.splits.test)
    assert np.abs(change).sum() == np.count_nonzero(change) == round(0.2 * len(others))
    assert not change[before.splits.test].any()
    assert after.splits is before.splits
    assert after.classes == before.classes
    again = stress_labels(before, "noise", seed)
    assert (again.ranks == after.ranks).all()


def test_noise_goes_up_and_down_and_reaches_every_other_split():
    before = dataset_of([100, 100, 100])
    change = stress_labels(before, "noise", 0).ranks - before.ranks
    middle = before.ranks == 1
    assert set(change[middle]) == {-1, 0, 1}
    for name in ("train", "validation", "calibration"):
        assert change[getattr(before.splits, name)].any()


def test_a_gap_removes_a_middle_class_outside_the_test_split_and_keeps_the_scale():
    before = dataset_of([30, 40, 50, 20, 60])
    after = stress_labels(before, "gap", 0)
    after.check_complete()  # a class without training samples is allowed
    assert after.classes == before.classes
    assert (after.ranks == before.ranks).all()
    assert (after.splits.test == before.splits.test).all()
    for name in ("train", "validation", "calibration"):
        own, old = getattr(after.splits, name), getattr(before.splits, name)
        assert own.tolist() == [i for i in old if before.ranks[i] != 2]


def test_a_gap_needs_three_classes():
    with pytest.raises(ValueError, match="at least three classes"):
        stress_labels(dataset_of([5, 5]), "gap", 0)
