r"""Metrics of ordinal classification: pure functions on ranks and probabilities.

``y_true`` and ``y_pred`` are n ranks from 0 to K - 1, as integers or whole-number floats. ``proba``
has shape (n, K): one distribution per row, columns in rank order. ``sample_weight`` holds n
non-negative weights; only their ratios matter. Arrays, sequences and tensors all work.

An error is always a difference of ranks. A class that is absent from the sample does not bring its
neighbors closer together. In the formulas :math:`y_i` is the true rank of sample i,
:math:`\hat y_i` the predicted one, and :math:`w_i` its weight, scaled so that all weights sum to 1.

:data:`METRICS` is the only table of metrics: everything that measures, selects, prints or plots a
metric by its name reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layline.geometry.decoding import array_namespace
from layline.utils.validation import UserError

__all__ = [
    "METRICS",
    "Metric",
    "accuracy",
    "accuracy_within",
    "expected_calibration_error",
    "kendall",
    "log_loss",
    "macro_mean_absolute_error",
    "maximum_mean_absolute_error",
    "mean_absolute_error",
    "quadratic_weighted_kappa",
    "ranked_probability_score",
    "spearman",
    "unimodality_rate",
]

Weights = ArrayLike | None
Floats = NDArray[np.float64]
Ranks = NDArray[np.int64]

BINS = 15  # of the expected calibration error


def accuracy(y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None) -> float:
    r"""Share of samples whose rank is predicted exactly.

    .. math:: \sum_i w_i\,[\hat y_i = y_i]

    Example:
        >>> accuracy([0, 1, 2, 2], [0, 1, 2, 0])
        0.75
    """
    return accuracy_within(y_true, y_pred, tolerance=0, sample_weight=sample_weight)


def accuracy_within(
    y_true: ArrayLike, y_pred: ArrayLike, *, tolerance: int = 1, sample_weight: Weights = None
) -> float:
    r"""Share of samples predicted at most ``tolerance`` ranks off.

    .. math:: \sum_i w_i\,[|\hat y_i - y_i| \le \text{tolerance}]

    Example:
        >>> accuracy_within([0, 1, 2, 2], [1, 1, 2, 0])
        0.75
    """
    true, pred, weight = check_ranks(y_true, y_pred, sample_weight)
    return float(np.average(np.abs(pred - true) <= tolerance, weights=weight))


def mean_absolute_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean number of ranks between truth and prediction.

    .. math:: \sum_i w_i\,|\hat y_i - y_i|

    Example:
        >>> mean_absolute_error([0, 1, 2, 2], [0, 1, 2, 0])
        0.5
    """
    true, pred, weight = check_ranks(y_true, y_pred, sample_weight)
    return float(np.average(np.abs(pred - true), weights=weight))


def macro_mean_absolute_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean over the classes of the mean absolute error within a class.

    .. math:: \frac{1}{|C|} \sum_{c \in C} \text{MAE}_c

    :math:`C` is the set of classes that have a true sample of positive weight.

    Example:
        >>> macro_mean_absolute_error([0, 2, 2], [2, 2, 2])
        1.0
    """
    return float(_class_errors(y_true, y_pred, sample_weight).mean())


def maximum_mean_absolute_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean absolute error of the class with the largest one.

    .. math:: \max_{c \in C} \text{MAE}_c

    :math:`C` is as in :func:`macro_mean_absolute_error`.

    Example:
        >>> maximum_mean_absolute_error([0, 2, 2], [2, 2, 2])
        2.0
    """
    return float(_class_errors(y_true, y_pred, sample_weight).max())


def _class_errors(y_true: ArrayLike, y_pred: ArrayLike, sample_weight: Weights) -> Floats:
    """Compute the mean absolute error of every class in the truth, in rank order."""
    true, pred, weight = check_ranks(y_true, y_pred, sample_weight)
    _, group = np.unique(true, return_inverse=True)
    total = np.bincount(group, weights=weight)
    error = np.bincount(group, weights=weight * np.abs(pred - true))
    return np.asarray(error[total > 0] / total[total > 0])


def quadratic_weighted_kappa(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Cohen's kappa with squared rank distances: agreement beyond chance.

    .. math:: 1 - \frac{\sum_i w_i (\hat y_i - y_i)^2}{\sum_{i,j} w_i w_j (\hat y_j - y_i)^2}

    NaN if every truth and every prediction is the same rank.

    Example:
        >>> round(quadratic_weighted_kappa([0, 1, 2, 3], [0, 1, 3, 2]), 3)
        0.8
    """
    true, pred, weight = check_ranks(y_true, y_pred, sample_weight)
    both = np.stack([true, pred])
    if np.ptp(both[:, weight > 0]) == 0:
        return float("nan")
    means = np.average(both, axis=1, weights=weight)
    variances = np.average((both - means[:, None]) ** 2, axis=1, weights=weight)
    # the mean over all pairs without a K x K table: two variances and the squared shift
    by_chance = variances.sum() + (means[0] - means[1]) ** 2
    return float(1 - np.average((pred - true) ** 2, weights=weight) / by_chance)


def spearman(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    r"""Spearman's rank correlation; ties share their mean position.

    .. math:: \rho = \text{corr}(\text{position}(y), \text{position}(\hat y))

    NaN if the truths or the predictions are all the same.

    Example:
        >>> round(spearman([0, 1, 2, 3], [0, 2, 1, 3]), 3)
        0.8
    """
    from scipy.stats import spearmanr  # slow to import

    return _correlate(spearmanr, y_true, y_pred)


def kendall(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    r"""Kendall's tau-b.

    .. math:: \tau_b = \frac{P - Q}{\sqrt{(P + Q + T)(P + Q + U)}}

    :math:`P` and :math:`Q` count concordant and discordant pairs, :math:`T` and :math:`U` the pairs
    tied only in the truth and only in the prediction. NaN if the truths or the predictions are all
    the same.

    Example:
        >>> round(kendall([0, 1, 2, 2], [0, 1, 1, 2]), 3)
        0.8
    """
    from scipy.stats import kendalltau

    return _correlate(kendalltau, y_true, y_pred)


def _correlate(function: Callable[..., Any], y_true: ArrayLike, y_pred: ArrayLike) -> float:
    true, pred, _ = check_ranks(y_true, y_pred)
    constant = np.ptp(true) == 0 or np.ptp(pred) == 0
    return float("nan") if constant else float(function(true, pred).statistic)


def ranked_probability_score(
    y_true: ArrayLike, proba: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean squared distance of the cumulative distributions, from 0 (best) to 1.

    .. math:: \sum_i \frac{w_i}{K - 1} \sum_{k=0}^{K-2} \big(F_i(k) - [y_i \le k]\big)^2

    :math:`F_i(k) = p_{i0} + \dots + p_{ik}`. The sum is divided by K - 1, the number of thresholds.

    Example:
        >>> ranked_probability_score([0, 2], [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
        0.3125
    """
    true, distribution, weight = check_proba(y_true, proba, sample_weight)
    return float(np.average(sample_rps(true, distribution), weights=weight))


def sample_rps(true: Ranks, proba: Floats) -> Floats:
    """Compute the ranked probability score of each sample."""
    scores = rank_scores(proba)[np.arange(len(true)), true]
    return np.asarray(scores / (proba.shape[1] - 1))


def rank_scores(proba: Any) -> Any:
    r"""Compute the ranked probability score of every rank as the truth, times K - 1.

    .. math:: s(0) = \sum_k (F_k - 1)^2, \qquad s(y + 1) - s(y) = 2 F_y - 1

    ``proba`` has float64 probabilities, (n, K), as an array or a tensor.
    """
    below = proba.cumsum(1)[:, :-1]
    lowest = ((below - 1) ** 2).sum(1)[:, None]
    higher = lowest + (2 * below - 1).cumsum(1)
    return array_namespace(proba).concat([lowest, higher], axis=1)


def log_loss(y_true: ArrayLike, proba: ArrayLike, *, sample_weight: Weights = None) -> float:
    r"""Mean negative log-likelihood (NLL) of the true ranks.

    .. math:: -\sum_i w_i \log p_{i y_i}

    A probability of zero counts as the smallest positive float, so the loss is finite.

    Example:
        >>> round(log_loss([0, 1], [[1.0, 0.0], [0.5, 0.5]]), 3)
        0.347
    """
    true, distribution, weight = check_proba(y_true, proba, sample_weight)
    return float(np.average(sample_nll(true, distribution), weights=weight))


def sample_nll(true: Ranks, proba: Floats) -> Floats:
    """Compute the negative log-likelihood of each sample."""
    of_truth = proba[np.arange(len(true)), true]
    return np.asarray(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)))


def expected_calibration_error(
    y_true: ArrayLike, proba: ArrayLike, *, bins: int = BINS, sample_weight: Weights = None
) -> float:
    r"""Mean gap between the accuracy of the most probable class and its probability.

    .. math:: \sum_b W_b\,|\text{accuracy}_b - \text{confidence}_b|

    The confidence of a sample is its largest probability; ties go to the lowest rank. Bin b
    contains the confidences in :math:`(b/B, (b + 1)/B]` and has the weight :math:`W_b`; ``bins``
    is B.

    Example:
        >>> expected_calibration_error([0, 1], [[0.75, 0.25], [0.75, 0.25]])
        0.25
    """
    true, distribution, weight = check_proba(y_true, proba, sample_weight)
    index, gap = calibration_gaps(true, distribution, bins)
    return float(np.abs(np.bincount(index, weights=weight * gap)).sum() / weight.sum())


def calibration_gaps(true: Ranks, proba: Floats, bins: int = BINS) -> tuple[Ranks, Floats]:
    """Compute the confidence bin of each sample, and its correctness minus its confidence."""
    confidence = proba.max(axis=1)
    # inner edges only: a confidence that rounding put above one stays in the last bin
    index = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    return index, np.asarray((proba.argmax(axis=1) == true) - confidence)


def unimodality_rate(
    proba: ArrayLike, *, tolerance: float = 1e-9, sample_weight: Weights = None
) -> float:
    r"""Share of distributions that rise up to some class and fall after it.

    .. math:: \sum_i w_i\,[\text{no step of } p_i \text{ up comes after a step down}]

    A step of at most ``tolerance`` counts as a plateau, which is allowed anywhere. Single
    precision has noise of up to 1e-7: raise the tolerance accordingly.

    Example:
        >>> unimodality_rate([[0.2, 0.5, 0.3], [0.5, 0.0, 0.5]])
        0.5
    """
    _, distribution, weight = check_proba(None, proba, sample_weight)
    steps = np.diff(distribution, axis=1)  # (n, K - 1)
    has_fallen = np.logical_or.accumulate(steps < -tolerance, axis=1)
    rises_again = has_fallen & (steps > tolerance)
    return float(np.average(~np.any(rises_again, axis=1), weights=weight))


@dataclass(frozen=True)
class Metric:
    """A metric, and how it is used and shown."""

    name: str  # the key in test.json and the column in result tables
    function: Callable[..., float]  # of true ranks, and predicted ranks or probabilities
    higher_is_better: bool
    label: str  # the short name in tables and figures
    description: str  # for readers of a report
    decode: str | None = None  # the best decoding; None for a metric of probabilities
    format: str = ".3f"  # with a percent sign for shares

    @property
    def kind(self) -> Literal["ranks", "probabilities"]:
        """What the function takes as its second argument."""
        return "probabilities" if self.decode is None else "ranks"

    @property
    def sign(self) -> int:
        """1 if lower is better, else -1: times this, the best value is the smallest."""
        return -1 if self.higher_is_better else 1


# The mode is the most accurate decoding, the median has the least expected absolute error, and the
# rounded mean the least expected squared error, which quadratic weights ask for.
_TABLE = (
    Metric("accuracy", accuracy, True, "Accuracy", "exactly right", "mode", ".1%"),
    Metric("mae", mean_absolute_error, False, "MAE", "mean error in classes", "median"),
    Metric(
        "macro_mae", macro_mean_absolute_error, False, "Macro MAE", "mean MAE of classes", "median"
    ),
    Metric(
        "maximum_mae", maximum_mean_absolute_error, False, "Maximum MAE", "worst class", "median"
    ),
    Metric("within_one", accuracy_within, True, "Within one", "at most one off", "median", ".1%"),
    Metric("qwk", quadratic_weighted_kappa, True, "QWK", "agreement beyond chance", "mean"),
    Metric("spearman", spearman, True, "Spearman", "rank correlation (rho)", "mean"),
    Metric("kendall", kendall, True, "Kendall", "rank correlation (tau-b)", "mean"),
    Metric("rps", ranked_probability_score, False, "RPS", "error of the distribution, 0 to 1"),
    Metric("nll", log_loss, False, "NLL", "negative log-likelihood of the true class"),
    Metric("ece", expected_calibration_error, False, "ECE", "stated minus observed probability"),
    Metric(
        "unimodality_rate",
        lambda y_true, proba: unimodality_rate(proba),
        True,
        "Unimodal",
        "distributions with a single peak",
        format=".1%",
    ),
)
METRICS = {metric.name: metric for metric in _TABLE}
RANK_METRICS = tuple(name for name, metric in METRICS.items() if metric.kind == "ranks")
PROBABILITY_METRICS = tuple(name for name in METRICS if name not in RANK_METRICS)
# What a model can be selected for; the decoding follows from it.
CRITERIA = {name: METRICS[name] for name in ("mae", "accuracy", "qwk")}


def check_ranks(
    y_true: ArrayLike, y_pred: ArrayLike, sample_weight: Weights = None
) -> tuple[Ranks, Ranks, Floats]:
    """Convert true and predicted ranks and weights to arrays of equal length."""
    true = _ranks("y_true", y_true)
    pred = _ranks("y_pred", y_pred, len(true))
    return true, pred, _weights(sample_weight, len(true))


def check_proba(
    y_true: ArrayLike | None, proba: ArrayLike, sample_weight: Weights = None
) -> tuple[Ranks, Floats, Floats]:
    """Convert true ranks, probabilities and weights to arrays of equal length."""
    array = _array("proba", proba, ndim=2).astype(np.float64)
    n, num_classes = array.shape
    if num_classes < 2:
        raise UserError(f"proba must have a column for each class, got {num_classes} column.")
    # half precision passes, percentages do not
    good = (array >= 0).all(axis=1) & (np.abs(array.sum(axis=1) - 1) <= 1e-3)
    _check_each("proba", good, array, "contain probabilities, not logits or percentages")
    true = np.zeros(n, dtype=np.int64) if y_true is None else _ranks("y_true", y_true, n)
    rule = f"be below {num_classes}, the number of columns of proba"
    _check_each("y_true", true < num_classes, true, rule)
    return true, array, _weights(sample_weight, n)


def _ranks(name: str, values: ArrayLike, n: int | None = None) -> Ranks:
    array = _array(name, values, ndim=1, n=n)
    with np.errstate(invalid="ignore"):
        ranks = array.astype(np.int64)  # signed, so that differences do not wrap around
    # the cast keeps neither fractions nor NaN nor infinities
    _check_each(name, (ranks == array) & (ranks >= 0), array, "contain ranks 0, 1, ..., K - 1")
    return ranks


def _weights(sample_weight: Weights, n: int) -> Floats:
    if sample_weight is None:
        return np.ones(n)
    weight = _array("sample_weight", sample_weight, ndim=1, n=n).astype(np.float64)
    good = (weight >= 0) & np.isfinite(weight)
    _check_each("sample_weight", good, weight, "be finite and non-negative")
    if not weight.any():
        raise UserError("sample_weight must have a positive weight, got only zeros.")
    # only ratios matter; near one, neither sums nor products of weights overflow
    return np.asarray(weight / weight.max())


def _array(name: str, values: Any, ndim: int, n: int | None = None) -> NDArray[Any]:
    if hasattr(values, "detach"):  # a tensor, which may require gradients or be a bfloat16 one
        values = values.detach().cpu().double()
    array = np.asarray(values)
    if array.ndim != ndim:
        raise UserError(f"{name} must be {ndim}-D, got shape {array.shape}.")
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name} must contain numbers, got dtype {array.dtype}.")
    if len(array) == 0 or len(array) != (n or len(array)):
        rule = f"{n} samples, like the other arguments" if n else "at least one sample"
        raise UserError(f"{name} must have {rule}, got {len(array)}.")
    return array


def _check_each(name: str, good: NDArray[np.bool_], values: NDArray[Any], rule: str) -> None:
    if not good.all():
        i = int(np.argmin(good))  # the first bad one
        raise UserError(f"{name} must {rule}, got {values[i]} at position {i}.")
