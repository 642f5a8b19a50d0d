"""Rates per class and threshold with Wilson intervals, and the value of referring unsure samples.

Pure functions on ranks, predictions and probabilities, as in :mod:`layline.metrics`. Their results
can be written as JSON: plain numbers, and None where something is undefined. Wilson intervals
treat samples as independent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import ndtri

from layline.evaluation.resampling import Interval
from layline.metrics import Floats, Ranks, check_predictions

REVIEW_SHARE = 0.2  # the share of samples that are marked for review by default
_MAX_POINTS = 100  # of a curve
_MAX_CURVES = 50  # with more thresholds, only their numbers are given


def wilson_interval(hits: int, total: int, level: float = 0.95) -> Interval:
    r"""Compute Wilson's interval of a proportion; None if ``total`` is 0.

    .. math:: \frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    Example:
        >>> [round(end, 3) for end in wilson_interval(8, 10)]
        [0.49, 0.943]
    """
    if total == 0:
        return None
    z = float(ndtri((1 + level) / 2))
    share, spread = hits / total, z * z / total
    reach = z * np.sqrt((share * (1 - share) + spread / 4) / total)
    low, high = ((share + spread / 2 + end) / (1 + spread) for end in (-reach, reach))
    # rounding must not exclude the proportion itself
    return [float(min(max(low, 0.0), share)), float(max(min(high, 1.0), share))]


def _rate(name: str, hits: int, total: int) -> dict[str, Any]:
    share = hits / total if total else None
    return {name: share, f"{name}_interval": wilson_interval(hits, total)}


def class_rates(confusion: ArrayLike, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Compute recall and precision of each class, with 95 % intervals.

    Args:
        confusion: Counts, true classes in rows.
        classes: Names of the classes, lowest first.
    """
    table = np.asarray(confusion)
    rows = []
    for rank, name in enumerate(classes):
        hits, samples = int(table[rank, rank]), int(table[rank].sum())
        predicted = int(table[:, rank].sum())
        row: dict[str, Any] = {"class": name, "samples": samples, "predicted": predicted}
        rows.append(row | _rate("recall", hits, samples) | _rate("precision", hits, predicted))
    return rows


def threshold_rates(
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """Measure how well "at least this class" is predicted, for each class but the lowest.

    Sensitivity, specificity and predictive values use the predicted rank; the ROC curve and its
    area use the probability of that class or a higher one.

    Args:
        ranks: The true ranks.
        predicted: The predicted ranks.
        proba: The probabilities, (n, K).
        classes: Names of the classes, lowest first.
    """
    from sklearn.metrics import auc, roc_curve

    ranks, predicted, proba = check_predictions(ranks, predicted, proba)
    # summed from the top, so that small probabilities keep their digits
    at_least = proba[:, ::-1].cumsum(axis=1)[:, ::-1]
    rows = []
    for k in range(1, proba.shape[1]):
        positive, predicted_positive = ranks >= k, predicted >= k
        true_positives = int((positive & predicted_positive).sum())
        true_negatives = int((~positive & ~predicted_positive).sum())
        positives, predicted_positives = int(positive.sum()), int(predicted_positive.sum())
        row: dict[str, Any] = {"from": classes[k], "positives": positives}
        row |= _rate("sensitivity", true_positives, positives)
        row |= _rate("specificity", true_negatives, len(ranks) - positives)
        row |= _rate("ppv", true_positives, predicted_positives)
        row |= _rate("npv", true_negatives, len(ranks) - predicted_positives)
        row |= {"auc": None, "curve": None}
        if 0 < positives < len(ranks):
            fpr, tpr, _ = roc_curve(positive, at_least[:, k])
            row["auc"] = float(auc(fpr, tpr))
            if proba.shape[1] - 1 <= _MAX_CURVES:
                row["curve"] = _thin_curve(fpr, tpr)
        rows.append(row)
    return rows


def _thin_curve(fpr: Floats, tpr: Floats) -> dict[str, list[float]]:
    """Keep points at even distances along a curve, with both ends."""
    along = fpr + tpr
    kept = np.arange(len(along))
    if len(along) > _MAX_POINTS:
        kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], _MAX_POINTS)))
    return {"fpr": np.round(fpr[kept], 5).tolist(), "tpr": np.round(tpr[kept], 5).tolist()}


def certainty(proba: ArrayLike, predicted: ArrayLike) -> Float[np.ndarray, " n"]:
    """Return the probability of each predicted rank.

    Example:
        >>> certainty([[0.5, 0.25, 0.25]], [0]).tolist()
        [0.5]
    """
    shares, chosen = np.asarray(proba, dtype=np.float64), np.asarray(predicted)
    return np.asarray(shares[np.arange(len(chosen)), chosen])


def certainty_columns(
    proba: Floats,
    predicted: Ranks,
    classes: Sequence[str],
    ranges: tuple[Ranks, Ranks] | None,
    review: float = REVIEW_SHARE,
) -> dict[str, list[Any]]:
    """Make the columns ``low``, ``high``, ``confidence`` and ``review`` of a prediction file.

    Args:
        proba: Calibrated probabilities.
        predicted: The predicted ranks.
        classes: Names of the classes.
        ranges: Lowest and highest rank of each conformal range, if there are ranges.
        review: Share of the samples to mark for review, the least certain ones.
    """
    sure = certainty(proba, predicted)
    marked = np.zeros(len(sure), dtype=bool)
    marked[np.argsort(sure, kind="stable")[: round(review * len(sure))]] = True
    ends = {} if ranges is None else dict(zip(("low", "high"), ranges, strict=True))
    return {
        **{name: [classes[rank] for rank in ranks.tolist()] for name, ranks in ends.items()},
        "confidence": sure.tolist(),
        "review": marked.tolist(),
    }


def referral(
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike, points: int = _MAX_POINTS
) -> dict[str, Any]:
    """Compute the risk-coverage curve: errors on the samples that the model is most certain of.

    ``aurc`` is the area under it, the mean error rate over the coverages 1/n, 2/n, …, 1;
    ``aurc_mae`` is the same for the absolute error. Equally certain samples count as their mean.

    Args:
        ranks: The true ranks.
        predicted: The predicted ranks.
        proba: The probabilities, (n, K).
        points: The maximum number of points of the curve.
    """
    ranks, predicted, proba = check_predictions(ranks, predicted, proba)
    _, level = np.unique(np.round(certainty(proba, predicted), 12), return_inverse=True)
    order, size, count = np.argsort(-level, kind="stable"), np.bincount(level), len(ranks)
    distance = np.abs(predicted - ranks)
    risks = {}
    for name, loss in (("error", distance > 0), ("mae", distance)):
        mean = np.bincount(level, weights=loss) / size
        risks[name] = mean[level[order]].cumsum() / np.arange(1, count + 1)
        risks[name][-1] = loss.mean()  # without the rounding of a long sum
    kept = np.unique(np.linspace(1, count, min(points, count)).round().astype(int))
    eighty = -(-8 * count // 10)
    return {
        "by": "confidence",
        "curve": {
            "coverage": np.round(kept / count, 6).tolist(),
            **{name: np.round(risk[kept - 1], 6).tolist() for name, risk in risks.items()},
        },
        "aurc": float(risks["error"].mean()),
        "aurc_mae": float(risks["mae"].mean()),
        **{name: float(risk[-1]) for name, risk in risks.items()},
        **{f"{name}_at_80": float(risk[eighty - 1]) for name, risk in risks.items()},
    }
