"""Labels: their order, their ranks, and how much each class counts."""

import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def categorical_order(y: Any) -> list[Any] | None:
    """Give the order that the labels carry themselves, as an ordered pandas Categorical does."""
    if getattr(y, "ndim", 1) == 2 and hasattr(y, "iloc") and y.shape[1] == 1:
        y = y.iloc[:, 0]
    dtype: Any = getattr(y, "dtype", None)
    return list(dtype.categories) if getattr(dtype, "ordered", False) else None


def ranks_of(y: ArrayLike, classes: Array) -> Array:
    """Turn labels into their places in ``classes``."""
    rank_of = {label: rank for rank, label in enumerate(classes.tolist())}
    labels, place = _unique(np.asarray(y))
    unknown = [label for label in labels.tolist() if label not in rank_of]
    if unknown:
        raise ValueError(
            f"y must hold labels of classes only, got {unknown[0]!r}: "
            "list it in classes=[…], at its place in the order (meta-estimators that turn labels "
            "into numbers want ranks as y)"
        )
    return np.array([rank_of[label] for label in labels.tolist()], dtype=np.int64)[place]


def _unique(y: Array) -> tuple[Array, Array]:
    """Find the different labels, sorted, and the place of each among them."""
    try:
        return np.unique(y, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"y must hold labels of one kind, got {error}: numbers or strings, none missing"
        ) from error


def order_classes(y: Array, order: Sequence[Any] | None) -> tuple[Array, Array]:
    """Give the classes in order and the rank of each label."""
    classes = _unique(y)[0] if order is None else np.asarray(order)
    if classes.ndim != 1 or len(set(classes.tolist())) < len(classes):
        raise ValueError(
            f"classes must be a list of different labels, got {order!r}: each has one rank"
        )
    if order is not None and classes.tolist() != list(order):
        raise ValueError(
            f"classes must be labels of one kind, got {order!r}: numbers or strings, not both"
        )
    ranks = ranks_of(y, classes)
    counts = np.bincount(ranks, minlength=len(classes))
    if (counts > 0).sum() < 2:
        raise ValueError(
            f"y must have at least two classes, got one class, {y.tolist()[0]!r}: "
            "there is nothing to learn"
        )
    if len(y) < len(classes):
        raise ValueError(
            f"y must have at least as many samples as classes, got {len(y)} samples for "
            f"{len(classes)} classes: give more samples or fewer classes"
        )
    absent = classes[counts == 0].tolist()
    if absent:
        warnings.warn(
            f"classes has labels that never occur in y: {', '.join(map(repr, absent))}. "
            "They keep their rank and their column of probabilities",
            stacklevel=4,  # where fit was called
        )
    return classes, ranks


def weigh_classes(
    class_weight: str | Mapping[Any, float] | None, classes: Array, ranks: Array, weight: Array
) -> Array:
    """Give the weight of each class."""
    factors = np.ones(len(classes))
    if class_weight is None:
        return factors
    if isinstance(class_weight, str) and class_weight == "balanced":
        present, counts = np.unique(ranks), np.bincount(ranks, weights=weight)
        factors[present] = weight.sum() / (len(present) * counts[present])
        return factors
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be None, 'balanced' or a dict, got {class_weight!r}: "
            "a dict gives labels their weights"
        )
    for label, value in class_weight.items():
        if label not in classes.tolist():
            raise ValueError(
                f"class_weight must have classes as keys, got {label!r}: no such class"
            )
        if not (isinstance(value, Real) and 0 < value < np.inf):
            raise ValueError(
                f"class_weight must be finite and above 0, got {value!r} for {label!r}: "
                "to leave a class out, leave out its samples"
            )
        factors[classes.tolist().index(label)] = value
    return factors
