"""The X of an estimator: arrays, data frames and sparse matrices, checked and made into numbers."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_X_y, validate_data
from torch import Tensor

from layline.data.dataset import format_list
from layline.data.labels import Array
from layline.data.loaders import Batch, Key
from layline.data.table_encoding import TableEncoding
from layline.utils.errors import UserError
from layline.utils.optional import require

if TYPE_CHECKING:
    import pandas as pd

    from layline.estimator.classifier import OrdinalClassifier

Rows = Any  # an array, or a CSR matrix, for which scipy has no type
_LARGEST = float(np.finfo(np.float32).max)
_BLOCK = 1 << 22  # cells that are dense at a time to learn the scale of columns: 32 MB


def training_samples(
    estimator: "OrdinalClassifier", X: ArrayLike, y: ArrayLike
) -> "tuple[Rows, Array] | tuple[pd.DataFrame, Array]":
    """Check X and y of a first fit. A data frame stays one until it can be encoded."""
    X = as_pandas(X) if estimator._takes_table else X
    if estimator._takes_table and is_frame(X):
        frame = _checked_frame(estimator, X, reset=True)
        return frame, _checked_labels(estimator, frame, y)
    x, labels = validate_data(estimator, X, y, reset=True, **_array_options(estimator))
    check_finite(x, getattr(estimator, "feature_names_in_", None))
    return x, labels


def fitted_samples(
    estimator: "OrdinalClassifier", X: ArrayLike, y: ArrayLike
) -> tuple[Rows, Array]:
    """Check X and y by what was fitted."""
    rows = fitted_rows(estimator, X)
    return rows, _checked_labels(estimator, rows, y)


def fitted_rows(estimator: "OrdinalClassifier", X: ArrayLike) -> Rows:
    """Check X by what was fitted, and encode it where a data frame was."""
    X = as_pandas(X) if estimator._takes_table else X
    encoding = estimator.encoding_
    if estimator._takes_table and is_frame(X) and encoding is not None:
        return encoded_frame(_checked_frame(estimator, X, reset=False), encoding)
    x: Rows = validate_data(estimator, X, reset=False, **_array_options(estimator))
    check_finite(x, getattr(estimator, "feature_names_in_", None))
    if encoding is None:
        return x
    if encoding.categorical:
        raise UserError(
            f"X must be a data frame like that of fit, got an array: the column "
            f"{encoding.categorical[0].name!r} has categories"
        )
    pandas = require("pandas", extra="images", needed_by="a model that was fitted on a frame")
    frame = pandas.DataFrame(dense(x), columns=column_names(estimator))
    return encoded_frame(frame, encoding)


def _checked_labels(
    estimator: "OrdinalClassifier", x: "Rows | pd.DataFrame", y: ArrayLike
) -> Array:
    """Check y beside rows that were checked before."""
    labels: Array = check_X_y(np.zeros((x.shape[0], 1)), y, estimator=estimator)[1]
    return labels


def _checked_frame(
    estimator: "OrdinalClassifier", X: "pd.DataFrame", *, reset: bool
) -> "pd.DataFrame":
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X.set_axis(column_names(estimator), axis=1)


def _array_options(estimator: "OrdinalClassifier") -> dict[str, Any]:
    """Give the options with which scikit-learn checks an array."""
    is_table = estimator._takes_table
    return {
        "accept_sparse": "csr",
        # whole numbers keep their digits in a table, and take half the memory in images
        "dtype": [np.float64, np.float32] if is_table else [np.float32, np.float64],
        "allow_nd": not is_table,
        "ensure_all_finite": False,  # checked afterwards, to say where
    }


def column_names(estimator: "OrdinalClassifier") -> list[str]:
    """Name the columns of X; those of a frame whose names are numbers by their places."""
    places = [f"x{place}" for place in range(estimator.n_features_in_)]
    return list(getattr(estimator, "feature_names_in_", places))


def encoded_frame(
    frame: "pd.DataFrame", encoding: TableEncoding, places: Array | None = None
) -> Array:
    """Turn a data frame into numbers.

    Args:
        frame: As it was checked.
        encoding: What its columns become.
        places: Which rows of X they are; all of them if not given.
    """
    places = np.arange(len(frame)) if places is None else places
    values: Array = encoding.apply(frame, [f"row {place}" for place in places])
    check_finite(values, encoding.columns)
    # as an array of that dtype would be
    return values.astype(np.float32) if (frame.dtypes == np.float32).all() else values


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


def as_tensor(rows: Array, *, keeps_dtype: bool) -> Tensor:
    """Make a tensor of rows: in their own dtype for a table, in float32 for a module."""
    return torch.from_numpy(np.require(rows, tensor_dtype(rows, keeps_dtype), ["C", "W"]))


def tensor_dtype(rows: Rows, keeps_dtype: bool) -> Any:
    """Give the dtype of the tensors of rows."""
    return rows.dtype if keeps_dtype else np.float32


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
        raise UserError(f"X must hold values, got the shape {X.shape}: a side of it is zero")
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
    raise UserError(f"X must be finite in float32, got {got} in row {row}, {where}: {cure}")


def check_rows(what: str, values: Tensor, start: int) -> None:
    """Refuse values that are not finite by their rows of X, the first of which is ``start``."""
    finite = values.isfinite().all(dim=1)
    if not finite.all():
        rows = (start + torch.nonzero(~finite)[:, 0]).tolist()
        raise UserError(
            f"{what} must be finite, got NaN or infinity for row {format_list(rows)} of X: "
            "is it far from everything that was seen in training?"
        )
