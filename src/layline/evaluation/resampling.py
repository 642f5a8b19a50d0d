"""How sure the metrics of a model are, and the differences of two: intervals by resampling."""

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from layline.evaluation.inputs import (
    Floats,
    Groups,
    Interval,
    Ints,
    check_level,
    checked_predictions,
)
from layline.metrics import calibration_gaps, sample_log_losses, sample_scores
from layline.utils.errors import UserError

COMPARED = ("accuracy", "mae", "macro_mae", "qwk", "rps", "nll")
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
    """Give the percentile bootstrap interval of each metric.

    As many samples as there are, or whole groups, are drawn with replacement again and again; the
    interval holds the middle of what the metric then is. Resampling makes the calibration error
    larger by itself, since chance opens gaps of its own; its interval is moved back by what it
    gained on average. One sample or group alone has no intervals.

    Args:
        ranks: The true classes.
        predicted: What the samples are taken for.
        proba: The probabilities of the classes.
        groups: What samples belong to; None if they are independent.
        level: Share of the draws that an interval holds.
        draws: How many.
        seed: Of the draws.
    """
    check_level(level)
    _check_draws(draws)
    ranks, predicted, proba = checked_predictions(ranks, predicted, proba)
    unit = _unit_of(groups, len(ranks))
    count = int(unit.max()) + 1
    cells, cell = np.unique(ranks * proba.shape[1] + predicted, return_inverse=True)
    bins, gap = calibration_gaps(ranks, proba)
    scores = sample_scores(ranks, proba)
    # a row for each unit: its samples in each cell of the confusion matrix, their gaps between
    # confidence and accuracy in each bin, and the sum of their scores
    last = len(cells) + int(bins.max()) + 1
    columns = np.concatenate([cell, len(cells) + bins, np.full(len(ranks), last)])
    values = np.concatenate([np.ones(len(ranks)), gap, scores])
    table = csr_array((values, (np.tile(unit, 3), columns)), shape=(count, last + 1))
    true, said = np.divmod(cells, proba.shape[1])
    measured = _metrics_of(table.sum(axis=0)[None], true, said)
    rng = np.random.default_rng(seed)
    found = [
        _metrics_of(weights @ table, true, said) for weights in _resamplings(rng, count, draws)
    ]
    intervals = {
        name: _percentiles(np.concatenate([part[name] for part in found]), level, name, value)
        if found
        else None
        for name, value in measured.items()
    }
    over = "samples" if groups is None else "groups"
    return {"level": level, "over": over, "draws": draws, **intervals}


def _resamplings(rng: np.random.Generator, count: int, draws: int) -> Iterator[Ints]:
    """Draw as many units as there are, again and again: how often each one came.

    So many draws come at once as fit into memory; of one unit alone there are none.
    """
    at_once = max(1, _AT_ONCE // count)
    for start in range(0, draws if count > 1 else 0, at_once):
        size = min(at_once, draws - start)
        drawn = [np.bincount(rng.integers(count, size=count), minlength=count) for _ in range(size)]
        yield np.stack(drawn)


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise UserError(f"draws must be at least 1, got {draws}: it counts resamplings")


def _unit_of(groups: Groups, count: int) -> Ints:
    """Number what is drawn as a whole."""
    if groups is None:
        return np.arange(count)
    if len(groups) != count:
        raise UserError(f"groups must be {count}, got {len(groups)}: one for each sample")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups])


def _metrics_of(
    sums: Float[np.ndarray, "draws columns"],
    true: Int[np.ndarray, " cells"],
    said: Int[np.ndarray, " cells"],
) -> dict[str, Float[np.ndarray, " draws"]]:
    """Compute the metrics of many resamplings at once, from what their samples sum up to.

    Args:
        sums: Samples in each cell of the confusion matrix, gaps in each bin, the sum of scores.
        true: The true class of each cell.
        said: What its samples are taken for.
    """
    cells, gaps, scores = sums[:, : len(true)], sums[:, len(true) : -1], sums[:, -1]
    total, off = cells.sum(axis=1), np.abs(said - true)
    classes, of_class = np.unique(true, return_inverse=True)
    member = of_class[:, None] == np.arange(len(classes))  # (cells, classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_class = (cells @ (member * off[:, None])) / (cells @ member)
        means = [cells @ place / total for place in (true, said)]
        squares = [cells @ place**2 / total for place in (true, said)]
        by_chance = sum(squares) - 2 * means[0] * means[1]
        return {
            "accuracy": cells @ (off == 0) / total,
            "mae": cells @ off / total,
            "macro_mae": np.nanmean(by_class, axis=1),
            "within_one": cells @ (off <= 1) / total,
            "qwk": 1 - (cells @ off**2 / total) / np.where(by_chance > 1e-12, by_chance, np.nan),
            "rps": scores / total,
            "ece": np.abs(gaps).sum(axis=1) / total,
        }


def _percentiles(drawn: Floats, level: float, name: str, value: Floats) -> Interval:
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0 or not np.isfinite(value[0]):
        return None
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    if name == "ece":
        gained = drawn.mean() - value[0]
        low, high = max(low - gained, 0.0), max(high - gained, 0.0)
    return [float(low), float(high)]


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
    r"""Compare two models on the same samples: by how much the second differs from the first.

    The interval is the percentile bootstrap of the difference: samples, or whole groups, are drawn
    with replacement, and both models are measured on the same draw. p is of the permutation test
    that the models are alike: if they are, their answers to a sample (to all of a group) may be
    exchanged, so each is exchanged or not, and

    .. math:: p = \Pr\big(|d^*| \ge |d|\big)

    over all ways if they are no more than ``draws``, and else over so many at random, the one that
    was found among them. Models that answer alike differ by 0, with the interval [0, 0] and p = 1.

    Args:
        ranks: The true classes.
        first: What the first model takes the samples for, and its probabilities.
        second: The same of the second.
        groups: What samples belong to; None if they are independent.
        level: Share of the draws that an interval holds.
        draws: How many, of both kinds.
        seed: Of the draws.

    Returns:
        Of each metric of ``COMPARED`` ``first``, ``second``, ``difference``, ``interval`` and
        ``p``; None where it is not defined. One sample or group alone has no intervals.
    """
    check_level(level)
    _check_draws(draws)
    both = [checked_predictions(ranks, *each) for each in (first, second)]
    truth, num_classes = both[0][0], both[0][2].shape[1]
    if both[1][2].shape[1] != num_classes:
        raise UserError(
            f"second must have {num_classes} classes, got {both[1][2].shape[1]}: as the first"
        )
    unit = _unit_of(groups, len(truth))
    count = int(unit.max()) + 1
    cells = np.unique(np.concatenate([truth * num_classes + said for _, said, _ in both]))
    true, said = np.divmod(cells, num_classes)
    tables = []
    for _, predicted, proba in both:
        # a row for each unit: its samples in each cell of the confusion matrix, and the sums of
        # their negative logarithms and of their scores
        cell = np.searchsorted(cells, truth * num_classes + predicted)
        losses = sample_log_losses(truth, proba)
        scores = sample_scores(truth, proba)
        ends = np.repeat([len(cells), len(cells) + 1], len(truth))
        values = np.concatenate([np.ones(len(truth)), losses, scores])
        places = np.tile(unit, 3), np.concatenate([cell, ends])
        tables.append(csr_array((values, places), shape=(count, len(cells) + 2)))

    def metrics_of(sums: Floats) -> dict[str, Floats]:
        found = _metrics_of(np.delete(sums, -2, axis=1), true, said)
        return found | {"nll": sums[:, -2] / sums[:, : len(cells)].sum(axis=1)}

    def differences(one: Floats, other: Floats) -> dict[str, Floats]:
        before, after = metrics_of(one), metrics_of(other)
        return {name: after[name] - before[name] for name in COMPARED}

    measured = [metrics_of(table.sum(axis=0)[None]) for table in tables]
    rng = np.random.default_rng(seed)
    one, other = tables
    resampled, exchanged = [], []
    for drawn in _resamplings(rng, count, draws):
        weights = drawn.astype(np.float64)
        resampled.append(differences(weights @ one, weights @ other))
    is_exact = _is_exact(count, draws)
    for swap in _exchanges(rng, count, draws):
        stay = 1 - swap
        exchanged.append(differences(stay @ one + swap @ other, swap @ one + stay @ other))
    return {
        "level": level,
        "over": "samples" if groups is None else "groups",
        "units": count,
        "draws": draws,
        "exact": is_exact,
        "metrics": {
            name: _difference(
                before=float(measured[0][name][0]),
                after=float(measured[1][name][0]),
                resampled=np.concatenate([np.zeros(0), *(part[name] for part in resampled)]),
                exchanged=np.concatenate([part[name] for part in exchanged]),
                level=level,
                is_exact=is_exact,
            )
            for name in COMPARED
        },
    }


def _is_exact(count: int, draws: int) -> bool:
    """Tell whether all ways to exchange answers are gone through, as they are few enough."""
    return count < 63 and 2**count <= draws


def _exchanges(rng: np.random.Generator, count: int, draws: int) -> Iterator[Floats]:
    """Choose the units whose answers are exchanged, 1 for those: all ways, or some at random."""
    is_exact = _is_exact(count, draws)
    ways = 2**count if is_exact else draws
    at_once = max(1, _AT_ONCE // count)
    for start in range(0, ways, at_once):
        size = min(at_once, ways - start)
        if is_exact:
            bits = np.arange(start, start + size)[:, None] >> np.arange(count) & 1
        else:
            bits = rng.integers(2, size=(size, count))
        yield bits.astype(np.float64)


def _difference(
    *,
    before: float,
    after: float,
    resampled: Floats,
    exchanged: Floats,
    level: float,
    is_exact: bool,
) -> dict[str, Any]:
    """Say how far two values are apart, how sure that is, and how likely by chance."""
    found = after - before
    known = [value if np.isfinite(value) else None for value in (before, after, found)]
    row: dict[str, Any] = dict(zip(("first", "second", "difference"), known, strict=True))
    if known[2] is None:
        return row | {"interval": None, "p": None}
    drawn = resampled[np.isfinite(resampled)]
    tails = [(1 - level) / 2, (1 + level) / 2]
    interval = [float(end) for end in np.quantile(drawn, tails)] if len(drawn) else None
    finite = exchanged[np.isfinite(exchanged)]
    hits = int((np.abs(finite) >= abs(found) - 1e-12).sum())  # sums in another order round
    p = hits / len(finite) if is_exact else (hits + 1) / (len(finite) + 1)
    return row | {"interval": interval, "p": p}
