import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from layline.data.dataset import Dataset, Splits
from layline.data.images import ImageArrays
from layline.data.labels import (
    categorical_order,
    match_classes,
    natural_order,
    order_classes,
    rank_labels,
    ranks_of,
    weigh_classes,
)


@given(st.lists(st.text()))
def test_names_are_ordered_as_people_read_them_and_any_names_can_be(names):
    assert sorted(natural_order(names)) == sorted(names)
    assert natural_order(["b", "grade 10", "Grade 9", "A"]) == ["A", "b", "Grade 9", "grade 10"]
    assert natural_order(["11", "1e1", "-1", "1.25"]) == ["-1", "1.25", "1e1", "11"]


@pytest.mark.parametrize("classes", ["a,,b", "a,b,a", ["a", ""], "", ["1", 1], "a,b,c", "a"])
def test_an_order_that_does_not_fit_is_refused(classes):
    with pytest.raises(ValueError, match=r"must be names separated|lists .* twice|but the data"):
        rank_labels(["a", "b"], classes)


@pytest.mark.parametrize(
    "names",
    [["odd", "mild", "severe"], ["a", "b"], ["medium", "moderate"], ["1", "1.0"], ["a1", "a01"]],
)
def test_an_unknown_order_is_refused(names):
    with pytest.raises(ValueError, match=r"order of the classes .* is unknown"):
        rank_labels(names, None)
    assert rank_labels(names, names[::-1])[1] == tuple(names[::-1])


def test_labels_are_sorted_without_an_order():
    classes = np.array(["low", "mid", "high"])
    assert ranks_of(["high", "low", "high"], classes).tolist() == [2, 0, 2]
    with pytest.raises(ValueError, match="labels of classes only, got 'huge'"):
        ranks_of(["low", "huge"], classes)
    classes, ranks = order_classes(np.array([30, 4, 30, 100]), None)
    assert classes.tolist() == [4, 30, 100]
    assert ranks.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "better"),
    [
        (["mild", "moderate", "none", "severe"], ["none", "mild", "moderate", "severe"]),
        (["10", "8", "9"], ["8", "9", "10"]),
        (["green", "odd", "red"], None),
    ],
)
def test_strings_are_sorted_but_not_without_a_word(labels, better):
    with pytest.warns(UserWarning, match="y has strings, sorted alphabetically") as said:
        classes, _ = order_classes(np.array(labels), None)
    assert classes.tolist() == labels
    ending = "lowest first" if better is None else f"classes={better!r}"
    assert str(said[0].message).endswith(ending)


@pytest.mark.parametrize(
    "labels", [["grade 1", "grade 2", "grade 3"], ["1", "2", "3"], ["no", "yes"], ["b", "z"]]
)
def test_nothing_is_said_where_sorting_cannot_be_wrong(labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        order_classes(np.array(labels), None)
        order_classes(np.array(["mild", "none", "odd"]), ["odd", "none", "mild"])


def test_a_class_that_never_occurs_is_named_and_keeps_its_rank():
    with pytest.warns(UserWarning, match="never occur in y: 'mid'"):
        classes, ranks = order_classes(np.array(["a", "z", "z"]), ["a", "mid", "z"])
    assert classes.tolist() == ["a", "mid", "z"]
    assert ranks.tolist() == [0, 2, 2]


def test_only_an_ordered_categorical_carries_an_order():
    values = pd.Series(["b", "a"])
    ordered = pd.CategoricalDtype(["b", "a"], ordered=True)
    assert categorical_order(values.astype(ordered)) == ["b", "a"]
    for other in (values.astype("category"), values, ["b", "a"], np.array([1, 2])):
        assert categorical_order(other) is None


def test_balanced_weights_agree_with_scikit_learn_and_respect_sample_weights():
    ranks = np.array([0, 0, 0, 2, 2, 3])
    expected = compute_class_weight("balanced", classes=np.unique(ranks), y=ranks)
    ours = weigh_classes("balanced", np.arange(4), ranks, np.ones(6))
    np.testing.assert_allclose(ours[[0, 2, 3]], expected)
    assert ours[1] == 1  # it is absent
    ranks, weight = np.array([0, 0, 1, 2, 2]), np.array([1.0, 2.0, 5.0, 0.5, 0.25])
    factors = weigh_classes("balanced", np.arange(3), ranks, weight)
    totals = np.bincount(ranks, weights=weight * factors[ranks])
    np.testing.assert_allclose(totals, totals[0])


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_effective_weights_are_those_of_cui_with_the_mean_class_for_n(scale):
    counts = np.array([600, 90, 10])
    ranks, weight = np.repeat(np.arange(3), counts), np.full(700, scale)
    beta = 1 - 1 / (700 / 3)
    expected = (1 - beta) / (1 - beta**counts)
    ours = weigh_classes("effective", np.arange(3), ranks, weight)
    np.testing.assert_allclose(ours / ours[0], expected / expected[0])
    np.testing.assert_allclose(ours[ranks].mean(), 1)
    balanced = weigh_classes("balanced", np.arange(3), ranks, weight)
    for rarer, other in ((1, 0), (2, 1)):
        assert 1 < ours[rarer] / ours[other] < balanced[rarer] / balanced[other]


def test_classes_are_matched_by_name_whatever_their_order():
    inputs = ImageArrays(np.zeros((4, 2, 2), dtype=np.uint8), ["a", "b", "c", "d"])
    nothing = np.zeros(0, dtype=np.int64)
    parts = Splits(np.array([0, 1]), nothing, np.array([2, 3]))
    found = Dataset(inputs, np.array([0, 1, 2, 0]), ("high", "low", "odd"), parts)
    with pytest.raises(ValueError, match=r"does not know the classes odd; it knows low, mid, high"):
        match_classes(found, ("low", "mid", "high"))
    matched = match_classes(found, ("low", "mid", "high"), skip_unknown=True)
    assert [matched.classes[rank] for rank in matched.ranks] == ["high", "low", "high"]
    assert list(matched.inputs.names) == ["a", "b", "d"]
    assert matched.splits.test.tolist() == [2]
    assert matched.fixed_classes
    assert matched.notes[-1].endswith("mid.")
    with pytest.raises(ValueError, match="no samples of the model's classes"):
        match_classes(found, ("x", "y"), skip_unknown=True)
