"""Statistics of predictions: rates, the value of referring unsure samples, intervals, comparisons.

Pure functions on ranks, predictions and probabilities, as in :mod:`layline.metrics`. Their results
can be written as JSON: plain numbers, and None where something is undefined.

Rates have Wilson intervals, which treat samples as independent. Metrics have bootstrap intervals.
The unit of resampling is a sample, or a group of samples that belong together, such as the images
of a patient. Every unit has a row of sums. A resampling is a weighted sum of rows, from which all
metrics follow.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, hstack

from layline.metrics import BINS, METRICS, Floats, Ranks, calibration_gaps, sample_nll, sample_rps
from layline.model.calibration import Calibration

Groups = Sequence[Hashable] | None
Interval = list[float] | None
Model = tuple[Ranks, Floats]  # predicted ranks and probabilities

_OF_RANKS = ("accuracy", "mae", "macro_mae", "within_one", "qwk")  # that have intervals
LEVEL = 0.95  # of all intervals
COMPARED = ("accuracy", "mae", "macro_mae", "qwk", "rps", "nll")
_MAX_POINTS = 100  # of a curve
_MAX_CURVES = 50  # with more thresholds, only their numbers are given


def _rate(name: str, hits: int, total: int) -> dict[str, Any]:
    """Compute a proportion with its Wilson interval; both are None if ``total`` is 0."""
    from scipy.stats import binomtest  # slow to import

    if total == 0:
        return {name: None, f"{name}_interval": None}
    low, high = binomtest(hits, total).proportion_ci(LEVEL, method="wilson")
    return {name: hits / total, f"{name}_interval": [float(low), float(high)]}


def class_rates(confusion: ArrayLike, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Compute recall and precision of each class, with 95 % intervals; rows are true classes."""
    table = np.asarray(confusion)
    counts = zip(classes, table.diagonal(), table.sum(axis=1), table.sum(axis=0), strict=True)
    return [
        {"class": name, "samples": int(samples), "predicted": int(predicted)}
        | _rate("recall", int(hits), int(samples))
        | _rate("precision", int(hits), int(predicted))
        for name, hits, samples, predicted in counts
    ]


def threshold_rates(
    ranks: Ranks, predicted: Ranks, proba: Floats, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """Measure how well "at least this class" is predicted, for each class but the lowest.

    Sensitivity, specificity and predictive values use the predicted rank; the ROC curve and its
    area use the probability of that class or a higher one.
    """
    from sklearn.metrics import auc, confusion_matrix, roc_curve

    # summed from the top, so that small probabilities keep their digits
    at_least = proba[:, ::-1].cumsum(axis=1)[:, ::-1]
    rows = []
    for k in range(1, proba.shape[1]):
        counts = confusion_matrix(ranks >= k, predicted >= k, labels=[False, True])
        tn, fp, fn, tp = counts.ravel().tolist()
        row: dict[str, Any] = {"from": classes[k], "positives": tp + fn}
        row |= _rate("sensitivity", tp, tp + fn) | _rate("specificity", tn, tn + fp)
        row |= _rate("ppv", tp, tp + fp) | _rate("npv", tn, tn + fn)
        row |= {"auc": None, "curve": None}
        if 0 < tp + fn < len(ranks):
            fpr, tpr, _ = roc_curve(ranks >= k, at_least[:, k])
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


def certainty(proba: Floats, predicted: Ranks) -> Floats:
    """Return the probability of each predicted rank."""
    return np.asarray(proba[np.arange(len(predicted)), predicted])


def referral(
    ranks: Ranks, predicted: Ranks, proba: Floats, points: int = _MAX_POINTS
) -> dict[str, Any]:
    """Compute the risk-coverage curve: errors on the samples that the model is most certain of.

    ``aurc`` is the area under it, the mean error rate over the coverages 1/n, 2/n, …, 1;
    ``aurc_mae`` is the same for the absolute error. Equally certain samples count as their mean.
    The curve has at most ``points`` points.
    """
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


def measure_ranges(
    calibration: Calibration, ranks: Ranks, predicted: Ranks, proba: Floats
) -> list[dict[str, Any]]:
    """Measure conformal ranges at the usual coverages, if the calibration samples suffice.

    Each entry has the measured coverage and its expected interval, the mean number of classes in a
    range, and the mean distance of the missed ranks from their range.
    """
    rows, count, n = [], len(calibration.scores), len(ranks)
    for coverage in calibration.usual_coverages:
        low, high = calibration.ranges(proba, predicted, coverage)
        outside = np.maximum(low - ranks, ranks - high).clip(min=0)
        missed = outside > 0
        rows.append(
            {
                "coverage": coverage,
                "measured": float(1 - missed.mean()),
                "expected": expected_coverage(coverage, count, n),
                "width": float((high - low + 1).mean()),
                "missed_by": float(outside[missed].mean()) if missed.any() else None,
                "calibrated_on": count,
                "samples": n,
            }
        )
    return rows


def expected_coverage(coverage: float, calibrated: int, tested: int) -> list[float]:
    """Compute the 1 % and 99 % quantiles of the coverage measured on a test split.

    Over the draw of both splits the number of covered samples has a beta-binomial distribution.
    """
    from scipy.stats import betabinom

    missed = max(math.floor((calibrated + 1) * (1 - coverage) + 1e-9), 1)
    covered = betabinom(tested, calibrated + 1 - missed, missed).ppf([0.01, 0.99])
    return [float(count) / tested for count in covered]


def bootstrap_intervals(
    ranks: Ranks, predicted: Ranks, proba: Floats, groups: Groups = None, draws: int = 1000
) -> dict[str, Any]:
    """Compute the percentile bootstrap interval of each metric.

    It is None where the metric is undefined or there is only one unit. Resampling increases the
    expected calibration error, because random gaps add up; its interval is shifted back by the mean
    increase.
    """
    (table,), cells = _sum_by_unit(ranks, [(predicted, proba)], groups)
    observed = _measure(table.sum(axis=0)[None], cells)
    drawn = _measure(_bootstrap(np.random.default_rng(0), table, draws), cells)
    intervals: dict[str, Interval] = {}
    for name, ((value,),) in observed.items():
        interval = _percentiles(drawn[name]) if np.isfinite(value) else None
        if interval is not None and name == "ece":
            gain = float(drawn[name].mean() - value)
            interval = [max(end - gain, 0.0) for end in interval]
        intervals[name] = interval
    del intervals["nll"]  # only compared between models
    over = "samples" if groups is None else "groups"
    return {"level": LEVEL, "over": over, "draws": draws, **intervals}


def paired_differences(
    ranks: Ranks,
    first: Model,
    second: Model,
    groups: Groups = None,
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    r"""Compare two models on the same samples.

    The interval of a difference is a percentile bootstrap in which both models are measured on the
    same resampling. The p value is that of a permutation test: if the models are equally good,
    their predictions for a unit can be exchanged, so

    .. math:: p = \Pr\big(|d^*| \ge |d|\big)

    over random exchanges, the one that was observed among them.

    For each metric of ``COMPARED`` there are ``first``, ``second``, ``difference`` (second minus
    first), ``interval`` and ``p``; None where undefined. ``draws`` is also the number of random
    exchanges.
    """
    tables, cells = _sum_by_unit(ranks, [first, second], groups)
    both, exchanged = hstack(tables, format="csr"), hstack(tables[::-1], format="csr")
    rng, count = np.random.default_rng(seed), both.shape[0]
    observed = _measure(both.sum(axis=0)[None], cells, models=2)
    resampled = _measure(_bootstrap(rng, both, draws), cells, models=2)
    swaps = (rng.integers(2, size=count) for _ in range(draws))
    sums = np.array([swap @ exchanged + (1 - swap) @ both for swap in swaps])
    swapped = _measure(sums, cells, models=2)
    rows = {}
    for name in COMPARED:
        before, after = (each if np.isfinite(each) else None for each in observed[name][0].tolist())
        row: dict[str, Any] = dict.fromkeys(("difference", "interval", "p"))
        if before is not None and after is not None:
            by_chance = np.abs(np.diff(swapped[name]))
            by_chance = by_chance[np.isfinite(by_chance)]
            hits = int((by_chance >= abs(after - before) - 1e-12).sum())  # rounding of sums
            row["difference"] = after - before
            row["interval"] = _percentiles(np.diff(resampled[name]))
            row["p"] = (hits + 1) / (len(by_chance) + 1)
        rows[name] = {"first": before, "second": after, **row}
    over = "samples" if groups is None else "groups"
    return {"level": LEVEL, "over": over, "units": count, "draws": draws, "metrics": rows}


def _sum_by_unit(
    ranks: Ranks, models: Sequence[Model], groups: Groups
) -> tuple[list[csr_array], tuple[Ranks, Ranks]]:
    """Sum over the samples of each unit what the metrics of each model follow from.

    The columns are the samples in each cell of the confusion matrix, the gaps between accuracy
    and confidence in each bin, the log loss and the ranked probability score. Also return the true
    and the predicted rank of each cell.
    """
    n, num_classes = models[0][1].shape
    numbers: dict[Hashable, int] = {}
    names = range(n) if groups is None else groups
    unit = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    cell_of = [ranks * num_classes + predicted for predicted, _ in models]
    cells = np.unique(np.concatenate(cell_of))
    width, tables = len(cells) + BINS + 2, []
    for (_, proba), cell in zip(models, cell_of, strict=True):
        bins, gaps = calibration_gaps(ranks, proba)
        columns = [np.searchsorted(cells, cell), len(cells) + bins]
        columns += [np.full(n, width - 2), np.full(n, width - 1)]
        values = [np.ones(n), gaps, sample_nll(ranks, proba), sample_rps(ranks, proba)]
        places = np.tile(unit, 4), np.concatenate(columns)
        tables.append(csr_array((np.concatenate(values), places), shape=(len(numbers), width)))
    return tables, np.divmod(cells, num_classes)


def _measure(sums: Floats, cells: tuple[Ranks, Ranks], models: int = 1) -> dict[str, Floats]:
    """Compute metrics, (draws, models), from sums of the rows of :func:`_sum_by_unit`."""
    rows = sums.reshape(-1, sums.shape[1] // models)
    counts, gaps, log_losses, scores = np.split(rows, [len(cells[0]), -2, -1], axis=1)
    values = {
        name: np.array([METRICS[name].function(*cells, sample_weight=row) for row in counts])
        for name in _OF_RANKS
    }
    totals = {"nll": log_losses, "rps": scores, "ece": np.abs(gaps)}
    values |= {name: each.sum(axis=1) / counts.sum(axis=1) for name, each in totals.items()}
    return {name: value.reshape(-1, models) for name, value in values.items()}


def _bootstrap(rng: np.random.Generator, table: csr_array, draws: int) -> Floats:
    """Sum the rows of units drawn with replacement, often; a single unit is not resampled."""
    count, width = table.shape
    sums = [
        np.bincount(rng.integers(count, size=count), minlength=count) @ table
        for _ in range(draws if count > 1 else 0)
    ]
    return np.reshape(sums, (-1, width))


def _percentiles(drawn: Floats) -> Interval:
    """Compute the central interval of the finite values."""
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return None
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return [float(low), float(high)]
