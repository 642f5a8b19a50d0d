"""What happens to each class, and at each threshold: rates with Wilson's intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from layline.evaluation.inputs import Floats, Interval, check_level, checked_predictions

MOST_POINTS = 100  # of a curve
MOST_CURVES = 50  # thresholds; beyond it their numbers are given, and no curves


def wilson_interval(hits: int, total: int, level: float = 0.95) -> Interval:
    r"""Give Wilson's interval of a share; None of nothing.

    .. math:: \frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    Args:
        hits: How many of them.
        total: How many there are, n.
        level: How often the interval holds the true share; z is its normal quantile.

    Example:
        >>> [round(end, 3) for end in wilson_interval(8, 10)]
        [0.49, 0.943]
    """
    check_level(level)
    if total == 0:
        return None
    z = float(ndtri((1 + level) / 2))
    share, spread = hits / total, z * z / total
    middle = share + spread / 2
    reach = z * np.sqrt((share * (1 - share) + spread / 4) / total)
    low, high = (middle - reach) / (1 + spread), (middle + reach) / (1 + spread)
    # rounding must not leave the share itself outside
    return [float(min(max(low, 0.0), share)), float(max(min(high, 1.0), share))]


def class_rates(
    confusion: ArrayLike, classes: Sequence[str], level: float = 0.95
) -> list[dict[str, Any]]:
    """Give recall and precision of each class, with Wilson intervals.

    Args:
        confusion: Counts, true classes in rows.
        classes: Names of the classes, lowest first.
        level: Of the intervals.
    """
    table = np.asarray(confusion)
    rows = []
    for rank, name in enumerate(classes):
        hits, samples = int(table[rank, rank]), int(table[rank].sum())
        predicted = int(table[:, rank].sum())
        row: dict[str, Any] = {"class": name, "samples": samples, "predicted": predicted}
        row |= _rate("recall", hits, samples, level) | _rate("precision", hits, predicted, level)
        rows.append(row)
    return rows


def _rate(name: str, hits: int, total: int, level: float) -> dict[str, Any]:
    share = hits / total if total else None
    return {name: share, f"{name}_interval": wilson_interval(hits, total, level)}


def threshold_rates(
    ranks: ArrayLike,
    predicted: ArrayLike,
    proba: ArrayLike,
    classes: Sequence[str],
    level: float = 0.95,
) -> list[dict[str, Any]]:
    """Tell of each class but the lowest how well "at least this" is decided.

    A sample counts as positive if its class is that one or a higher one, and is decided on by the
    predicted class. The curve and its area come from the probability of being so high; a curve has
    100 points at most, and there are none where there are more than 50 thresholds.

    Args:
        ranks: The true classes.
        predicted: What the samples are taken for.
        proba: The probabilities of the classes.
        classes: Names of the classes, lowest first.
        level: Of the Wilson intervals.
    """
    from sklearn.metrics import auc, roc_curve

    ranks, predicted, proba = checked_predictions(ranks, predicted, proba)
    # summed from the top, so that small probabilities keep their digits
    at_least = proba[:, ::-1].cumsum(axis=1)[:, ::-1]
    found = []
    for k in range(1, proba.shape[1]):
        is_so, is_said = ranks >= k, predicted >= k
        both, neither = int((is_so & is_said).sum()), int((~is_so & ~is_said).sum())
        positives, said = int(is_so.sum()), int(is_said.sum())
        row: dict[str, Any] = {"from": classes[k], "positives": positives}
        row |= _rate("sensitivity", both, positives, level)
        row |= _rate("specificity", neither, len(ranks) - positives, level)
        row |= _rate("ppv", both, said, level)
        row |= _rate("npv", neither, len(ranks) - said, level)
        row |= {"auc": None, "curve": None}
        if 0 < positives < len(ranks):
            fpr, tpr, _ = roc_curve(is_so, at_least[:, k])
            row["auc"] = float(auc(fpr, tpr))
            if proba.shape[1] - 1 <= MOST_CURVES:
                row["curve"] = _thinned(fpr, tpr)
        found.append(row)
    return found


def _thinned(fpr: Floats, tpr: Floats) -> dict[str, list[float]]:
    """Keep points of a curve that are evenly far along it, both ends among them."""
    along = fpr + tpr
    kept = np.arange(len(along))
    if len(along) > MOST_POINTS:
        kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], MOST_POINTS)))
    return {"fpr": np.round(fpr[kept], 5).tolist(), "tpr": np.round(tpr[kept], 5).tolist()}
