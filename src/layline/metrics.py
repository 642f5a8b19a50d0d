r"""Metrics of ordinal classification: pure functions on ranks and probabilities.

Arguments mean the same everywhere. ``y_true`` and ``y_pred`` hold n ranks from 0 to K - 1, as
integers or whole-number floats. ``proba`` is (n, K), a distribution per row, columns in rank order.
``sample_weight`` holds n non-negative weights; only their ratios matter, a weight of two is the
sample twice and a weight of zero is no sample. Anything that :func:`numpy.asarray` reads will do,
tensors on the CPU included.

An error is always a difference of ranks, never of positions among the classes that happen to occur:
a class that is absent from the sample does not bring its neighbours closer together. In the
formulas :math:`y_i` is the true rank of sample i, :math:`\hat y_i` the predicted one, :math:`w_i`
its weight, scaled so that all weights sum to one.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layline.utils.errors import UserError

__all__ = [
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
Ranks = NDArray[np.int64]
_Floats = NDArray[np.float64]


def accuracy(y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None) -> float:
    r"""Share of samples whose rank is predicted exactly.

    .. math:: \sum_i w_i\,[\hat y_i = y_i]

    Example:
        >>> accuracy([0, 1, 2, 2], [0, 1, 2, 0])
        0.75
    """
    return accuracy_within(y_true, y_pred, tolerance=0, sample_weight=sample_weight)


def accuracy_within(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    tolerance: int = 1,
    sample_weight: Weights = None,
) -> float:
    r"""Share of samples that are predicted at most ``tolerance`` ranks off.

    .. math:: \sum_i w_i\,[|\hat y_i - y_i| \le \text{tolerance}]

    Example:
        >>> accuracy_within([0, 1, 2, 2], [1, 1, 2, 0])
        0.75
    """
    _check_tolerance(tolerance)
    return _mean(_errors(y_true, y_pred) <= tolerance, sample_weight)


def mean_absolute_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean number of ranks between truth and prediction.

    .. math:: \sum_i w_i\,|\hat y_i - y_i|

    Example:
        >>> mean_absolute_error([0, 1, 2, 2], [0, 1, 2, 0])
        0.5
    """
    return _mean(_errors(y_true, y_pred), sample_weight)


def macro_mean_absolute_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean over the classes of the mean absolute error within a class.

    .. math:: \frac{1}{|C|} \sum_{c \in C} \text{MAE}_c

    :math:`C` holds the classes with a true sample of positive weight. A prediction of any other
    class is an error like any other.

    Example:
        >>> macro_mean_absolute_error([0, 2, 2], [2, 2, 2])
        1.0
    """
    return float(_class_errors(y_true, y_pred, sample_weight).mean())


def maximum_mean_absolute_error(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean absolute error of the class that is predicted worst.

    .. math:: \max_{c \in C} \text{MAE}_c

    :math:`C` is as in :func:`macro_mean_absolute_error`.

    Example:
        >>> maximum_mean_absolute_error([0, 2, 2], [2, 2, 2])
        2.0
    """
    return float(_class_errors(y_true, y_pred, sample_weight).max())


def quadratic_weighted_kappa(
    y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Cohen's kappa with squared rank distances: agreement beyond chance.

    .. math:: 1 - \frac{\sum_i w_i (\hat y_i - y_i)^2}{\sum_{i,j} w_i w_j (\hat y_j - y_i)^2}

    NaN where every truth and every prediction is the same rank: chance then agrees perfectly too.

    Example:
        >>> round(quadratic_weighted_kappa([0, 1, 2, 3], [0, 1, 3, 2]), 3)
        0.8
    """
    true, pred = _rank_pair(y_true, y_pred)
    weight = _weights(sample_weight, len(true))
    counted = weight > 0
    if _is_constant(np.concatenate([true[counted], pred[counted]])):
        return float("nan")
    means = [float(np.average(ranks, weights=weight)) for ranks in (true, pred)]
    variances = [
        float(np.average((ranks - mean) ** 2, weights=weight))
        for ranks, mean in zip((true, pred), means, strict=True)
    ]
    # the mean over all pairs, without a table of K x K: two variances and the squared shift
    by_chance = sum(variances) + (means[0] - means[1]) ** 2
    disagreement = float(np.average((pred - true) ** 2, weights=weight))
    return 1 - disagreement / by_chance


def spearman(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    r"""Spearman's rank correlation; ties share their mean position.

    .. math:: \rho = \text{corr}(\text{position}(y), \text{position}(\hat y))

    NaN where the truths or the predictions are all the same.

    Example:
        >>> round(spearman([0, 1, 2, 3], [0, 2, 1, 3]), 3)
        0.8
    """
    true, pred = _rank_pair(y_true, y_pred)
    if _is_constant(true) or _is_constant(pred):
        return float("nan")
    from scipy.stats import spearmanr  # takes a second, which a prediction need not wait

    return float(spearmanr(true, pred).statistic)


def kendall(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    r"""Kendall's tau-b: pairs in the right order less pairs in the wrong one.

    .. math:: \tau_b = \frac{P - Q}{\sqrt{(P + Q + T)(P + Q + U)}}

    :math:`P` and :math:`Q` count concordant and discordant pairs, :math:`T` and :math:`U` the pairs
    tied in the truth only and in the prediction only. NaN where the truths or the predictions are
    all the same.

    Example:
        >>> round(kendall([0, 1, 2, 2], [0, 1, 1, 2]), 3)
        0.8
    """
    true, pred = _rank_pair(y_true, y_pred)
    if _is_constant(true) or _is_constant(pred):
        return float("nan")
    from scipy.stats import kendalltau

    return float(kendalltau(true, pred, variant="b").statistic)


def ranked_probability_score(
    y_true: ArrayLike, proba: ArrayLike, *, sample_weight: Weights = None
) -> float:
    r"""Mean squared distance of the cumulative distributions, from 0 (best) to 1.

    .. math:: \sum_i \frac{w_i}{K - 1} \sum_{k=0}^{K-2} \big(F_i(k) - [y_i \le k]\big)^2

    :math:`F_i(k) = p_{i0} + \dots + p_{ik}`. The sum is divided by K - 1, the number of thresholds;
    at the last class both distributions are complete.

    Example:
        >>> ranked_probability_score([0, 2], [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
        0.3125
    """
    return _mean(ranked_probability_scores(y_true, proba), sample_weight)


def ranked_probability_scores(y_true: ArrayLike, proba: ArrayLike) -> _Floats:
    """Give the ranked probability score of each sample."""
    true, distribution = _ranks_and_proba(y_true, proba)
    reached = true[:, None] <= np.arange(distribution.shape[1] - 1)  # (n, K - 1)
    excess = distribution.cumsum(axis=1)[:, :-1] - reached
    return np.asarray((excess**2).mean(axis=1))


def log_loss(y_true: ArrayLike, proba: ArrayLike, *, sample_weight: Weights = None) -> float:
    r"""Mean negative logarithm of the probability of the truth (NLL), lower is better.

    .. math:: -\sum_i w_i \log p_{i y_i}

    A probability of zero counts as the smallest number above it: a certain error is not infinite.

    Example:
        >>> round(log_loss([0, 1], [[1.0, 0.0], [0.5, 0.5]]), 3)
        0.347
    """
    true, distribution = _ranks_and_proba(y_true, proba)
    of_truth = distribution[np.arange(len(true)), true]
    return _mean(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)), sample_weight)


def expected_calibration_error(
    y_true: ArrayLike,
    proba: ArrayLike,
    *,
    bins: int = 15,
    sample_weight: Weights = None,
) -> float:
    r"""Mean gap between the accuracy of the likeliest class and its probability.

    .. math:: \sum_b W_b\,|\text{accuracy}_b - \text{confidence}_b|

    The confidence of a sample is its largest probability; a tie goes to the lowest rank. Bin b
    holds the confidences in :math:`(b/B, (b + 1)/B]` and :math:`W_b` of the weight; ``bins`` is B.

    Example:
        >>> expected_calibration_error([0, 1], [[0.75, 0.25], [0.75, 0.25]])
        0.25
    """
    index, gap = calibration_gaps(y_true, proba, bins)
    weight = _weights(sample_weight, len(gap))
    return float(np.abs(np.bincount(index, weights=weight * gap)).sum() / weight.sum())


def calibration_gaps(
    y_true: ArrayLike, proba: ArrayLike, bins: int = 15
) -> tuple[NDArray[np.int64], _Floats]:
    """Give the bin of each sample's confidence, and how much it is right less that confidence."""
    if not (bins >= 1 and bins % 1 == 0):
        raise UserError(f"bins must be a whole number from 1 on, got {bins}: it counts intervals")
    true, distribution = _ranks_and_proba(y_true, proba)
    confidence = distribution.max(axis=1)
    # inner edges only: a confidence that rounding put above one stays in the last bin
    index = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    return index, np.asarray((distribution.argmax(axis=1) == true) - confidence)


def unimodality_rate(
    proba: ArrayLike, *, tolerance: float = 1e-9, sample_weight: Weights = None
) -> float:
    r"""Share of distributions that rise up to some class and fall after it.

    .. math:: \sum_i w_i\,[\text{no step of } p_i \text{ up comes after a step down}]

    A step of at most ``tolerance`` is a plateau, which is allowed anywhere. Single
    precision carries noise of up to 1e-7: raise the tolerance to see past it.

    Example:
        >>> unimodality_rate([[0.2, 0.5, 0.3], [0.5, 0.0, 0.5]])
        0.5
    """
    _check_tolerance(tolerance)
    steps = np.diff(_distributions(proba), axis=1)  # (n, K - 1)
    has_fallen = np.logical_or.accumulate(steps < -tolerance, axis=1)
    rises_again = has_fallen & (steps > tolerance)
    return _mean(~np.any(rises_again, axis=1), sample_weight)


def _mean(values: NDArray[Any], sample_weight: Weights) -> float:
    return float(np.average(values, weights=_weights(sample_weight, len(values))))


def _errors(y_true: ArrayLike, y_pred: ArrayLike) -> Ranks:
    true, pred = _rank_pair(y_true, y_pred)
    return np.asarray(np.abs(pred - true))


def _class_errors(y_true: ArrayLike, y_pred: ArrayLike, sample_weight: Weights) -> _Floats:
    """Mean absolute error of every class that occurs in the truth, in rank order."""
    true, pred = _rank_pair(y_true, y_pred)
    weight = _weights(sample_weight, len(true))
    _, group = np.unique(true, return_inverse=True)
    total = np.bincount(group, weights=weight)
    error = np.bincount(group, weights=weight * np.abs(pred - true))
    return np.asarray(error[total > 0] / total[total > 0])


def _is_constant(ranks: Ranks) -> bool:
    return bool((ranks == ranks[0]).all())


def _rank_pair(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Ranks, Ranks]:
    true, pred = _ranks("y_true", y_true), _ranks("y_pred", y_pred)
    _check_length("y_pred", pred, len(true))
    return true, pred


def _ranks_and_proba(y_true: ArrayLike, proba: ArrayLike) -> tuple[Ranks, _Floats]:
    true, distribution = _ranks("y_true", y_true), _distributions(proba)
    _check_length("proba", distribution, len(true))
    num_classes = distribution.shape[1]
    claim = f"y_true must be below {num_classes}"
    _check_each(true < num_classes, true, claim, "proba has no column for this class")
    return true, distribution


def _ranks(name: str, values: ArrayLike) -> Ranks:
    array = _array(name, values, ndim=1)
    with np.errstate(invalid="ignore"):
        # signed, so that differences of small unsigned integers do not wrap around
        ranks = array.astype(np.int64)
    why = "ranks are 0, 1, ..., K - 1"
    # the cast keeps neither fractions nor NaN nor infinities
    _check_each(ranks == array, array, f"{name} must be whole numbers", why)
    _check_each(ranks >= 0, ranks, f"{name} must be non-negative", why)
    return ranks


def _distributions(proba: ArrayLike) -> _Floats:
    array = _array("proba", proba, ndim=2).astype(np.float64)
    if array.shape[1] < 2:
        got = array.shape[1]
        raise UserError(f"proba must be 2 or more columns wide, got {got}: one column per class")
    least, why = array.min(axis=1), "pass probabilities, not logits"
    _check_each(least >= 0, least, "proba must be non-negative", why, "row")
    total = array.sum(axis=1)
    close = np.abs(total - 1) <= 1e-3  # half precision passes, percentages do not
    _check_each(close, total, "proba must be rows that sum to one", why, "row")
    return array


def _weights(sample_weight: Weights, n: int) -> _Floats:
    if sample_weight is None:
        return np.ones(n)
    weight = _array("sample_weight", sample_weight, ndim=1).astype(np.float64)
    _check_length("sample_weight", weight, n)
    claim = "sample_weight must be finite and non-negative"
    countable = (weight >= 0) & np.isfinite(weight)
    _check_each(countable, weight, claim, "a weight says how often its sample counts")
    if not weight.any():
        raise UserError("sample_weight must be positive somewhere, got a sum of 0: nothing counts")
    # only ratios matter; near one, neither sums nor products of weights leave the range of floats
    return np.asarray(weight / weight.max())


def _array(name: str, values: ArrayLike, ndim: int) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:  # ragged lists, tensors that need grad
        kind = type(values).__name__
        raise UserError(f"{name} must be readable by numpy, got {kind}: {error}") from error
    if array.ndim != ndim:
        why = "a value per sample" if ndim == 1 else "a row per sample, a column per class"
        raise UserError(f"{name} must be {ndim}-D, got shape {array.shape}: it holds {why}")
    if len(array) == 0:
        raise UserError(f"{name} must be non-empty, got 0 samples: nothing can be averaged")
    if array.dtype.kind not in "biuf":
        why = "convert strings and objects first"
        raise UserError(f"{name} must be real numbers, got dtype {array.dtype}: {why}")
    return array


def _check_each(
    good: NDArray[np.bool_], values: NDArray[Any], claim: str, why: str, place: str = "position"
) -> None:
    if not good.all():
        i = int(np.argmin(good))  # the first that is not
        raise UserError(f"{claim}, got {values[i]} at {place} {i}: {why}")


def _check_length(name: str, array: NDArray[Any], n: int) -> None:
    if len(array) != n:
        why = "every sample needs one entry"
        raise UserError(f"{name} must be of length {n}, got {len(array)}: {why}")


def _check_tolerance(tolerance: float) -> None:
    if not tolerance >= 0:  # written so that NaN fails too
        raise UserError(f"tolerance must be at least 0, got {tolerance}: it is a distance")
