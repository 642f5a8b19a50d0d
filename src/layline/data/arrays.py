"""Arrays at the door: what is wrong with them is said once, with the place."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
_LARGEST = float(np.finfo(np.float32).max)


def checked_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Give one weight per row, in float64; only their ratios matter."""
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(
            f"sample_weight must have the shape ({n},), got {weight.shape}: one for each row of X"
        )
    wrong = ~((weight >= 0) & np.isfinite(weight))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"sample_weight must be finite and not negative, got {weight[row]} in row {row}: "
            "0 leaves a sample out"
        )
    if not weight.any():
        raise ValueError("sample_weight must be above zero somewhere, got only zeros: no sample")
    return np.asarray(weight / weight.max())  # so that sums stay finite


def check_finite(X: Array, names: Array | None) -> None:
    """Refuse an array with a value that float32 cannot hold, naming its row and column."""
    if X.size == 0:
        raise ValueError(f"X must hold values, got the shape {X.shape}: a side of it is zero")
    # NaN fails both comparisons, and no array of the size of X is made
    if X.min() >= -_LARGEST and X.max() <= _LARGEST:
        return
    row, *place = map(int, np.unravel_index(np.argmin(np.abs(X) <= _LARGEST), X.shape))
    value = X[(row, *place)]
    where = f"column {place[0]}" if len(place) == 1 else f"position {tuple(place)}"
    if names is not None:
        where += f" ({names[place[0]]!r})"
    got, cure = f"{value:g}", "rescale it, float32 cannot hold it"
    if np.isnan(value):
        got, cure = "NaN", "fill or drop missing values, sklearn.impute fills them"
    elif np.isinf(value):
        cure = "clip or drop it"
    raise ValueError(f"X must be finite in float32, got {got} in row {row}, {where}: {cure}")
