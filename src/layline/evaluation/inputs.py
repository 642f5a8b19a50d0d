"""What diagnostics are computed from: ranks, predictions and probabilities that fit together."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layline.utils.errors import UserError

Groups = Sequence[Hashable] | None
Interval = list[float] | None
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_level(level: float) -> None:
    """Refuse a level that no interval has."""
    if not 0 < level < 1:
        raise UserError(f"level must be between 0 and 1, got {level}: 0.95 for 95 %")


def checked_predictions(
    ranks: ArrayLike, predicted: ArrayLike, proba: ArrayLike
) -> tuple[Ints, Ints, Floats]:
    """Read the arrays, and refuse what does not belong together."""
    shares = np.asarray(proba, dtype=np.float64)
    if shares.ndim != 2 or shares.shape[1] < 2 or len(shares) == 0:
        raise UserError(
            f"proba must be (n, K), got the shape {shares.shape}: a row for each sample and a "
            "column for each of two classes or more"
        )
    chosen = []
    for name, values in (("ranks", ranks), ("predicted", predicted)):
        array = np.asarray(values).astype(np.int64)
        if array.shape != (len(shares),):
            raise UserError(
                f"{name} must be of length {len(shares)}, got the shape {array.shape}: proba has a "
                "row for each sample"
            )
        if array.min() < 0 or array.max() >= shares.shape[1]:
            wrong = array[(array < 0) | (array >= shares.shape[1])][0]
            raise UserError(
                f"{name} must be in 0…{shares.shape[1] - 1}, got {wrong}: proba has no such column"
            )
        chosen.append(array)
    return chosen[0], chosen[1], shares
