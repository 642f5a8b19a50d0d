"""Check the arguments of ``fit`` and ``predict``, split the samples, and encode tables."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data
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
from layline.data.loaders import Batch, Key
from layline.data.splits import (
    FEWEST_FOR_CALIBRATION,
    FEWEST_FOR_SPLITS,
    FOLDS,
    assign_folds,
    hold_out_calibration,
    stratified_holdout,
)
from layline.data.tables import NumericColumn, TableEncoding
from layline.evaluation.predictions import Split
from layline.utils.validation import UserError

if TYPE_CHECKING:
    from layline.estimator.classifier import OrdinalClassifier

Rows = Any  # an array, or a CSR matrix, for which scipy has no type
_BLOCK = 1 << 22  # cells of a sparse matrix that are dense at the same time: 32 MB


@dataclass(frozen=True)
class Samples:
    """Checked samples: encoded rows, their ranks, and their weights."""

    rows: Rows
    ranks: Array
    weight: Array
    workers_help = False

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Make a batch, which is dense even if the rows are sparse."""
        index = np.array([index for index, _ in keys])
        return to_tensor(self.rows[index]), torch.from_numpy(index)

    def take(self, index: Array) -> "Samples":
        """Select samples."""
        return Samples(self.rows[index], self.ranks[index], self.weight[index])

    def to_split(self, class_factors: Array) -> Split:
        """Convert to the form that the trainer takes, with weights of the classes."""
        weight = self.weight * class_factors[self.ranks]
        scaled = weight / weight.max()
        # weights near one fit into float32, and the smallest must not become zero there
        scaled = np.maximum(scaled / scaled.mean(), np.finfo(np.float32).tiny)
        weights = torch.tensor(scaled, dtype=torch.float32)
        return Split(self, torch.from_numpy(self.ranks), weights)


@dataclass(frozen=True)
class FitData:
    """The data of ``fit``: the classes, their weights, and the samples of each split.

    With a cross-validation there are no validation and calibration samples.
    """

    classes: Array
    class_factors: Array
    train: Samples
    validation: Samples
    calibration: Samples
    encoding: TableEncoding | None
    fold_of: Indices | None = None  # of each training sample, if a cross-validation calibrates
    groups: list[Any] | None = None  # of the training samples


def read_fit_data(
    estimator: "OrdinalClassifier",
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    validation: tuple[Any, Any, Any] | None,
    resume: bool,
) -> FitData:
    """Check the arguments of ``fit``, order the classes, split and encode the samples.

    With ``resume``, X and y must suit the fitted estimator.
    """
    x, labels, weight = _check_samples(estimator, X, y, sample_weight, reset=not resume)
    check_classification_targets(labels)
    group_of = _check_groups(groups, len(labels))
    used = np.flatnonzero(weight)  # rows of weight zero are ignored
    labels, weight = labels[used], weight[used]
    order = categorical_order(y) if estimator.classes is None else estimator.classes
    if resume:
        known = estimator.classes_.tolist()
        if order is not None and list(order) != known:
            raise UserError(f"classes must be {known} as before, or set warm_start=False.")
        order = known
    classes, ranks = order_classes(labels, order)
    factors = weigh_classes(estimator.class_weight, classes, ranks, weight)
    used_groups = None if group_of is None else group_of[used].tolist()
    folds = _count_folds(estimator, len(ranks), has_validation=validation is not None)
    if folds:
        splits = Splits(train=np.arange(len(ranks)))
    else:
        has_validation = validation is not None
        splits = _draw_splits(estimator, ranks, used_groups, has_validation=has_validation)
    encoding = estimator.encoding_ if resume else None
    if estimator._takes_table and encoding is None:
        encoding = _fit_encoding(estimator, x, used[splits.train])
    samples = Samples(_encode(estimator, x, encoding)[used], ranks, weight)
    held_out = samples.take(splits.validation)
    if validation is not None:
        x, labels, weight = _check_samples(estimator, *validation, reset=False)
        held_out = Samples(_encode(estimator, x, encoding), ranks_of(labels, classes), weight)
        held_out = held_out.take(np.flatnonzero(weight))
    train, calibration = samples.take(splits.train), samples.take(splits.calibration)
    fold_of = assign_folds(ranks, folds, estimator._seed, used_groups) if folds else None
    own = None if used_groups is None else [used_groups[i] for i in splits.train]
    return FitData(classes, factors, train, held_out, calibration, encoding, fold_of, own)


def read_rows(estimator: "OrdinalClassifier", X: ArrayLike) -> Rows:
    """Check X for a fitted estimator, and encode a table."""
    check_is_fitted(estimator)
    return _encode(estimator, _check_rows(estimator, X, reset=False), estimator.encoding_)


def _count_folds(estimator: "OrdinalClassifier", count: int, has_validation: bool) -> int:
    """Count the folds of the cross-validation: by default 3 for small data, otherwise none."""
    if estimator.folds is not None:
        return estimator.folds
    small = count < FEWEST_FOR_SPLITS and estimator.recipe == "modern"
    return FOLDS if small and not has_validation and estimator.validation_fraction else 0


def _draw_splits(
    estimator: "OrdinalClassifier", ranks: Array, groups: list[Any] | None, has_validation: bool
) -> Splits:
    """Draw which samples are for training, validation and calibration."""
    seed = estimator._seed
    fraction = 0.0 if has_validation else estimator.validation_fraction
    share = estimator.calibration_fraction
    if share is None:
        share = estimator.validation_fraction if estimator.recipe == "modern" else 0.0
    train, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed), groups)
    if fraction > 0 and len(held_out) == 0:
        message = "Without validation samples, the last epoch is kept: classes have one sample."
        warnings.warn(message, stacklevel=4)  # where fit was called
    drawn = Splits(train, held_out, test=np.zeros(0, dtype=np.int64))
    splits, notes = hold_out_calibration(drawn, ranks, share, seed, groups)
    if len(splits.calibration) == 0 and share * len(train) >= FEWEST_FOR_CALIBRATION:
        warnings.warn(notes[0], stacklevel=4)
    return splits


def _check_samples(
    estimator: "OrdinalClassifier", X: Any, y: Any, sample_weight: Any, *, reset: bool
) -> tuple[Rows, Array, Array]:
    """Return checked rows, labels and weights."""
    x = _check_rows(estimator, X, reset=reset)
    labels = check_X_y(np.zeros((x.shape[0], 1)), y, estimator=estimator)[1]
    return x, labels, check_weight(sample_weight, len(labels))


def _check_groups(groups: ArrayLike | None, n: int) -> Array | None:
    if groups is None:
        return None
    group_of: Array = np.asarray(groups, dtype=object)  # numbers and strings may be mixed
    if group_of.shape != (n,):
        raise UserError(f"groups must have the shape ({n},), got {group_of.shape}")
    for row, group in enumerate(group_of):
        if not isinstance(group, str) and str(group) in ("None", "nan", "NaT", "<NA>"):
            raise UserError(f"groups has no value in row {row}. Give the row its own group.")
    return group_of


def _check_rows(estimator: "OrdinalClassifier", X: Any, *, reset: bool) -> Rows:
    """Check X as scikit-learn does; the data frame of a table stays a data frame."""
    is_table = estimator._takes_table
    if is_table and hasattr(X, "to_pandas"):  # a frame of another library
        X = X.to_pandas()
    if is_table and _is_frame(X):
        if 0 in X.shape:
            raise UserError(f"X must have at least one row and one column, got {X.shape}")
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X.set_axis(_column_names(estimator), axis=1)
    return validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        # a table is standardized before it is rounded
        dtype=np.float64 if is_table else np.float32,
        allow_nd=not is_table,
        ensure_all_finite="allow-nan" if is_table and not sparse.issparse(X) else True,
    )


def _column_names(estimator: "OrdinalClassifier") -> list[str]:
    numbered = [f"x{place}" for place in range(estimator.n_features_in_)]
    return list(getattr(estimator, "feature_names_in_", numbered))


def _is_frame(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _fit_encoding(estimator: "OrdinalClassifier", x: Rows, train: Indices) -> TableEncoding:
    if _is_frame(x):
        return TableEncoding.fit(x, train)
    names = _column_names(estimator)
    if sparse.issparse(x):
        return TableEncoding(tuple(NumericColumn(name, 0.0, False) for name in names), ())
    columns = (
        NumericColumn(name, float(np.nanmedian(values)), bool(np.isnan(values).any()))
        for name, values in zip(names, x[train].T, strict=True)
        if not np.isnan(values).all()  # a column without values is not used
    )
    return TableEncoding(tuple(columns), ())


def _encode(estimator: "OrdinalClassifier", x: Rows, encoding: TableEncoding | None) -> Rows:
    """Convert checked rows of a table to numbers; without pandas, unless they are a frame."""
    if encoding is None:
        return x
    if _is_frame(x):
        return encoding.apply(x, [f"row {place}" for place in range(len(x))])
    if encoding.categorical:
        raise UserError("X must be a data frame as in fit, which had columns with categories.")
    names = _column_names(estimator)
    if list(encoding.columns) == names and (sparse.issparse(x) or not np.isnan(x).any()):
        return x
    x = x.toarray() if sparse.issparse(x) else x
    encoded = []
    for column in encoding.numeric:
        values = x[:, names.index(column.name)]
        missing = np.isnan(values)
        encoded.append(np.where(missing, column.median, values))
        if column.indicator:
            encoded.append(missing)
    return np.stack(encoded, axis=1)


def to_tensor(rows: Rows) -> Tensor:
    """Copy rows to a tensor, so that a module that works in place does not change X."""
    dense = rows.toarray() if sparse.issparse(rows) else rows
    return torch.from_numpy(np.array(dense, order="C"))


def column_blocks(rows: Rows) -> Iterator[Tensor]:
    """Yield blocks of columns: a sparse matrix never becomes dense as a whole."""
    width = rows.shape[1]
    if sparse.issparse(rows):
        rows, width = rows.tocsc(), max(1, _BLOCK // rows.shape[0])
    for start in range(0, rows.shape[1], width):
        yield to_tensor(rows[:, start : start + width])
