"""The confusion matrix, and errors by class and by size."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, mean_absolute_error

from layline.reports.figures.confusion import (
    MOST_WITH_SHARES,
    MOST_WITH_TEXT,
    confusion_figure,
    row_shares,
)
from layline.reports.figures.errors import (
    class_errors,
    class_errors_figure,
    error_counts,
    error_sizes_figure,
)

RNG = np.random.default_rng(0)


def drawn(num_classes, samples=200):
    true, said = RNG.integers(0, num_classes, (2, samples))
    labels = np.arange(num_classes)
    return true, said, confusion_matrix(true, said, labels=labels)


def named(num_classes):
    return [f"class {rank}" for rank in range(num_classes)]


@pytest.mark.parametrize("num_classes", [2, 5, 100])
def test_rows_sum_to_one_and_counts_to_the_samples(num_classes):
    _, _, confusion = drawn(num_classes, 3000)
    np.testing.assert_allclose(row_shares(confusion).sum(axis=1), 1)
    (heat,) = confusion_figure(confusion, named(num_classes))["data"]
    counts = [[cell[0] for cell in row] for row in heat["customdata"]]
    np.testing.assert_array_equal(counts, confusion)
    np.testing.assert_allclose(heat["z"], row_shares(confusion), atol=1e-4)


def test_a_class_without_samples_has_a_row_of_zeros():
    assert row_shares(np.array([[0, 0], [1, 3]])).tolist() == [[0, 0], [0.25, 0.75]]


def test_true_classes_go_down_and_predicted_ones_to_the_right():
    (heat,) = confusion_figure(np.array([[5, 1], [0, 4]]), ["a", "b"])["data"]
    assert heat["text"] == [["5<br>83%", "1<br>17%"], ["", "4<br>100%"]]
    assert heat["customdata"][0][1] == [1, "a", "b"]


@pytest.mark.parametrize("num_classes", [2, MOST_WITH_SHARES, MOST_WITH_TEXT, 17, 100])
def test_many_classes_have_no_text_in_their_cells(num_classes):
    figure = confusion_figure(drawn(num_classes, 5000)[2], named(num_classes))
    (heat,) = figure["data"]
    assert ("text" in heat) == (num_classes <= MOST_WITH_TEXT)
    assert heat["showscale"] == (num_classes > MOST_WITH_TEXT)
    assert len(figure["layout"]["xaxis"]["tickvals"]) <= 20


@pytest.mark.parametrize("num_classes", [2, 6, 30])
def test_errors_by_class_are_those_of_scikit_learn(num_classes):
    true, said, confusion = drawn(num_classes)
    for rank, error in enumerate(class_errors(confusion)):
        here = true == rank
        known = mean_absolute_error(true[here], said[here]) if here.any() else np.nan
        assert error == pytest.approx(known, nan_ok=True)


def test_a_class_without_samples_has_no_bar():
    (bars,) = class_errors_figure(np.array([[0, 0], [1, 3]]), ["a", "b"])["data"]
    assert bars["y"] == [None, 0.25]
    assert bars["text"] == ["n=0", "n=4"]


@pytest.mark.parametrize("num_classes", [2, 9])
def test_sizes_of_errors_are_counted(num_classes):
    true, said, confusion = drawn(num_classes)
    np.testing.assert_array_equal(error_counts(confusion), np.bincount(np.abs(true - said)))
    (bars,) = error_sizes_figure(confusion)["data"]
    assert sum(bars["y"]) == pytest.approx(1, abs=1e-5)


def test_without_an_error_all_are_zero_off():
    assert error_counts(np.diag([3, 4])).tolist() == [7]
