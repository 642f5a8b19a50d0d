"""The figures of the reports, against the metrics and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, mean_absolute_error

from layline import metrics
from layline.evaluation.diagnostics import threshold_rates
from layline.reports.figures import (
    BINS,
    class_errors_figure,
    confusion_figure,
    error_sizes_figure,
    reliability_bins,
    reliability_figure,
    roc_figure,
    similarity_figures,
)


def random_proba(seed, num_classes, samples=300):
    rng = np.random.default_rng(seed)
    proba = softmax(rng.normal(0, 2, (samples, num_classes)), axis=1)
    return rng.integers(0, num_classes, samples), proba


@pytest.mark.parametrize("num_classes", [2, 6, 30])
def test_errors_are_those_of_scikit_learn(num_classes):
    true, predicted = np.random.default_rng(0).integers(0, num_classes, (2, 400))
    confusion = confusion_matrix(true, predicted, labels=np.arange(num_classes))
    names = [f"class {rank}" for rank in range(num_classes)]
    (heat,) = confusion_figure(confusion, names)["data"]
    assert [[cell[0] for cell in row] for row in heat["customdata"]] == confusion.tolist()
    np.testing.assert_allclose(np.sum(heat["z"], axis=1), 1, atol=1e-3)
    (bars,) = class_errors_figure(confusion, names)["data"]
    for rank, error in enumerate(bars["y"]):
        samples = true == rank
        expected = mean_absolute_error(true[samples], predicted[samples])
        assert error == pytest.approx(expected, abs=1e-4)
    (sizes,) = error_sizes_figure(confusion)["data"]
    assert sizes["customdata"] == np.bincount(np.abs(true - predicted)).tolist()


def test_q_and_u_share_a_scale():
    q, u = np.random.default_rng(0).dirichlet(np.ones(5), (2, 5))
    figures = similarity_figures(q, u, list("abcde"))
    heat = {name: figure["data"][0] for name, figure in figures.items()}
    assert heat["q"]["zmax"] == heat["u"]["zmax"] == max(q.max(), u.max())
    assert heat["difference"]["zmin"] == -heat["difference"]["zmax"]
    np.testing.assert_allclose(heat["difference"]["z"], q - u, atol=1e-5)
    assert set(similarity_figures(np.eye(3), None, list("abc"))) == {"q"}


@given(seed=st.integers(0, 50), num_classes=st.sampled_from([2, 3, 8]))
def test_the_bins_add_up_to_the_calibration_error(seed, num_classes):
    ranks, proba = random_proba(seed, num_classes)
    counts, confidence, accuracy = reliability_bins(ranks, proba)
    gaps = np.nan_to_num(np.abs(accuracy - confidence))
    expected = metrics.expected_calibration_error(ranks, proba, bins=BINS)
    assert (counts * gaps).sum() / len(ranks) == pytest.approx(expected, abs=1e-12)


def test_the_reliability_curve_is_that_of_scikit_learn_before_and_after_calibration():
    ranks, raw = random_proba(3, 4)
    calibrated = softmax(np.log(raw) / 1.7, axis=1)
    _, before, after, _ = reliability_figure(ranks, calibrated, 1.7)["data"]
    for proba, curve in ((raw, before), (calibrated, after)):
        right = proba.argmax(axis=1) == ranks
        shares, means = calibration_curve(right, proba.max(axis=1), n_bins=BINS)
        np.testing.assert_allclose(curve["y"], shares, atol=1e-5)
        np.testing.assert_allclose(curve["x"], means, atol=1e-5)


def test_the_roc_curve_shows_the_decisions():
    ranks, proba = random_proba(0, 3)
    (row, _) = threshold_rates(ranks, proba.argmax(axis=1), proba, ["a", "b", "c"])
    _, curve, point = roc_figure(row)["data"]
    assert curve["x"] == row["curve"]["fpr"]
    assert point["x"] == [pytest.approx(1 - row["specificity"], abs=1e-5)]
    assert roc_figure(row | {"curve": None}) is None
