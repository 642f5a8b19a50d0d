"""The arguments of ``fit`` and ``predict``: check X, y, weights and groups, and encode tables.

A missing value (NaN) is treated in the same way in a data frame and in an array: it becomes the
median of its column in the training rows, and a column that has missing values in training gets a
second column that marks them. Sparse matrices and inputs of a module must be finite.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y, validate_data
from torch import Tensor

from layline.data.dataset import Indices, Splits
from layline.data.labels import (
    Array,
    categorical_order,
    check_weight,
    order_classes,
    ranks_of,
    weigh_classes,
)
from layline.data.loaders import Batch, Batches, Key, RowBatches
from layline.data.splits import FEWEST_FOR_CALIBRATION, hold_out_calibration, stratified_holdout
from layline.data.table_encoding import NumericColumn, TableEncoding
from layline.evaluation.predictions import Split
from layline.utils.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from layline.estimator.classifier import OrdinalClassifier

Rows = Any  # an array, or a CSR matrix, for which scipy has no type
_BLOCK = 1 << 22  # cells of a sparse matrix that are dense at the same time: 32 MB


@dataclass(frozen=True)
class Samples:
    """Checked samples: encoded rows, their ranks, and their weights."""

    rows: Rows
    ranks: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.ranks)

    def take(self, index: Array) -> "Samples":
        """Select samples."""
        return Samples(self.rows[index], self.ranks[index], self.weight[index])

    def to_split(self, class_factors: Array, dtype: Any) -> Split:
        """Convert to the form that the trainer takes, with weights of the classes."""
        weight = self.weight * class_factors[self.ranks]
        scaled = weight / weight.max()
        # weights near one fit into float32, and the smallest must not become zero there
        scaled = np.maximum(scaled / scaled.mean(), np.finfo(np.float32).tiny)
        samples: Batches
        if sparse.issparse(self.rows):
            samples = SparseBatches(self.rows, dtype)
        else:
            samples = RowBatches(np.require(self.rows, dtype, ["C", "W"]))
        weights = torch.tensor(scaled, dtype=torch.float32)
        return Split(samples, torch.from_numpy(self.ranks), weights)


class SparseBatches:
    """Rows of a CSR matrix that become dense one batch at a time."""

    workers_help = False

    def __init__(self, rows: Rows, dtype: Any) -> None:
        self._rows, self._dtype = rows, dtype

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Take the rows of a batch."""
        index = np.array([index for index, _ in keys])
        return to_tensor(self._rows[index], self._dtype), torch.from_numpy(index)


@dataclass(frozen=True)
class FitData:
    """What ``fit`` learns from: the classes, their weights, and the samples of each split."""

    classes: Array
    class_factors: Array
    train: Samples
    validation: Samples
    calibration: Samples
    encoding: TableEncoding | None


def read_fit_data(
    estimator: "OrdinalClassifier",
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    validation: tuple[Any, Any, Any] | None,
    resume: bool,
) -> FitData:
    """Check the arguments of ``fit``, order the classes, and split the samples.

    With ``resume``, X and y must suit the fitted estimator.
    """
    x = check_rows(estimator, X, reset=not resume)
    labels = _check_labels(estimator, x, y)
    check_classification_targets(labels)
    weight = check_weight(sample_weight, len(labels))
    group_of = _check_groups(groups, len(labels))
    counted = np.flatnonzero(weight)
    x, labels, weight = x[weight > 0], labels[counted], weight[counted]
    order = categorical_order(y) if estimator.classes is None else estimator.classes
    if resume:
        known = estimator.classes_.tolist()
        if order is not None and list(order) != known:
            raise UserError(
                f"classes must be {known} as before, got {list(order)}: warm_start continues from "
                "the fitted weights. Set warm_start=False to start again."
            )
        order = known
    classes, ranks = order_classes(labels, order)
    factors = weigh_classes(estimator.class_weight, classes, ranks, weight)
    own = None if group_of is None else group_of[counted].tolist()
    splits = _draw_splits(estimator, ranks, own, has_validation=validation is not None)
    encoding = None
    if estimator._takes_table:
        encoding = estimator.encoding_ if resume else _fit_encoding(estimator, x, splits.train)
    samples = Samples(encode(estimator, x, encoding, counted), ranks, weight)
    held_out = samples.take(splits.validation)
    if validation is not None:
        held_out = _read_validation(estimator, *validation, classes, encoding)
    train, calibration = samples.take(splits.train), samples.take(splits.calibration)
    return FitData(classes, factors, train, held_out, calibration, encoding)


def find_validation(
    eval_set: Any, X_val: Any, y_val: Any, sample_weight_val: Any
) -> tuple[Any, Any, Any] | None:
    """Return the validation samples among the arguments of ``fit``: X, y and weights, or None."""
    if eval_set is not None:
        if X_val is not None:
            raise UserError("Give either eval_set or X_val and y_val, not both.")
        if isinstance(eval_set, list) and len(eval_set) == 1:  # the form of XGBoost and LightGBM
            eval_set = eval_set[0]
        good = isinstance(eval_set, tuple | list) and len(eval_set) in (2, 3)
        if not good or isinstance(eval_set[0], tuple):
            raise UserError("eval_set must be (X_val, y_val) or (X_val, y_val, sample_weight_val).")
        X_val, y_val, sample_weight_val = (*eval_set, None)[:3]
    if (X_val is None) != (y_val is None):
        raise UserError("X_val and y_val must be given together.")
    return None if X_val is None else (X_val, y_val, sample_weight_val)


def _read_validation(
    estimator: "OrdinalClassifier",
    X: Any,
    y: Any,
    sample_weight: Any,
    classes: Array,
    encoding: TableEncoding | None,
) -> Samples:
    rows = check_rows(estimator, X, reset=False)
    labels = _check_labels(estimator, rows, y)
    unknown = [label for label in np.unique(labels).tolist() if label not in classes.tolist()]
    if unknown:
        raise UserError(
            f"eval_set must have labels of y only, got {unknown[0]!r}: the classes are "
            f"{', '.join(map(str, classes.tolist()))}"
        )
    weight = check_weight(sample_weight, len(labels))
    samples = Samples(encode(estimator, rows, encoding), ranks_of(labels, classes), weight)
    return samples.take(np.flatnonzero(weight))


def _draw_splits(
    estimator: "OrdinalClassifier",
    ranks: Array,
    groups: list[Any] | None,
    has_validation: bool,
) -> Splits:
    """Draw which samples are for training, validation and calibration."""
    seed = estimator._seed
    fraction = 0.0 if has_validation else estimator.validation_fraction
    share = estimator.calibration_fraction
    if share is None:
        share = estimator.validation_fraction if estimator.recipe == "modern" else 0.0
    train, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed), groups)
    if fraction > 0 and len(held_out) == 0:
        warnings.warn(
            "Every class has only one sample, so there are no validation samples and the last "
            "epoch is kept.",
            stacklevel=4,  # where fit was called
        )
    drawn = Splits(train, held_out, test=np.zeros(0, dtype=np.int64))
    splits, notes = hold_out_calibration(drawn, ranks, share, seed, groups)
    if len(splits.calibration) == 0 and share * len(train) >= FEWEST_FOR_CALIBRATION:
        warnings.warn(notes[0], stacklevel=4)
    return splits


def _check_labels(estimator: "OrdinalClassifier", x: Rows, y: ArrayLike) -> Array:
    labels: Array = check_X_y(np.zeros((x.shape[0], 1)), y, estimator=estimator)[1]
    return labels


def _check_groups(groups: ArrayLike | None, n: int) -> Array | None:
    if groups is None:
        return None
    group_of: Array = np.asarray(groups, dtype=object)  # numbers and strings may be mixed
    if group_of.shape != (n,):
        raise UserError(f"groups must have the shape ({n},), got {group_of.shape}")
    for row, group in enumerate(group_of):
        if not isinstance(group, str) and str(group) in ("None", "nan", "NaT", "<NA>"):
            raise UserError(
                f"groups has no value in row {row}. Give a row that belongs to no group a group "
                "of its own."
            )
    return group_of


def check_rows(estimator: "OrdinalClassifier", X: ArrayLike, *, reset: bool) -> Rows:
    """Check X as scikit-learn does; the data frame of a table stays a data frame."""
    is_table = estimator._takes_table
    if is_table and not is_frame(X) and hasattr(X, "to_pandas"):  # a frame of another library
        X = X.to_pandas()
    if is_table and is_frame(X):
        if 0 in X.shape:
            raise UserError(f"X must have at least one row and one column, got {X.shape}")
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X.set_axis(column_names(estimator), axis=1)
    x: Rows = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        # images need half of the memory in float32
        dtype=np.float64 if is_table else [np.float32, np.float64],
        allow_nd=not is_table,
        ensure_all_finite="allow-nan" if is_table and not sparse.issparse(X) else True,
    )
    return x


def read_rows(estimator: "OrdinalClassifier", X: ArrayLike) -> Rows:
    """Check X for a fitted estimator, and encode a table."""
    return encode(estimator, check_rows(estimator, X, reset=False), estimator.encoding_)


def column_names(estimator: "OrdinalClassifier") -> list[str]:
    """Name the columns of X: x0, x1, … unless they have names."""
    numbered = [f"x{place}" for place in range(estimator.n_features_in_)]
    return list(getattr(estimator, "feature_names_in_", numbered))


def is_frame(X: Any) -> "TypeGuard[pd.DataFrame]":
    """Return whether X is a data frame of pandas; this does not import pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def _fit_encoding(estimator: "OrdinalClassifier", x: Rows, train: Indices) -> TableEncoding:
    if is_frame(x):
        return TableEncoding.fit(x, train)
    names = column_names(estimator)
    if sparse.issparse(x):
        return TableEncoding(tuple(NumericColumn(name, 0.0, False) for name in names), ())
    columns = (
        NumericColumn(name, float(np.nanmedian(values)), bool(np.isnan(values).any()))
        for name, values in zip(names, x[train].T, strict=True)
        if not np.isnan(values).all()  # a column without values is not used
    )
    return TableEncoding(tuple(columns), ())


def encode(
    estimator: "OrdinalClassifier",
    x: Rows,
    encoding: TableEncoding | None,
    places: Sequence[int] | Array | None = None,
) -> Rows:
    """Convert checked rows of a table to numbers; ``places`` are their rows in X."""
    if encoding is None:
        return x
    if is_frame(x):
        places = range(len(x)) if places is None else places
        return encoding.apply(x, [f"row {place}" for place in places])
    if encoding.categorical:
        raise UserError(
            "X must be a data frame as in fit, got an array: the column "
            f"{encoding.categorical[0].name!r} has categories"
        )
    names = column_names(estimator)
    indicator = np.array([column.indicator for column in encoding.numeric])
    plain = list(encoding.names) == names and not indicator.any()
    if plain and (sparse.issparse(x) or not np.isnan(x).any()):
        return x
    x = x.toarray() if sparse.issparse(x) else x
    x = x[:, [names.index(name) for name in encoding.names]]
    missing = np.isnan(x)
    medians = np.array([column.median for column in encoding.numeric])
    # each column, and behind it the indicator of its missing values if there is one
    both = np.stack([np.where(missing, medians, x), missing.astype(float)], axis=2)
    used = np.stack([np.ones_like(indicator), indicator], axis=1)
    return both.reshape(len(x), -1)[:, used.ravel()]


def to_tensor(rows: Rows, dtype: Any) -> Tensor:
    """Copy rows to a tensor, so that a module that works in place does not change X."""
    dense = rows.toarray() if sparse.issparse(rows) else rows
    return torch.from_numpy(np.array(dense, dtype, order="C"))


def column_blocks(rows: Rows) -> Iterator[Tensor]:
    """Yield blocks of columns: a sparse matrix never becomes dense as a whole."""
    width = rows.shape[1]
    if sparse.issparse(rows):
        rows, width = rows.tocsc(), max(1, _BLOCK // rows.shape[0])
    for start in range(0, rows.shape[1], width):
        yield to_tensor(rows[:, start : start + width], np.float64)
