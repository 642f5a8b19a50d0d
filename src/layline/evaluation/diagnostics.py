"""Statistics of predictions: rates, the value of referring unsure samples, intervals, comparisons.

Pure functions on ranks, predictions and probabilities, as in :mod:`layline.metrics`. Their results
can be written as JSON: plain numbers, and None where something is undefined.

Rates have Wilson intervals, which treat samples as independent. Metrics have bootstrap intervals.
The unit of resampling is a sample, or a group of samples that belong together, such as the images
of a patient. Every unit has a row of sums; a resampling is a weighted sum of rows, from which all
metrics follow. So thousands of resamplings are a few matrix products.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.special import ndtri

from layline.metrics import Floats, Ranks, calibration_gaps, sample_log_losses, sample_scores

Groups = Sequence[Hashable] | None
Interval = list[float] | None
Model = tuple[Ranks, Floats]  # predicted ranks and probabilities

COMPARED = ("accuracy", "mae", "macro_mae", "qwk", "rps", "nll")
_MAX_POINTS = 100  # of a curve
_MAX_CURVES = 50  # with more thresholds, only their numbers are given
_BINS = 15
_AT_ONCE = 4_000_000  # weights of resampled units in memory


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
    from sklearn.metrics import auc, roc_curve

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


def bootstrap_intervals(
    ranks: Ranks,
    predicted: Ranks,
    proba: Floats,
    *,
    groups: Groups = None,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute the percentile bootstrap interval of each metric.

    It is None where the metric is undefined or there is only one unit. Resampling increases the
    expected calibration error, because random gaps add up; its interval is shifted back by the mean
    increase.
    """
    (table,), cells = _sum_by_unit(ranks, [(predicted, proba)], groups)
    weights = _bootstrap_weights(np.random.default_rng(seed), table.shape[0], draws)
    values = _measure([[table.sum(axis=0)[None]]], *cells)
    drawn = _measure(([each @ table] for each in weights), *cells)
    intervals: dict[str, Interval] = {}
    for name, ((value,),) in values.items():
        (resampled,) = drawn[name]
        interval = _percentiles(resampled, level) if np.isfinite(value) else None
        if interval is not None and name == "ece":
            gain = resampled.mean() - value
            interval = [max(end - gain, 0.0) for end in interval]
        intervals[name] = interval
    del intervals["nll"]  # only compared between models
    over = "samples" if groups is None else "groups"
    return {"level": level, "over": over, "draws": draws, **intervals}


def paired_differences(
    ranks: Ranks,
    first: Model,
    second: Model,
    *,
    groups: Groups = None,
    level: float = 0.95,
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
    (one, other), cells = _sum_by_unit(ranks, [first, second], groups)
    rng, count = np.random.default_rng(seed), one.shape[0]

    def exchange() -> Iterator[list[Floats]]:
        for size in _batch_sizes(count, draws):
            swap = rng.integers(2, size=(size, count)).astype(np.float64)
            stay = 1 - swap
            yield [stay @ one + swap @ other, swap @ one + stay @ other]

    weights = _bootstrap_weights(rng, count, draws)
    resampled = _measure(([each @ one, each @ other] for each in weights), *cells)
    exchanged = _measure(exchange(), *cells)
    observed = _measure([[table.sum(axis=0)[None] for table in (one, other)]], *cells)
    rows = {}
    for name in COMPARED:
        before, after = (float(each) if np.isfinite(each) else None for (each,) in observed[name])
        row: dict[str, Any] = dict.fromkeys(("difference", "interval", "p"))
        if before is not None and after is not None:
            swapped = np.abs(np.diff(exchanged[name], axis=0))
            swapped = swapped[np.isfinite(swapped)]
            hits = int((swapped >= abs(after - before) - 1e-12).sum())  # rounding of sums
            row["difference"] = after - before
            row["interval"] = _percentiles(np.diff(resampled[name], axis=0), level)
            row["p"] = (hits + 1) / (len(swapped) + 1)
        rows[name] = {"first": before, "second": after, **row}
    over = "samples" if groups is None else "groups"
    return {"level": level, "over": over, "units": count, "draws": draws, "metrics": rows}


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
    width, tables = len(cells) + _BINS + 2, []
    for (_, proba), cell in zip(models, cell_of, strict=True):
        bins, gaps = calibration_gaps(ranks, proba, _BINS)
        columns = [np.searchsorted(cells, cell), len(cells) + bins]
        columns += [np.full(n, width - 2), np.full(n, width - 1)]
        values = [np.ones(n), gaps, sample_log_losses(ranks, proba), sample_scores(ranks, proba)]
        places = np.tile(unit, 4), np.concatenate(columns)
        tables.append(csr_array((np.concatenate(values), places), shape=(len(numbers), width)))
    return tables, np.divmod(cells, num_classes)


def _measure(sums: Iterable[Sequence[Floats]], true: Ranks, predicted: Ranks) -> dict[str, Floats]:
    """Compute each metric of some models, (models, draws), from batches of their sums."""
    batches = [[_metrics(each, true, predicted) for each in batch] for batch in sums]
    return {
        name: np.hstack([[model[name] for model in batch] for batch in batches])
        for name in batches[0][0]
    }


def _metrics(sums: Floats, true: Ranks, predicted: Ranks) -> dict[str, Floats]:
    """Compute the metrics of many resamplings at once, from the sums of :func:`_sum_by_unit`."""
    counts, gaps = sums[:, : len(true)], sums[:, len(true) : -2]
    total, error = counts.sum(axis=1), np.abs(predicted - true)
    members = true[:, None] == np.unique(true)  # (cells, classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_class = (counts @ (members * error[:, None])) / (counts @ members)
        means = [counts @ ranks / total for ranks in (true, predicted)]
        squares = [counts @ ranks**2 / total for ranks in (true, predicted)]
        by_chance = sum(squares) - 2 * means[0] * means[1]
        return {
            "accuracy": counts @ (error == 0) / total,
            "mae": counts @ error / total,
            "macro_mae": np.nanmean(by_class, axis=1),
            "within_one": counts @ (error <= 1) / total,
            "qwk": 1 - (counts @ error**2 / total) / np.where(by_chance > 1e-12, by_chance, np.nan),
            "nll": sums[:, -2] / total,
            "rps": sums[:, -1] / total,
            "ece": np.abs(gaps).sum(axis=1) / total,
        }


def _bootstrap_weights(rng: np.random.Generator, count: int, draws: int) -> Iterator[Floats]:
    """Count how often each unit is drawn with replacement; a single unit is not resampled."""
    for size in _batch_sizes(count, draws if count > 1 else 0):
        drawn = [np.bincount(rng.integers(count, size=count), minlength=count) for _ in range(size)]
        yield np.array(drawn, dtype=np.float64).reshape(size, count)


def _batch_sizes(count: int, draws: int) -> list[int]:
    """Divide draws of ``count`` units into batches that fit into memory."""
    size = max(1, _AT_ONCE // count)
    return [min(size, draws - start) for start in range(0, max(draws, 1), size)]


def _percentiles(drawn: Floats, level: float) -> Interval:
    """Compute the central interval of the finite values."""
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return None
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]
