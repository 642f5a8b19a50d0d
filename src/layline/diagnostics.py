"""What a person needs to know before using a model: how sure its numbers are, and where it fails.

Pure functions on ranks, predictions and probabilities, as in :mod:`layline.metrics`. All that they
give is fit for JSON: plain numbers, and None where something is not defined.

Two kinds of intervals are given. Those of whole metrics come from resampling the samples, or the
groups where samples belong together, such as the images of a patient. Those of shares, such as the
recall of a class, are Wilson's, which take samples as independent of each other.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import ndtri

from layline.metrics import calibration_gaps, ranked_probability_scores

MOST_POINTS = 100  # of a curve
MOST_CURVES = 50  # thresholds; beyond it their numbers are given, and no curves
REVIEWED = 0.2  # of the samples are marked for review if nobody says how many
FEW = 20  # samples of a class: the interval of a share is then wider than forty points
MUCH_WORSE = 1.2  # times the validation error
_NAMED = 5  # classes in a sentence
_AT_ONCE = 4_000_000  # weights of resampled units in memory

Interval = list[float] | None
Groups = Sequence[Hashable] | None
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def diagnose(
    ranks: ArrayLike,
    predicted: ArrayLike,
    proba: ArrayLike,
    classes: Sequence[str],
    *,
    groups: Groups = None,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Tell how sure the numbers of a model are, and what it does to whom.

    Args:
        ranks: The true classes of n samples, from 0.
        predicted: What they are taken for.
        proba: (n, K), the probabilities of the classes.
        classes: Names of the classes, lowest first.
        groups: What samples belong to, such as a patient; None if they are independent.
        level: Of all intervals: the share of them that holds the true value.
        draws: How often the samples are resampled.
        seed: Of the resampling.

    Returns:
        ``intervals`` of the metrics, ``by_class`` recall and precision, ``thresholds`` what
        happens where a grade or more is acted on, and ``referral`` what a second look is worth.
    """
    ranks, predicted, proba = _checked(ranks, predicted, proba)
    num_classes = proba.shape[1]
    if len(classes) != num_classes:
        raise ValueError(
            f"classes must be {num_classes}, got {len(classes)}: proba has a column for each"
        )
    confusion = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(confusion, (ranks, predicted), 1)
    return {
        "intervals": bootstrap_intervals(
            ranks, predicted, proba, groups=groups, level=level, draws=draws, seed=seed
        ),
        "by_class": class_rates(confusion, classes, level),
        "thresholds": threshold_rates(ranks, predicted, proba, classes, level),
        "referral": referral(ranks, predicted, proba),
    }


# --- how sure the numbers are


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
    _check_level(level)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}: it counts resamplings")
    ranks, predicted, proba = _checked(ranks, predicted, proba)
    unit = _unit_of(groups, len(ranks))
    count = int(unit.max()) + 1
    cells, cell = np.unique(ranks * proba.shape[1] + predicted, return_inverse=True)
    bins, gap = calibration_gaps(ranks, proba)
    scores = ranked_probability_scores(ranks, proba)
    # a row for each unit: its samples in each cell of the confusion matrix, their gaps between
    # confidence and accuracy in each bin, and the sum of their scores
    last = len(cells) + int(bins.max()) + 1
    columns = np.concatenate([cell, len(cells) + bins, np.full(len(ranks), last)])
    values = np.concatenate([np.ones(len(ranks)), gap, scores])
    table = csr_array((values, (np.tile(unit, 3), columns)), shape=(count, last + 1))
    true, said = np.divmod(cells, proba.shape[1])
    measured = _metrics_of(table.sum(axis=0)[None], true, said)
    rng, at_once, found = np.random.default_rng(seed), max(1, _AT_ONCE // count), []
    for start in range(0, draws if count > 1 else 0, at_once):
        weights = _resampled(rng, count, min(at_once, draws - start))
        found.append(_metrics_of(weights @ table, true, said))
    intervals = {
        name: _percentiles(np.concatenate([part[name] for part in found]), level, name, value)
        if found
        else None
        for name, value in measured.items()
    }
    over = "samples" if groups is None else "groups"
    return {"level": level, "over": over, "draws": draws, **intervals}


def _resampled(rng: np.random.Generator, count: int, draws: int) -> _Ints:
    """Draw as many units as there are, again and again: how often each one came."""
    drawn = [np.bincount(rng.integers(count, size=count), minlength=count) for _ in range(draws)]
    return np.stack(drawn)


def _unit_of(groups: Groups, count: int) -> _Ints:
    """Number what is drawn as a whole."""
    if groups is None:
        return np.arange(count)
    if len(groups) != count:
        raise ValueError(f"groups must be {count}, got {len(groups)}: one for each sample")
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


def _percentiles(drawn: _Floats, level: float, name: str, value: _Floats) -> Interval:
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0 or not np.isfinite(value[0]):
        return None
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    if name == "ece":
        gained = drawn.mean() - value[0]
        low, high = max(low - gained, 0.0), max(high - gained, 0.0)
    return [float(low), float(high)]


COMPARED = ("accuracy", "mae", "macro_mae", "qwk", "rps", "nll")


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
    _check_level(level)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}: it counts resamplings")
    both = [_checked(ranks, *each) for each in (first, second)]
    truth, num_classes = both[0][0], both[0][2].shape[1]
    if both[1][2].shape[1] != num_classes:
        raise ValueError(
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
        of_truth = np.maximum(proba[np.arange(len(truth)), truth], np.finfo(np.float64).tiny)
        scores = ranked_probability_scores(truth, proba)
        ends = np.repeat([len(cells), len(cells) + 1], len(truth))
        values = np.concatenate([np.ones(len(truth)), -np.log(of_truth), scores])
        places = np.tile(unit, 3), np.concatenate([cell, ends])
        tables.append(csr_array((values, places), shape=(count, len(cells) + 2)))

    def metrics_of(sums: _Floats) -> dict[str, _Floats]:
        found = _metrics_of(np.delete(sums, -2, axis=1), true, said)
        return found | {"nll": sums[:, -2] / sums[:, : len(cells)].sum(axis=1)}

    def differences(one: _Floats, other: _Floats) -> dict[str, _Floats]:
        before, after = metrics_of(one), metrics_of(other)
        return {name: after[name] - before[name] for name in COMPARED}

    measured = [metrics_of(table.sum(axis=0)[None]) for table in tables]
    rng = np.random.default_rng(seed)
    at_once = max(1, _AT_ONCE // count)
    resampled, exchanged = [], []
    for start in range(0, draws if count > 1 else 0, at_once):
        weights = _resampled(rng, count, min(at_once, draws - start)).astype(np.float64)
        resampled.append(differences(weights @ tables[0], weights @ tables[1]))
    is_exact = count < 63 and 2**count <= draws
    ways = 2**count if is_exact else draws
    for start in range(0, ways, at_once):
        size = min(at_once, ways - start)
        if is_exact:
            swap = (np.arange(start, start + size)[:, None] >> np.arange(count) & 1).astype(float)
        else:
            swap = rng.integers(2, size=(size, count)).astype(np.float64)
        stay = 1 - swap
        one, other = tables
        exchanged.append(differences(stay @ one + swap @ other, swap @ one + stay @ other))
    return {
        "level": level,
        "over": "samples" if groups is None else "groups",
        "units": count,
        "draws": draws,
        "exact": is_exact,
        "metrics": {
            name: _difference(
                float(measured[0][name][0]),
                float(measured[1][name][0]),
                np.concatenate([part[name] for part in resampled]) if resampled else np.zeros(0),
                np.concatenate([part[name] for part in exchanged]),
                level,
                is_exact,
            )
            for name in COMPARED
        },
    }


def _difference(
    before: float,
    after: float,
    resampled: _Floats,
    exchanged: _Floats,
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
    _check_level(level)
    if total == 0:
        return None
    z = float(ndtri((1 + level) / 2))
    share, spread = hits / total, z * z / total
    middle = share + spread / 2
    reach = z * np.sqrt((share * (1 - share) + spread / 4) / total)
    low, high = (middle - reach) / (1 + spread), (middle + reach) / (1 + spread)
    # rounding must not leave the share itself outside
    return [float(min(max(low, 0.0), share)), float(max(min(high, 1.0), share))]


# --- what happens to each class, and at each threshold


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

    ranks, predicted, proba = _checked(ranks, predicted, proba)
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


def _thinned(fpr: _Floats, tpr: _Floats) -> dict[str, list[float]]:
    """Keep points of a curve that are evenly far along it, both ends among them."""
    along = fpr + tpr
    kept = np.arange(len(along))
    if len(along) > MOST_POINTS:
        kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], MOST_POINTS)))
    return {"fpr": np.round(fpr[kept], 5).tolist(), "tpr": np.round(tpr[kept], 5).tolist()}


# --- what a second look is worth


def certainty(proba: ArrayLike, predicted: ArrayLike) -> Float[np.ndarray, " n"]:
    """Tell how sure a model is of each prediction: the probability that it gives to it.

    On validation parts of 15 data sets the distance that a model expects to be off was no better
    at telling which samples to leave to a person: as good by MAE, worse by the share of errors.

    Example:
        >>> certainty([[0.5, 0.25, 0.25]], [0]).tolist()
        [0.5]
    """
    shares, chosen = np.asarray(proba, dtype=np.float64), np.asarray(predicted)
    return np.asarray(shares[np.arange(len(chosen)), chosen])


def certainty_columns(
    proba: Float[np.ndarray, "n K"],
    chosen: Int[np.ndarray, " n"],
    classes: Sequence[str],
    ranges: tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]] | None,
    review: float,
) -> dict[str, list[Any]]:
    """Say of each sample what is possible, how sure the decision is, and who should look at it.

    Args:
        proba: Calibrated probabilities.
        chosen: The ranks that were decided for.
        classes: Their names.
        ranges: The lowest and the highest rank that is possible, if that is known.
        review: Share of the samples to mark, the least certain.
    """
    sure = certainty(proba, chosen)
    marked = np.zeros(len(sure), dtype=bool)
    marked[np.argsort(sure, kind="stable")[: round(review * len(sure))]] = True
    ends = {} if ranges is None else dict(zip(("low", "high"), ranges, strict=True))
    return {
        **{name: [classes[rank] for rank in ranks.tolist()] for name, ranks in ends.items()},
        "confidence": sure.tolist(),
        "review": marked.tolist(),
    }


def referral(
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike, points: int = MOST_POINTS
) -> dict[str, Any]:
    """Tell how wrong a model is on the share that it is most certain of.

    ``aurc``, the area under the risk-coverage curve, is the mean error rate over all coverages
    1/n, 2/n, …, 1; ``aurc_mae`` the same of the absolute error.

    Args:
        ranks: The true classes.
        predicted: What the samples are taken for.
        proba: The probabilities of the classes.
        points: Of the curve at most, evenly from the most certain sample to all of them.
    """
    ranks, predicted, proba = _checked(ranks, predicted, proba)
    error, mae = _selective(ranks, predicted, proba)
    count = len(ranks)
    kept = np.unique(np.linspace(1, count, min(points, count)).round().astype(int))
    eighty = -(-8 * count // 10)
    return {
        "by": "confidence",
        "curve": {
            "coverage": np.round(kept / count, 6).tolist(),
            "error": np.round(error[kept - 1], 6).tolist(),
            "mae": np.round(mae[kept - 1], 6).tolist(),
        },
        "aurc": float(error.mean()),
        "aurc_mae": float(mae.mean()),
        "error": float(error[-1]),
        "mae": float(mae[-1]),
        "error_at_80": float(error[eighty - 1]),
        "mae_at_80": float(mae[eighty - 1]),
    }


def cases_to_review(
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike, wanted_error: float
) -> int:
    """Count the least certain samples that a person must see for a wanted error rate.

    The rest, which nobody sees, is then wrong at most that often. The curve need not fall with
    coverage, so the fewest samples are sought, not the first that would do.

    Args:
        ranks: The true classes.
        predicted: What the samples are taken for.
        proba: The probabilities of the classes.
        wanted_error: The share of the rest that may be wrong.
    """
    if not 0 <= wanted_error <= 1:
        raise ValueError(f"wanted_error must be in 0…1, got {wanted_error}: it is a share")
    error, _ = _selective(*_checked(ranks, predicted, proba))
    allowed = np.flatnonzero(error <= wanted_error + 1e-12)
    decided = int(allowed[-1]) + 1 if len(allowed) else 0
    return len(error) - decided


def _selective(ranks: _Ints, predicted: _Ints, proba: _Floats) -> tuple[_Floats, _Floats]:
    """Give error rate and MAE of the 1, 2, …, n most certain samples.

    Samples that are equally certain come in any order, so each counts as their mean.
    """
    _, level = np.unique(np.round(certainty(proba, predicted), 12), return_inverse=True)
    size = np.bincount(level)
    order = np.argsort(-level, kind="stable")
    off = np.abs(predicted - ranks)
    risks = []
    for loss in (off > 0, off):
        mean = np.bincount(level, weights=loss) / size
        risks.append(mean[level[order]].cumsum() / np.arange(1, len(off) + 1))
    # the last one without the rounding of a long sum
    risks[0][-1], risks[1][-1] = (off > 0).mean(), off.mean()
    return risks[0], risks[1]


# --- what is wrong, in words


def alarms(
    numbers: Mapping[str, Any], counts: Mapping[str, Sequence[int]], classes: Sequence[str]
) -> list[str]:
    """Say in sentences what a person should know before using a model.

    Validation counts as much better than test if the test MAE is more than a fifth above it, and
    further than chance takes it: beyond the interval of the test MAE, widened for the validation
    samples, which vary too.

    Args:
        numbers: As in ``test.json``: ``confusion``, and as far as they are there ``mae`` with
            ``intervals``, ``validation`` with its ``mae`` and ``samples``, ``run_test`` with the
            ``mae`` and its ``interval`` where the model was tested after training, ``ranges``
            with the ``coverage`` wanted, the one ``measured`` and the ones to be ``expected``, and
            ``copies`` of images, as in ``environment.json``.
        counts: Samples by part and class, as in ``environment.json``; may be empty.
        classes: Names of the classes, lowest first.
    """
    confusion = np.asarray(numbers["confusion"])
    return [
        *_never_predicted(confusion, classes),
        *_confused_ends(confusion, classes),
        *_worse_than_validation(numbers),
        *_worse_elsewhere(numbers),
        *_failed_ranges(numbers.get("ranges") or []),
        *_copied(numbers.get("copies") or {}, int(confusion.sum())),
        *_few_samples(confusion, counts, classes),
    ]


def _never_predicted(confusion: _Ints, classes: Sequence[str]) -> list[str]:
    samples, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    is_absent = (samples > 0) & (predicted == 0)
    absent = {name: int(samples[k]) for k, name in enumerate(classes) if is_absent[k]}
    if not absent:
        return []
    return [
        f"Never predicted: {_named(absent)}. The model cannot find "
        f"{'this class' if len(absent) == 1 else 'these classes'}: train longer, add training "
        "samples, train with --class-weight balanced if it is rare, or join neighbouring classes."
    ]


def _confused_ends(confusion: _Ints, classes: Sequence[str]) -> list[str]:
    if len(confusion) < 3:
        return []
    up, down = int(confusion[0, -1]), int(confusion[-1, 0])
    if up + down == 0:
        return []
    low, high = f"“{classes[0]}”", f"“{classes[-1]}”"
    parts = [
        f"{count} of {samples} {_samples(samples)} of {here} taken for {there}"
        for count, samples, here, there in (
            (up, int(confusion[0].sum()), low, high),
            (down, int(confusion[-1].sum()), high, low),
        )
        if count
    ]
    return [
        f"The two ends of the scale are confused: {' and '.join(parts)}. Look at them among the "
        "worst mistakes: either their labels are wrong, or the model misses something that matters."
    ]


def _worse_than_validation(numbers: Mapping[str, Any]) -> list[str]:
    validation = numbers.get("validation") or {}
    intervals = numbers.get("intervals") or {}
    interval, before, now = intervals.get("mae"), validation.get("mae"), numbers.get("mae")
    if interval is None or before is None or now is None:
        return []
    tested, validated = numbers.get("samples", 0), validation.get("samples") or np.inf
    reach = (now - interval[0]) * np.sqrt(1 + tested / validated)
    if now - before <= reach or now <= MUCH_WORSE * before:
        return []
    more = f"{now / before - 1:.0%} higher" if before > 0 else "higher"
    return [
        f"Much worse on the test than on the validation samples: the MAE is {now:.3f} after "
        f"{before:.3f}, {more}, which chance does not explain. The test samples are of another "
        "kind, or copies of training samples are in the validation part: expect the test number, "
        "and see how the data were split."
    ]


def _worse_elsewhere(numbers: Mapping[str, Any]) -> list[str]:
    """Compare other data with the test of the run: further apart than chance takes both."""
    before = numbers.get("run_test") or {}
    here, there = (numbers.get("intervals") or {}).get("mae"), before.get("interval")
    now, own = numbers.get("mae"), before.get("mae")
    if here is None or there is None or now is None or own is None:
        return []
    if now - own <= np.hypot(now - here[0], there[1] - own):
        return []
    return [
        f"Worse here than where it was trained: the MAE is {now:.3f} after {own:.3f} on the run's "
        "own test samples, which chance does not explain. These data are of another kind: look at "
        "the mistakes, calibrate on such data, or go on training on some of them with "
        "layline train DATA --from RUN."
    ]


def _failed_ranges(ranges: Sequence[Mapping[str, Any]]) -> list[str]:
    failed = [each for each in ranges if each["measured"] < each["expected"][0]]
    if not failed:
        return []
    said = ", ".join(
        f"{each['measured']:.1%} at {each['coverage']:.0%} (by chance not below "
        f"{each['expected'][0]:.1%})"
        for each in failed
    )
    return [
        f"Ranges hold the truth too rarely: {said}. The test samples are of another kind than "
        "those that the ranges were made with: calibrate on data of the kind that the model will "
        "see, with layline calibrate RUN --root DATA."
    ]


def _copied(copies: Mapping[str, Any], samples: int) -> list[str]:
    found = []
    leaked = int((copies.get("with_copy_in_training") or {}).get("test", 0))
    if leaked:
        found.append(
            f"Of {samples} test images {leaked} {'has' if leaked == 1 else 'have'} a copy in "
            "training: the numbers are too good. Leave the copies out, or split anew."
        )
    contradicting = int(copies.get("contradicting") or 0)
    if contradicting:
        found.append(
            f"Copies of one image with different labels: {contradicting} "
            f"group{'' if contradicting == 1 else 's'}. layline data check lists them."
        )
    return found


def _few_samples(
    confusion: _Ints, counts: Mapping[str, Sequence[int]], classes: Sequence[str]
) -> list[str]:
    parts = {
        "training": (counts.get("train", ()), "Little can be learned of so few: add some."),
        "test": (
            counts.get("test", confusion.sum(axis=1).tolist()),
            "Their numbers are rough: see the intervals, or test with more.",
        ),
    }
    found = []
    for part, (per_class, cure) in parts.items():
        few = {
            name: int(count) for name, count in zip(classes, per_class, strict=False) if count < FEW
        }
        if few:
            found.append(f"Fewer than {FEW} {part} samples: {_named(few, short=True)}. {cure}")
    return found


def _named(counts: Mapping[str, int], short: bool = False) -> str:
    """List classes with their samples; of many, the first ones."""
    words = [
        f"“{name}” ({count}{'' if short else ' test ' + _samples(count)})"
        for name, count in counts.items()
    ]
    rest = f" and {len(words) - _NAMED} more classes" if len(words) > _NAMED + 1 else ""
    return ", ".join(words[:_NAMED] if rest else words) + rest


def _samples(count: int) -> str:
    return "sample" if count == 1 else "samples"


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}: 0.95 for 95 %")


def _checked(
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike
) -> tuple[_Ints, _Ints, _Floats]:
    """Read the arrays, and refuse what does not belong together."""
    shares = np.asarray(proba, dtype=np.float64)
    if shares.ndim != 2 or shares.shape[1] < 2 or len(shares) == 0:
        raise ValueError(
            f"proba must be (n, K), got the shape {shares.shape}: a row for each sample and a "
            "column for each of two classes or more"
        )
    chosen = []
    for name, values in (("ranks", ranks), ("predicted", predicted)):
        array = np.asarray(values).astype(np.int64)
        if array.shape != (len(shares),):
            raise ValueError(
                f"{name} must be of length {len(shares)}, got the shape {array.shape}: proba has a "
                "row for each sample"
            )
        if array.min() < 0 or array.max() >= shares.shape[1]:
            wrong = array[(array < 0) | (array >= shares.shape[1])][0]
            raise ValueError(
                f"{name} must be in 0…{shares.shape[1] - 1}, got {wrong}: proba has no such column"
            )
        chosen.append(array)
    return chosen[0], chosen[1], shares
