"""What the estimator is given: arrays, data frames, sparse matrices, groups, validation samples."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from layline.data.base import listed
from layline.data.labels import Array
from layline.data.loading import Batch, Key

if TYPE_CHECKING:
    import pandas as pd

Rows = Any  # an array, or a CSR matrix, for which scipy has no type
_LARGEST = float(np.finfo(np.float32).max)
_BLOCK = 1 << 22  # cells that are dense at a time to learn the scale of columns: 32 MB


class Validation(NamedTuple):
    """Samples to choose the epoch by, as a user gives them."""

    X: ArrayLike
    y: ArrayLike
    sample_weight: ArrayLike | None = None


def given_validation(
    eval_set: Any, X_val: Any, y_val: Any, sample_weight_val: Any
) -> Validation | None:
    """Find the validation samples among the arguments of ``fit``, if there are any."""
    if eval_set is None:
        if (X_val is None) != (y_val is None):
            there, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
            raise ValueError(f"{missing} must be given with {there}, got none: they are a pair")
        if X_val is None and sample_weight_val is not None:
            raise ValueError("X_val must be given with sample_weight_val, got none")
        return None if X_val is None else Validation(X_val, y_val, sample_weight_val)
    if X_val is not None or y_val is not None or sample_weight_val is not None:
        raise ValueError("eval_set must be None with X_val and y_val, got both: give one of them")
    found = eval_set
    if isinstance(found, list) and len(found) == 1:  # as XGBoost and LightGBM have it
        found = found[0]
    if not (isinstance(found, tuple | list) and len(found) in (2, 3)):
        got = f"{len(found)} of them" if isinstance(found, list | tuple) else type(found).__name__
        raise ValueError(
            f"eval_set must be one pair (X_val, y_val), got {got}: a third item is the weights of "
            "the samples, and there is one set to choose the epoch by"
        )
    if isinstance(found, list) and all(isinstance(each, tuple) for each in found):
        raise ValueError(
            f"eval_set must be one pair (X_val, y_val), got {len(found)} of them: one set chooses "
            "the epoch"
        )
    return Validation(*found)


def checked_groups(groups: ArrayLike | None, n: int) -> Array | None:
    """Give what each row belongs to."""
    if groups is None:
        return None
    found: Array = np.asarray(groups, dtype=object)  # numbers and words may be mixed
    if found.shape != (n,):
        raise ValueError(
            f"groups must have the shape ({n},), got {found.shape}: one for each row of X"
        )
    for row, group in enumerate(found):
        if group is None or group != group or str(group) in ("<NA>", "NaT"):
            raise ValueError(
                f"groups must be there for every row, got {group} in row {row}: give a row that "
                "belongs to nothing a group of its own"
            )
    return found


def is_frame(X: Any) -> "TypeGuard[pd.DataFrame]":
    """Tell whether X is a data frame of pandas, which only then has to be installed."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def as_pandas(X: Any) -> Any:
    """Turn a data frame of another library into one of pandas, where that library can do it."""
    if is_frame(X) or not (hasattr(X, "to_pandas") and hasattr(X, "columns")):
        return X
    try:
        frame = X.to_pandas()
    except ImportError:  # polars wants pyarrow for it; numbers alone are read as an array
        return X
    return frame if is_frame(frame) else X


def dense(rows: Rows) -> Array:
    """Give rows as an array of their own, whose changes X does not see."""
    copied: Array = rows.toarray() if sparse.issparse(rows) else rows.copy()
    return copied


def column_blocks(rows: Rows, dtype: Any) -> Iterator[Tensor]:
    """Give a sparse matrix as dense blocks of columns."""
    by_column = rows.tocsc()
    width = max(1, _BLOCK // rows.shape[0])
    for start in range(0, rows.shape[1], width):
        block = by_column[:, start : start + width].toarray()
        yield torch.from_numpy(block.astype(dtype, copy=False))


class SparseBatches:
    """Rows of a sparse matrix, dense one batch at a time.

    Args:
        rows: In CSR format.
        dtype: Of the batches.
    """

    workers_help = False

    def __init__(self, rows: Rows, dtype: Any) -> None:
        self._rows, self._dtype = rows, dtype

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Take the rows of a batch."""
        index = np.array([index for index, _ in keys])
        found = self._rows[index].toarray().astype(self._dtype, copy=False)
        return torch.from_numpy(found), torch.from_numpy(index)


def check_finite(X: Rows, names: Sequence[str] | None) -> None:
    """Refuse a value that float32 cannot hold, naming its row and column."""
    if 0 in X.shape:
        raise ValueError(f"X must hold values, got the shape {X.shape}: a side of it is zero")
    values = X.data if sparse.issparse(X) else X
    # NaN fails both comparisons, and no array of the size of X is made
    if values.size == 0 or (values.min() >= -_LARGEST and values.max() <= _LARGEST):
        return
    wrong = int(np.argmin(np.abs(values) <= _LARGEST))  # the first that is not right
    if sparse.issparse(X):
        row = int(np.searchsorted(X.indptr, wrong, side="right")) - 1
        place, value = [int(X.indices[wrong])], values[wrong]
    else:
        row, *place = map(int, np.unravel_index(wrong, X.shape))
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


def check_rows(what: str, values: Tensor, start: int) -> None:
    """Refuse values that are not finite by their rows of X, the first of which is ``start``."""
    finite = values.isfinite().all(dim=1)
    if not finite.all():
        rows = (start + torch.nonzero(~finite)[:, 0]).tolist()
        raise ValueError(
            f"{what} must be finite, got NaN or infinity for row {listed(rows)} of X: "
            "is it far from everything that was seen in training?"
        )
