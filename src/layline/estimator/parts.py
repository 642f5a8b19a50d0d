"""The samples of a fit, and its parts: to train on, to choose the epoch by, and for the ranges."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from layline.data.dataset import Indices, Splits
from layline.data.labels import (
    Array,
    categorical_order,
    checked_weight,
    order_classes,
    ranks_of,
    weigh_classes,
)
from layline.data.loaders import Batches, RowBatches
from layline.data.splits import FEWEST_FOR_CALIBRATION, hold_out_calibration, stratified_holdout
from layline.data.table_encoding import TableEncoding
from layline.estimator.inputs import (
    Rows,
    SparseBatches,
    as_tensor,
    encoded_frame,
    fitted_samples,
    is_frame,
    tensor_dtype,
    training_samples,
)
from layline.evaluation.predictions import Split
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.estimator.classifier import OrdinalClassifier


@dataclass(frozen=True)
class Samples:
    """Checked samples.

    Attributes:
        rows: Their X, in numbers.
        ranks: The class of each.
        weight: How much each counts.
    """

    rows: Rows
    ranks: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.ranks)

    def take(self, index: Indices) -> Self:
        """Give some of them."""
        return type(self)(self.rows[index], self.ranks[index], self.weight[index])

    def as_part(self, class_factors: Array, *, keeps_dtype: bool) -> Split:
        """Give them as the training loop takes them.

        Args:
            class_factors: What the weights of each class are multiplied by.
            keeps_dtype: Whether rows keep their dtype, as those of a table do.
        """
        weight = self.weight * class_factors[self.ranks]
        scaled = weight / weight.max()
        # near one they fit into float32, and the lightest must not become zero there
        scaled = np.maximum(scaled / scaled.mean(), np.finfo(np.float32).tiny)
        samples: Batches
        if sparse.issparse(self.rows):
            samples = SparseBatches(self.rows, tensor_dtype(self.rows, keeps_dtype))
        else:
            samples = RowBatches(as_tensor(self.rows, keeps_dtype=keeps_dtype).numpy())
        weights = torch.tensor(scaled, dtype=torch.float32)
        return Split(samples, torch.from_numpy(self.ranks), weights)


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
            raise UserError(f"{missing} must be given with {there}, got none: they are a pair")
        if X_val is None and sample_weight_val is not None:
            raise UserError("X_val must be given with sample_weight_val, got none")
        return None if X_val is None else Validation(X_val, y_val, sample_weight_val)
    if X_val is not None or y_val is not None or sample_weight_val is not None:
        raise UserError("eval_set must be None with X_val and y_val, got both: give one of them")
    found = eval_set
    if isinstance(found, list) and len(found) == 1:  # as XGBoost and LightGBM have it
        found = found[0]
    if not (isinstance(found, tuple | list) and len(found) in (2, 3)):
        got = f"{len(found)} of them" if isinstance(found, list | tuple) else type(found).__name__
        raise UserError(
            f"eval_set must be one pair (X_val, y_val), got {got}: a third item is the weights of "
            "the samples, and there is one set to choose the epoch by"
        )
    if isinstance(found, list) and all(isinstance(each, tuple) for each in found):
        raise UserError(
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
        raise UserError(
            f"groups must have the shape ({n},), got {found.shape}: one for each row of X"
        )
    for row, group in enumerate(found):
        if group is None or group != group or str(group) in ("<NA>", "NaT"):
            raise UserError(
                f"groups must be there for every row, got {group} in row {row}: give a row that "
                "belongs to nothing a group of its own"
            )
    return found


@dataclass(frozen=True)
class FitParts:
    """What a fit learns from.

    Attributes:
        classes: The labels, lowest first.
        class_factors: What the weights of each class are multiplied by.
        train: To train on.
        validation: To choose the epoch by.
        calibration: For the ranges, learned from by nothing.
    """

    classes: Array
    class_factors: Array
    train: Samples
    validation: Samples
    calibration: Samples


def read_parts(
    estimator: "OrdinalClassifier",
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    *,
    groups: ArrayLike | None,
    validation: Validation | None,
    goes_on: bool,
) -> FitParts:
    """Check what ``fit`` is given, order the classes, and divide the samples.

    ``fit`` calls it: warnings point to where that was called.

    Args:
        estimator: Is told its seed and the encoding of X, unless it has them.
        X: As for ``fit``.
        y: As for ``fit``.
        sample_weight: As for ``fit``.
        groups: As for ``fit``.
        validation: Samples to choose the epoch by, if they are given.
        goes_on: Whether training goes on from what is fitted, which X and y must be like.
    """
    x, labels = fitted_samples(estimator, X, y) if goes_on else training_samples(estimator, X, y)
    check_classification_targets(labels)
    weight = checked_weight(sample_weight, len(labels))
    group_of = checked_groups(groups, len(labels))
    counted = weight > 0
    if not counted.all():
        x, labels, weight = x[counted], labels[counted], weight[counted]
        group_of = None if group_of is None else group_of[counted]
    order = categorical_order(y) if estimator.classes is None else estimator.classes
    if goes_on:
        order = _same_order(estimator, order)
    classes, ranks = order_classes(labels, order)
    factors = weigh_classes(estimator.class_weight, classes, ranks, weight)
    if not goes_on:
        drawn = check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max)
        estimator._seed = int(drawn)
    parts = _divide(estimator, ranks, group_of, holds_out=validation is None)
    if is_frame(x):
        estimator.encoding_ = TableEncoding.fit(x, parts.train)
        x = encoded_frame(x, estimator.encoding_, np.flatnonzero(counted))
    elif not goes_on:
        estimator.encoding_ = None
    samples = Samples(x, ranks, weight)
    return FitParts(
        classes=classes,
        class_factors=factors,
        train=samples.take(parts.train),
        validation=samples.take(parts.validation)
        if validation is None
        else _validation_samples(estimator, validation, classes),
        calibration=samples.take(parts.calibration),
    )


def _same_order(estimator: "OrdinalClassifier", order: Sequence[Any] | None) -> list[Any]:
    """Give the classes that are fitted; another order of them cannot go on."""
    known: list[Any] = estimator.classes_.tolist()
    if order is not None and list(order) != known:
        raise UserError(
            f"classes must be {known} as before with warm_start, got {list(order)}: set "
            "warm_start=False to begin anew"
        )
    return known


def _divide(
    estimator: "OrdinalClassifier", ranks: Array, groups: Array | None, *, holds_out: bool
) -> Splits:
    """Draw which samples are trained on, held out, and kept apart for calibration."""
    fraction = estimator.validation_fraction if holds_out else 0.0
    share = estimator.calibration_fraction
    if share is None:
        share = estimator.validation_fraction if estimator.recipe == "modern" else 0.0
    own = None if groups is None else groups.tolist()
    rng = np.random.default_rng(estimator._seed)
    rows, held_out = stratified_holdout(ranks, fraction, rng, own)
    if fraction > 0 and len(held_out) == 0:
        warnings.warn(
            "validation_fraction needs a class with two samples, got one sample of each: "
            "nothing is held out, and the last epoch is kept",
            stacklevel=4,  # where fit was called
        )
    drawn = Splits(rows, held_out, test=np.zeros(0, dtype=np.int64))
    parts, notes = hold_out_calibration(drawn, ranks, share, estimator._seed, own)
    if len(parts.calibration) == 0 and share * len(rows) >= FEWEST_FOR_CALIBRATION:
        warnings.warn(notes[0], stacklevel=4)  # where fit was called
    return parts


def _validation_samples(
    estimator: "OrdinalClassifier", given: Validation, classes: Array
) -> Samples:
    """Check the samples that a user gives to choose the epoch by."""
    rows, labels = fitted_samples(estimator, given.X, given.y)
    unknown = [label for label in np.unique(labels).tolist() if label not in classes.tolist()]
    if unknown:
        raise UserError(
            f"eval_set must have labels of y only, got {unknown[0]!r}: the classes are "
            f"{', '.join(map(str, classes.tolist()))}"
        )
    weight = checked_weight(given.sample_weight, len(labels))
    counted = weight > 0
    return Samples(rows[counted], ranks_of(labels[counted], classes), weight[counted])
