"""Labels: the order of the classes, their ranks, and class weights.

The labels of files are texts. Their order is given by the user or implied by the names
(:mod:`layline.data.class_order`); it is never guessed. The labels of the estimator may be of any
kind; they are sorted, with a warning where that may be wrong.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from natsort import natsort_keygen, ns
from numpy.typing import ArrayLike, NDArray

from layline.data.class_order import is_number, known_order
from layline.data.dataset import Dataset, Indices, KnownClasses
from layline.utils.validation import UserError

Array = NDArray[Any]
natural_key = natsort_keygen(alg=ns.IGNORECASE)  # "grade 9" before "Grade 10"


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names naturally, and by value if all of them are numbers."""
    names = sorted(names)
    return sorted(names, key=float if all(map(is_number, names)) else natural_key)


def parse_names(argument: str, names: str | Sequence[Any]) -> tuple[str, ...]:
    """Read different names from a list or from a text such as ``"a,b,c"``."""
    items = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    parsed = tuple(map(str, items)) if isinstance(items, Sequence) else ("",)
    if "" in parsed:
        raise UserError(f"{argument} must be names separated by commas, got {names!r}.")
    for name in parsed:
        if parsed.count(name) > 1:
            raise UserError(f"{argument} lists {name!r} twice.")
    return parsed


def rank_labels(
    labels: Sequence[str], classes: str | Sequence[Any] | None
) -> tuple[Indices, tuple[str, ...], str]:
    """Return the rank of each label, the classes, and a note on their order.

    The order is given by ``classes``, or else implied by the labels.
    """
    names = natural_order(set(labels))
    for name in names:
        if re.search("[\ud800-\udfff]", name):
            raise UserError(f"{name!r} is not valid Unicode. Rename it.")
    if isinstance(classes, KnownClasses):
        others = [name for name in names if name not in classes]
        ordered: tuple[str, ...] = KnownClasses((*classes, *others))
        note = "The classes and their order are the model's."
    elif classes is not None:
        ordered, note = parse_names("classes", classes), "The classes are in the order given."
        if {*ordered} != {*names}:
            raise UserError(
                f"classes lists {', '.join(ordered)}, but the data have the classes "
                f"{', '.join(names)}."
            )
    elif known := known_order(names):
        ordered, note = tuple(known[0]), f"The classes are in the order of {known[1]}."
    else:
        raise UserError(
            f"The order of the classes {', '.join(names)} is unknown. List the classes from the "
            "lowest to the highest."
        )
    rank_of = {name: rank for rank, name in enumerate(ordered)}
    return np.array([rank_of[label] for label in labels], dtype=np.int64), ordered, note


def match_classes(dataset: Dataset, known: Sequence[str], skip_unknown: bool = False) -> Dataset:
    """Replace the classes of data by those of a model, matched by name.

    Samples of other classes are dropped with ``skip_unknown``, and refused otherwise.
    """
    samples = Counter(dataset.classes[rank] for rank in dataset.ranks.tolist())
    unknown = [name for name in dataset.classes if name in samples and name not in known]
    place = np.array([known.index(c) if c in known else -1 for c in dataset.classes])
    outside = np.flatnonzero(place[dataset.ranks] == -1)
    notes = list(dataset.notes)
    if unknown and not skip_unknown:
        raise UserError(
            f"The model does not know the classes {', '.join(unknown)}; it knows "
            f"{', '.join(known)}. Rename them, or skip unknown classes ({len(outside)} samples)."
        )
    if unknown:
        dataset = dataset.drop(outside)
        listed = ", ".join(f"{name!r} ({samples[name]})" for name in unknown)
        notes.append(f"Samples of classes that the model does not know are not used: {listed}.")
    if len(dataset.inputs) == 0:
        raise UserError(f"The data have no samples of the model's classes: {', '.join(known)}.")
    absent = [name for name in known if name not in samples]
    if absent:
        notes.append(f"The data have no samples of {', '.join(absent)}.")
    ranks, classes = place[dataset.ranks], tuple(known)
    return replace(dataset, ranks=ranks, classes=classes, fixed_classes=True, notes=tuple(notes))


def categorical_order(y: Any) -> list[Any] | None:
    """Return the order of labels in an ordered pandas Categorical; None for other labels."""
    if hasattr(y, "iloc") and y.ndim == 2:  # a data frame
        y = y.iloc[:, 0]
    dtype: Any = getattr(y, "dtype", None)
    return list(dtype.categories) if getattr(dtype, "ordered", False) else None


def ranks_of(y: ArrayLike, classes: Array) -> Array:
    """Turn labels into their places in ``classes``."""
    rank_of = {label: rank for rank, label in enumerate(classes.tolist())}
    labels, place = _unique(np.asarray(y))
    unknown = [label for label in labels.tolist() if label not in rank_of]
    if unknown:
        raise UserError(
            f"y must hold labels of classes only, got {unknown[0]!r}: list it in classes=[…] at "
            "its place in the order"
        )
    return np.array([rank_of[label] for label in labels.tolist()], dtype=np.int64)[place]


def _unique(y: Array) -> tuple[Array, Array]:
    try:
        return np.unique(y, return_inverse=True)
    except TypeError as error:
        raise UserError(
            f"y must hold labels of one kind, got {error}: numbers or strings, none missing"
        ) from error


def check_order(order: Sequence[Any]) -> Array:
    """Return the classes that a user lists, lowest first."""
    classes = np.asarray(order)
    different = classes.ndim == 1 and len(set(classes.tolist())) == len(classes)
    if not different or classes.tolist() != list(order):  # numpy converts numbers to strings
        raise UserError(f"classes must be different labels of one kind, got {order!r}")
    return classes


def order_classes(y: Array, order: Sequence[Any] | None) -> tuple[Array, Array]:
    """Return the classes in order and the rank of each label.

    Without an order they are sorted, as in scikit-learn, with a warning if strings have a different
    or unknown order.
    """
    classes = _unique(y)[0] if order is None else check_order(order)
    labels = classes.tolist()
    if order is None and len(labels) > 2 and all(isinstance(label, str) for label in labels):
        known = known_order(labels)
        if known is None or known[0] != labels:
            better = "" if known is None else f", for example classes={known[0]!r}"
            warnings.warn(
                f"y has strings, sorted alphabetically as {' < '.join(labels)}. Give the order of "
                f"the classes, lowest first{better}",
                stacklevel=4,  # where fit was called
            )
    ranks = ranks_of(y, classes)
    counts = np.bincount(ranks, minlength=len(classes))
    if (counts > 0).sum() < 2:
        raise UserError(f"y must have at least two classes, got one class, {y.tolist()[0]!r}")
    absent = classes[counts == 0].tolist()
    if absent:
        warnings.warn(
            f"classes has labels that never occur in y: {', '.join(map(repr, absent))}. "
            "They keep their rank and their column of probabilities",
            stacklevel=4,
        )
    return classes, ranks


def weigh_classes(
    class_weight: str | Mapping[Any, float] | None, classes: Array, ranks: Array, weight: Array
) -> Array:
    r"""Compute the weight of each class.

    ``balanced`` gives all classes the same total weight, :math:`w_k \propto 1/n_k`. ``effective``
    divides by the effective number of samples (Cui et al., Class-Balanced Loss, CVPR 2019),

    .. math:: w_k \propto \frac{1 - \beta}{1 - \beta^{n_k}}, \qquad \beta = \frac{N - 1}{N}

    with N the mean number of samples of a class. In both the weights of all samples have mean 1.
    """
    factors = np.ones(len(classes))
    if class_weight is None:
        return factors
    if isinstance(class_weight, str) and class_weight in ("balanced", "effective"):
        present = np.unique(ranks)
        counts = np.bincount(ranks, weights=weight)[present]
        if class_weight == "balanced":
            factors[present] = weight.sum() / (len(present) * counts)
        else:
            n = counts * (len(ranks) / weight.sum())  # only ratios of weights matter
            effective = 1 - (1 - 1 / n.mean()) ** n
            factors[present] = weight.sum() / (counts / effective).sum() / effective
        return factors
    if not isinstance(class_weight, Mapping):
        raise UserError(
            f"class_weight must be None, 'balanced', 'effective' or a dict, got {class_weight!r}"
        )
    for label, value in class_weight.items():
        if label not in classes.tolist():
            raise UserError(f"class_weight must have classes as keys, got {label!r}: no such class")
        if not (isinstance(value, Real) and 0 < value < np.inf):
            raise UserError(f"class_weight must be finite and above 0, got {value!r} for {label!r}")
        factors[classes.tolist().index(label)] = value
    return factors


def check_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Return one weight per row, in float64, the largest of which is 1."""
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise UserError(f"sample_weight must have the shape ({n},), got {weight.shape}")
    wrong = ~((weight >= 0) & np.isfinite(weight))
    if wrong.any() or not weight.any():
        row = int(wrong.argmax())
        raise UserError(
            "sample_weight must be finite, not negative and not all zero, got "
            f"{weight[row]} in row {row}"
        )
    return np.asarray(weight / weight.max())  # so that sums stay finite
