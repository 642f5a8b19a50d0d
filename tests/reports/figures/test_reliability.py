"""Reliability and the peaks of distributions, against the metrics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.calibration import calibration_curve

from layline import metrics
from layline.reports.figures.modes import count_modes, modes_figure
from layline.reports.figures.reliability import BINS, binned, reliability_figure


def drawn(seed, num_classes, samples=300):
    rng = np.random.default_rng(seed)
    proba = softmax(rng.normal(0, 2, (samples, num_classes)), axis=1)
    return rng.integers(0, num_classes, samples), proba


@given(seed=st.integers(0, 50), num_classes=st.sampled_from([2, 3, 8]))
def test_the_bins_add_up_to_the_calibration_error(seed, num_classes):
    ranks, proba = drawn(seed, num_classes)
    bins = binned(ranks, proba)
    assert bins.counts.sum() == len(ranks)
    known = metrics.expected_calibration_error(ranks, proba, bins=BINS)
    assert bins.error == pytest.approx(known, abs=1e-12)


def test_the_curve_is_that_of_scikit_learn():
    ranks, proba = drawn(3, 4)
    bins = binned(ranks, proba)
    right = proba.argmax(axis=1) == ranks
    shares, means = calibration_curve(right, proba.max(axis=1), n_bins=BINS)
    filled = bins.counts > 0
    np.testing.assert_allclose(bins.accuracy[filled], shares)
    np.testing.assert_allclose(bins.confidence[filled], means)


def test_empty_bins_are_not_drawn():
    _, curve, histogram = reliability_figure(binned(np.array([0, 1]), np.eye(2)))["data"]
    assert (curve["x"], curve["y"], curve["customdata"]) == ([1.0], [1.0], [2])
    assert histogram["y"] == [0] * (BINS - 1) + [2]


@pytest.mark.parametrize(
    ("row", "peaks"),
    [
        ([1.0, 0.0, 0.0], 1),
        ([0.2, 0.6, 0.2], 1),
        ([0.25, 0.25, 0.5], 1),
        ([0.5, 0.0, 0.5], 2),
        ([0.3, 0.1, 0.2, 0.1, 0.3], 3),
        ([0.2, 0.4, 0.0, 0.0, 0.4], 2),
        ([0.2, 0.2, 0.2, 0.2, 0.2], 1),
    ],
)
def test_peaks_are_counted(row, peaks):
    assert count_modes(np.array([row])).tolist() == [peaks]


@given(seed=st.integers(0, 50), num_classes=st.sampled_from([2, 3, 9]))
def test_one_peak_is_what_the_metric_calls_unimodal(seed, num_classes):
    _, proba = drawn(seed, num_classes)
    share = (count_modes(proba, 1e-9) == 1).mean()
    assert share == pytest.approx(metrics.unimodality_rate(proba))


def test_the_shares_of_peaks_sum_to_one():
    _, proba = drawn(0, 9)
    (bars,) = modes_figure(count_modes(proba))["data"]
    assert sum(bars["y"]) == pytest.approx(1, abs=1e-5)
    assert sum(bars["customdata"]) == len(proba)
