"""Wrong input to the metrics: every message names the argument, its value and a cure."""

import re

import numpy as np
import pytest
import torch

from layline import metrics

RANK_METRICS = [
    metrics.accuracy,
    metrics.accuracy_within,
    metrics.kendall,
    metrics.macro_mean_absolute_error,
    metrics.maximum_mean_absolute_error,
    metrics.mean_absolute_error,
    metrics.quadratic_weighted_kappa,
    metrics.spearman,
]
PROBA_METRICS = [metrics.ranked_probability_score, metrics.expected_calibration_error]
UNWEIGHTED = [metrics.kendall, metrics.spearman]

RANKS = [0, 1, 2]
PROBA = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]

BAD_RANKS = [
    ([], "must be non-empty, got 0 samples"),
    ([[0, 1, 2]], "must be 1-D, got shape (1, 3)"),
    (2, "must be 1-D, got shape ()"),
    ([0, 1.5, 2], "must be whole numbers, got 1.5 at position 1"),
    ([0, 1, float("nan")], "must be whole numbers, got nan at position 2"),
    ([float("inf"), 1, 2], "must be whole numbers, got inf at position 0"),
    ([1e300, 1, 2], "must be whole numbers, got 1e+300 at position 0"),
    ([0, -1, 2], "must be non-negative, got -1 at position 1"),
    ([0, 1.0, -3.0], "must be non-negative, got -3 at position 2"),
    (["low", "mid", "top"], "must be real numbers, got dtype <U3"),
    ([0, 1, None], "must be real numbers, got dtype object"),
    ([0, [1, 2]], "must be readable by numpy, got list"),
]
BAD_PROBA = [
    ([0.2, 0.3, 0.5], "must be 2-D, got shape (3,)"),
    (np.empty((0, 3)), "must be non-empty, got 0 samples"),
    ([[1.0], [1.0], [1.0]], "must be 2 or more columns wide, got 1"),
    ([*PROBA[:2], [0.7, -0.2, 0.5]], "must be non-negative, got -0.2 at row 2"),
    ([PROBA[0], [0.5, np.nan, 0.5], PROBA[2]], "must be non-negative, got nan at row 1"),
    ([PROBA[0], [np.inf, -np.inf, 0.5], PROBA[2]], "must be non-negative, got -inf at row 1"),
    ([[np.inf, 0.0, 0.0], *PROBA[1:]], "must be rows that sum to one, got inf at row 0"),
    ([*PROBA[:2], [0.25, 0.25, 0.25]], "must be rows that sum to one, got 0.75 at row 2"),
    ([PROBA[0], [0.0, 1.0, 0.002], PROBA[2]], "must be rows that sum to one, got 1.002 at row 1"),
    ([["a", "b"]], "must be real numbers, got dtype <U1"),
    ([[0.5, 0.5], [1.0]], "must be readable by numpy, got list"),
]
BAD_WEIGHTS = [
    ([1, 1], "must be of length 3, got 2"),
    ([], "must be non-empty, got 0 samples"),
    (2.0, "must be 1-D, got shape ()"),
    ([1, -0.5, 1], "must be finite and non-negative, got -0.5 at position 1"),
    ([1, 1, np.nan], "must be finite and non-negative, got nan at position 2"),
    ([np.inf, 1, 1], "must be finite and non-negative, got inf at position 0"),
    ([0, 0, 0], "must be positive somewhere, got a sum of 0"),
]


def refuses(argument, message):
    """The whole sentence: argument, rule, value, and something after the colon."""
    return pytest.raises(ValueError, match=rf"^{argument} {re.escape(message)}: \S+")


@pytest.mark.parametrize("metric", RANK_METRICS)
def test_ranks_are_checked_on_both_sides(metric):
    for bad, message in BAD_RANKS:
        with refuses("y_true", message):
            metric(bad, RANKS)
        with refuses("y_pred", message):
            metric(RANKS, bad)


@pytest.mark.parametrize("metric", RANK_METRICS)
def test_there_are_as_many_predictions_as_truths(metric):
    with refuses("y_pred", "must be of length 3, got 2"):
        metric(RANKS, [0, 1])


@pytest.mark.parametrize("metric", PROBA_METRICS)
def test_probabilities_are_checked_together_with_their_ranks(metric):
    for bad, message in BAD_RANKS:
        with refuses("y_true", message):
            metric(bad, PROBA)
    with refuses("proba", "must be of length 3, got 2"):
        metric(RANKS, PROBA[:2])
    with refuses("y_true", "must be below 3, got 7 at position 1"):
        metric([0, 7, 2], PROBA)


@pytest.mark.parametrize(("bad", "message"), BAD_PROBA)
def test_probabilities_are_distributions(bad, message):
    for metric in PROBA_METRICS:
        with refuses("proba", message):
            metric(RANKS, bad)
    with refuses("proba", message):
        metrics.unimodality_rate(bad)


@pytest.mark.parametrize(("bad", "message"), BAD_WEIGHTS)
def test_weights_are_checked_by_every_metric_that_takes_them(bad, message):
    for metric in RANK_METRICS:
        if metric not in UNWEIGHTED:
            with refuses("sample_weight", message):
                metric(RANKS, RANKS, sample_weight=bad)
    for metric in PROBA_METRICS:
        with refuses("sample_weight", message):
            metric(RANKS, PROBA, sample_weight=bad)
    with refuses("sample_weight", message):
        metrics.unimodality_rate(PROBA, sample_weight=bad)


@pytest.mark.parametrize("tolerance", [-1, -1e-9, float("nan")])
def test_a_tolerance_is_not_negative(tolerance):
    message = f"must be at least 0, got {tolerance}"
    with refuses("tolerance", message):
        metrics.accuracy_within(RANKS, RANKS, tolerance=tolerance)
    with refuses("tolerance", message):
        metrics.unimodality_rate(PROBA, tolerance=tolerance)


@pytest.mark.parametrize("bins", [0, -3, 2.5, float("nan"), float("inf")])
def test_bins_are_counted(bins):
    with refuses("bins", f"must be a whole number from 1 on, got {bins}"):
        metrics.expected_calibration_error(RANKS, PROBA, bins=bins)


def test_a_tensor_that_needs_a_gradient_is_answered_with_the_cure():
    proba = torch.tensor(PROBA, requires_grad=True)
    with pytest.raises(ValueError, match=r"^proba must be readable by numpy, got Tensor: .*detach"):
        metrics.ranked_probability_score(RANKS, proba)


def test_options_are_given_by_name():
    for metric in (*RANK_METRICS, *PROBA_METRICS):
        with pytest.raises(TypeError, match="positional"):
            metric(RANKS, RANKS, None)


def test_sums_of_rows_may_be_off_by_rounding():
    off = np.array(PROBA) * (1 + 9e-4)
    assert metrics.ranked_probability_score(RANKS, off) == pytest.approx(
        metrics.ranked_probability_score(RANKS, PROBA), abs=5e-3
    )
