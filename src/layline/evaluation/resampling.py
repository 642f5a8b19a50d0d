"""Bootstrap intervals of metrics, and the paired comparison of two models.

The unit of resampling is a sample, or a group of samples that belong together, such as the images
of a patient. Every unit has a row of sums; a resampling is a weighted sum of rows, and all metrics
follow from it. So thousands of resamplings are a few matrix products.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from layline.metrics import (
    Floats,
    Ranks,
    calibration_gaps,
    check_predictions,
    sample_log_losses,
    sample_scores,
)
from layline.utils.errors import UserError

Groups = Sequence[Hashable] | None
Interval = list[float] | None

COMPARED = ("accuracy", "mae", "macro_mae", "qwk", "rps", "nll")
_BINS = 15
_AT_ONCE = 4_000_000  # weights of resampled units in memory


def bootstrap_intervals(
    ranks: ArrayLike,
    predicted: ArrayLike,
    proba: ArrayLike,
    *,
    groups: Groups = None,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute the percentile bootstrap interval of each metric.

    Resampling increases the expected calibration error, because random gaps add up; its interval
    is shifted back by the mean increase.

    Args:
        ranks: The true ranks.
        predicted: The predicted ranks.
        proba: The probabilities, (n, K).
        groups: The group of each sample; None if samples are independent.
        level: The confidence level.
        draws: The number of resamplings.
        seed: Random seed.

    Returns:
        ``level``, ``over`` (the unit), ``draws``, and an interval for each metric; None where the
        metric is undefined or there is only one unit.
    """
    _check_settings(level, draws)
    ranks, predicted, proba = check_predictions(ranks, predicted, proba)
    unit, cells = _units(groups, len(ranks)), _cells(ranks, predicted, proba)
    table = _sum_by_unit(ranks, predicted, proba, unit, cells)
    values = _metrics(table.sum(axis=0)[None], cells, proba.shape[1])
    rng = np.random.default_rng(seed)
    drawn = [
        _metrics(weights @ table, cells, proba.shape[1])
        for weights in _bootstrap_weights(rng, table.shape[0], draws)
    ]
    intervals: dict[str, Interval] = {}
    for name, (value,) in values.items():
        resampled = np.concatenate([np.zeros(0), *(each[name] for each in drawn)])
        interval = _percentiles(resampled, level) if np.isfinite(value) else None
        if interval is not None and name == "ece":
            gain = resampled.mean() - value
            interval = [max(end - gain, 0.0) for end in interval]
        intervals[name] = interval
    del intervals["nll"]
    over = "samples" if groups is None else "groups"
    return {"level": level, "over": over, "draws": draws, **intervals}


def paired_differences(
    ranks: ArrayLike,
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
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

    Args:
        ranks: The true ranks.
        first: Predicted ranks and probabilities of the first model.
        second: Those of the second model.
        groups: See :func:`bootstrap_intervals`, like ``level`` and ``seed``.
        level: The confidence level.
        draws: The number of resamplings, and of random exchanges.
        seed: Random seed.

    Returns:
        For each metric of ``COMPARED`` the values ``first``, ``second``, ``difference`` (second
        minus first), ``interval`` and ``p``; None where undefined.
    """
    _check_settings(level, draws)
    both = [check_predictions(ranks, *each) for each in (first, second)]
    truth, num_classes = both[0][0], both[0][2].shape[1]
    if both[1][2].shape[1] != num_classes:
        raise UserError(f"The models have {num_classes} and {both[1][2].shape[1]} classes.")
    unit = _units(groups, len(truth))
    cells = np.unique(np.concatenate([_cells(*each) for each in both]))
    one, other = (_sum_by_unit(*each, unit, cells) for each in both)
    count = one.shape[0]

    def differences(before: Floats, after: Floats) -> dict[str, Floats]:
        old, new = (_metrics(sums, cells, num_classes) for sums in (before, after))
        return {name: new[name] - old[name] for name in COMPARED}

    rng = np.random.default_rng(seed)
    resampled = [
        differences(weights @ one, weights @ other)
        for weights in _bootstrap_weights(rng, count, draws)
    ]
    exchanged = []
    for size in _batch_sizes(count, draws):
        swap = rng.integers(2, size=(size, count)).astype(np.float64)
        stay = 1 - swap
        exchanged.append(differences(stay @ one + swap @ other, swap @ one + stay @ other))
    before, after = (
        _metrics(table.sum(axis=0)[None], cells, num_classes) for table in (one, other)
    )
    found = {}
    for name in COMPARED:
        values = float(before[name][0]), float(after[name][0])
        difference = values[1] - values[0]
        row: dict[str, Any] = {"first": values[0], "second": values[1], "difference": difference}
        row = {key: value if np.isfinite(value) else None for key, value in row.items()}
        row |= {"interval": None, "p": None}
        if row["difference"] is not None:
            drawn = np.concatenate([np.zeros(0), *(each[name] for each in resampled)])
            row["interval"] = _percentiles(drawn, level)
            swapped = np.concatenate([each[name] for each in exchanged])
            swapped = np.abs(swapped[np.isfinite(swapped)])
            hits = int((swapped >= abs(difference) - 1e-12).sum())  # rounding of sums
            row["p"] = (hits + 1) / (len(swapped) + 1)
        found[name] = row
    over = "samples" if groups is None else "groups"
    about = {"level": level, "over": over, "units": count, "draws": draws}
    return {**about, "metrics": found}


def _check_settings(level: float, draws: int) -> None:
    if not 0 < level < 1:
        raise UserError(f"level must be between 0 and 1, got {level}.")
    if draws < 1:
        raise UserError(f"draws must be at least 1, got {draws}.")


def _units(groups: Groups, count: int) -> Ranks:
    """Number the units; one per sample if there are no groups."""
    if groups is None:
        return np.arange(count)
    if len(groups) != count:
        raise UserError(f"groups must have {count} values, one per sample, got {len(groups)}.")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups])


def _cells(ranks: Ranks, predicted: Ranks, proba: Floats) -> Ranks:
    """Number the cells of the confusion matrix that are not empty."""
    return np.unique(ranks * proba.shape[1] + predicted)


def _sum_by_unit(
    ranks: Ranks, predicted: Ranks, proba: Floats, unit: Ranks, cells: Ranks
) -> csr_array:
    """Sum over the samples of each unit what the metrics follow from.

    The columns are the samples in each cell of the confusion matrix, the gaps between accuracy
    and confidence in each bin, the log loss and the ranked probability score.
    """
    n, width = len(ranks), len(cells) + _BINS + 2
    bins, gaps = calibration_gaps(ranks, proba, _BINS)
    cell = np.searchsorted(cells, ranks * proba.shape[1] + predicted)
    columns = [cell, len(cells) + bins, np.full(n, width - 2), np.full(n, width - 1)]
    values = [np.ones(n), gaps, sample_log_losses(ranks, proba), sample_scores(ranks, proba)]
    places = np.tile(unit, 4), np.concatenate(columns)
    return csr_array((np.concatenate(values), places), shape=(int(unit.max()) + 1, width))


def _metrics(sums: Floats, cells: Ranks, num_classes: int) -> dict[str, Floats]:
    """Compute the metrics of many resamplings at once, from the sums of :func:`_sum_by_unit`."""
    true, predicted = np.divmod(cells, num_classes)
    counts, gaps = sums[:, : len(cells)], sums[:, len(cells) : -2]
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
        yield np.stack(drawn).astype(np.float64)


def _batch_sizes(count: int, draws: int) -> list[int]:
    """Divide draws of ``count`` units into batches that fit into memory."""
    size = max(1, _AT_ONCE // count)
    return [min(size, draws - start) for start in range(0, draws, size)]


def _percentiles(drawn: Floats, level: float) -> Interval:
    """Compute the central interval of the finite values."""
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return None
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]
