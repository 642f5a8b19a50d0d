"""What a second look is worth: the samples that a model is least certain of go to a person."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from layline.evaluation.inputs import Floats, Ints, checked_predictions
from layline.utils.errors import UserError

REVIEWED = 0.2  # of the samples are marked for review if nobody says how many


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
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike, points: int = 100
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
    ranks, predicted, proba = checked_predictions(ranks, predicted, proba)
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
        raise UserError(f"wanted_error must be in 0…1, got {wanted_error}: it is a share")
    error, _ = _selective(*checked_predictions(ranks, predicted, proba))
    allowed = np.flatnonzero(error <= wanted_error + 1e-12)
    decided = int(allowed[-1]) + 1 if len(allowed) else 0
    return len(error) - decided


def _selective(ranks: Ints, predicted: Ints, proba: Floats) -> tuple[Floats, Floats]:
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
