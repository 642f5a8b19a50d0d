import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_class_weight

from layline.data.labels import categorical_order, order_classes, ranks_of, weigh_classes


def test_ranks_are_places_in_the_order_of_the_classes():
    classes = np.array(["low", "mid", "high"])
    assert ranks_of(["high", "low", "high"], classes).tolist() == [2, 0, 2]


def test_an_unknown_label_is_named():
    with pytest.raises(ValueError, match="labels of classes only, got 'huge'"):
        ranks_of(["low", "huge"], np.array(["low", "high"]))


def test_without_an_order_labels_are_sorted():
    classes, ranks = order_classes(np.array([30, 4, 30, 100]), None)
    assert classes.tolist() == [4, 30, 100]
    assert ranks.tolist() == [1, 0, 1, 2]


def test_a_class_that_never_occurs_is_named_and_keeps_its_rank():
    with pytest.warns(UserWarning, match="never occur in y: 'mid'"):
        classes, ranks = order_classes(np.array(["a", "z", "z"]), ["a", "mid", "z"])
    assert classes.tolist() == ["a", "mid", "z"]
    assert ranks.tolist() == [0, 2, 2]


def test_only_an_ordered_categorical_carries_an_order():
    values = pd.Series(["b", "a"])
    ordered = pd.CategoricalDtype(["b", "a"], ordered=True)
    assert categorical_order(values.astype(ordered)) == ["b", "a"]
    assert categorical_order(values.astype("category")) is None
    assert categorical_order(values) is None
    assert categorical_order(["b", "a"]) is None
    assert categorical_order(np.array([1, 2])) is None


def test_balanced_weights_agree_with_scikit_learn_and_leave_absent_classes_at_one():
    ranks = np.array([0, 0, 0, 2, 2, 3])
    expected = compute_class_weight("balanced", classes=np.unique(ranks), y=ranks)
    ours = weigh_classes("balanced", np.arange(4), ranks, np.ones(6))
    np.testing.assert_allclose(ours[[0, 2, 3]], expected)
    assert ours[1] == 1


def test_balanced_weights_make_every_class_count_the_same_with_sample_weights():
    ranks, weight = np.array([0, 0, 1, 2, 2]), np.array([1.0, 2.0, 5.0, 0.5, 0.25])
    factors = weigh_classes("balanced", np.arange(3), ranks, weight)
    totals = np.bincount(ranks, weights=weight * factors[ranks])
    np.testing.assert_allclose(totals, totals[0])
