"""Labels: the order of the classes, their ranks, and how much each class counts.

The labels of a file are texts. Their order is the one that the user gives, or one that they carry
themselves (:mod:`layline.data.class_order`); it is never guessed. Labels of the estimator
may be of any kind; they are sorted, and it warns where that may be wrong.
"""

import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layline.data.class_order import guess_order, is_number, known_order
from layline.data.dataset import Dataset, Indices, KnownClasses
from layline.utils.errors import UserError

Array = NDArray[Any]
_DIGITS = re.compile("([0-9]+)")


def natural_key() -> Callable[[str], str]:
    """Give the key of natural order: "grade 9" before "Grade 10", upper and lower case alike."""
    return _natural_key


def _natural_key(name: str) -> str:
    """Write a name such that its order by characters is the natural one.

    A number becomes its length and its digits, behind a character that is below all others, so that
    it is a piece of its own. Letters beyond ASCII go by their code points.
    """
    pieces = _DIGITS.split(name.casefold())
    for i in range(1, len(pieces), 2):
        digits = pieces[i].lstrip("0")
        pieces[i] = f"\0{chr(min(len(digits) + 1, sys.maxunicode))}{digits}"
    return "".join(pieces)


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names; where all of them are numbers, by value. Equal names stay in their order."""
    names = list(names)
    return sorted(names, key=float if all(map(is_number, names)) else natural_key())


def parse_names(argument: str, names: str | Sequence[Any]) -> tuple[str, ...]:
    """Read a list of different names, written as a list or as ``"a,b,c"``."""
    items = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    parsed = tuple(map(str, items)) if isinstance(items, Sequence) else ("",)
    if "" in parsed or len(set(parsed)) < len(parsed):
        raise UserError(f"{argument} must be different names, got {names!r}: write a,b,c")
    return parsed


def order_names(
    names: Collection[str], classes: str | Sequence[Any] | None, plural: str
) -> tuple[tuple[str, ...], str]:
    """Give the classes in order, and a note that says where the order came from.

    Without ``classes`` the names have to carry their order themselves; nothing is guessed. Names
    outside ``classes`` are for the caller to refuse: it knows their place in the data.

    Args:
        names: The different names in the data.
        classes: The order, or None for the one that the names carry.
        plural: What the names are, for the messages.
    """
    ordered = natural_order(sorted(names))
    for name in ordered:
        if re.search("[\ud800-\udfff]", name):
            raise UserError(
                f"{plural} must be Unicode, got {name!r}: rename it, since a model file has the "
                "names of its classes"
            )
    if isinstance(classes, KnownClasses):
        others = [name for name in ordered if name not in classes]
        return KnownClasses((*classes, *others)), "The classes are those of the model, in its order"
    if classes is not None:
        order = parse_names("classes", classes)
        absent = [name for name in order if name not in names]
        if absent:
            raise UserError(
                f"classes must be {plural} of the data, got {', '.join(map(repr, absent))}: "
                f"there are only {', '.join(ordered)}"
            )
        return order, "The classes are in the order given"
    key = float if all(map(is_number, ordered)) else natural_key()
    for before, after in pairwise(ordered):
        if key(before) == key(after):
            raise UserError(
                f"{plural} must have an order, got {before!r} and {after!r}: "
                "write them alike, or give classes"
            )
    known = known_order(ordered)
    if known is None:
        raise UserError(
            f"{plural} must have an order that is known, got {', '.join(ordered)}: they are "
            "neither numbers nor ranges nor a known scale. Give the order, lowest first; "
            f"this line is a guess to be corrected: {classes_line(guess_order(ordered))}"
        )
    return tuple(known[0]), f"The {plural} are in the order of {known[1]}"


def classes_line(names: Sequence[str]) -> str:
    """Write the option that gives classes their order, ready for a shell."""
    if any("," in name or name != name.strip() for name in names):
        listed = ", ".join(json.dumps(name, ensure_ascii=False) for name in names)  # also TOML
        return f"--set {shlex.quote(f'data.options.classes=[{listed}]')}"
    return f"--classes {shlex.quote(','.join(names))}"


def rank_labels(
    labels: Sequence[str], rows: Sequence[int], classes: str | Sequence[Any] | None
) -> tuple[Indices, tuple[str, ...], str]:
    """Give the ranks of labels in the rows of a file, the classes, and the note on their order."""
    ordered, note = order_names(set(labels), classes, "labels")
    rank_of = {name: rank for rank, name in enumerate(ordered)}
    for label, row in zip(labels, rows, strict=True):
        if label not in rank_of:
            raise UserError(
                f"labels must be among {', '.join(ordered)}, got {label!r} in row {row}: "
                "correct it, or add it to classes"
            )
    return np.array([rank_of[label] for label in labels], dtype=np.int64), ordered, note


def match_classes(dataset: Dataset, known: Sequence[str], skip_unknown: bool = False) -> Dataset:
    """Give data the classes of a model, matched by name, in the model's order.

    A class that the data lack is said in a note; one that the model does not know is refused.

    Args:
        dataset: Read with :class:`KnownClasses`, or with classes of its own.
        known: The classes of the model, lowest first.
        skip_unknown: Leave samples of other classes out instead.
    """
    counts = np.bincount(dataset.ranks, minlength=len(dataset.classes))
    samples = dict(zip(dataset.classes, counts.tolist(), strict=True))
    unknown = {name: count for name, count in samples.items() if count and name not in known}
    notes = []
    if unknown and not skip_unknown:
        raise UserError(_unknown_classes(unknown, known))
    if unknown:
        rank_of = {name: rank for rank, name in enumerate(dataset.classes)}
        outside = np.isin(dataset.ranks, [rank_of[name] for name in unknown])
        dataset = dataset.drop(np.flatnonzero(outside).tolist())
        listed = ", ".join(f"{name!r} ({count})" for name, count in unknown.items())
        notes.append(f"Left out, since the model does not know their classes: {listed}")
    if len(dataset.inputs) == 0:
        raise UserError(
            f"the data must have classes of the model, {', '.join(known)}, got no sample of them"
        )
    absent = [name for name in known if not samples.get(name)]
    if absent:
        notes.append(f"No samples of classes that the model knows: {', '.join(absent)}")
    place = np.array([known.index(c) if c in known else -1 for c in dataset.classes])
    return replace(
        dataset,
        ranks=place[dataset.ranks],
        classes=tuple(known),
        fixed_classes=True,
        notes=(*dataset.notes, *notes),
    )


def _unknown_classes(unknown: Mapping[str, int], known: Sequence[str]) -> str:
    """Say which classes a model does not know, and what may be done about it."""
    first = next(iter(unknown))
    folded = {name.casefold().strip(): name for name in known}
    near = get_close_matches(first.casefold().strip(), folded, n=1)
    meant = f"rename {first!r} if it is {folded[near[0]]!r}" if near else "rename them"
    total = sum(unknown.values())
    samples = "its 1 sample" if total == 1 else f"their {total} samples"
    return (
        f"the data must have the classes of the model, {', '.join(known)}, got "
        f"{', '.join(unknown)}: {meant}, or leave {samples} out with --skip-unknown"
    )


def categorical_order(y: Any) -> list[Any] | None:
    """Give the order that the labels carry themselves, as an ordered pandas Categorical does."""
    pandas = sys.modules.get("pandas")  # without it there is no such y
    if pandas is None:
        return None
    if isinstance(y, pandas.DataFrame) and y.shape[1] == 1:
        y = y.iloc[:, 0]
    if not isinstance(y, pandas.Series | pandas.Index | pandas.Categorical):
        return None
    ordered = isinstance(y.dtype, pandas.CategoricalDtype) and y.dtype.ordered
    return list(y.dtype.categories) if ordered else None


def ranks_of(y: ArrayLike, classes: Array) -> Array:
    """Turn labels into their places in ``classes``."""
    rank_of = {label: rank for rank, label in enumerate(classes.tolist())}
    labels, place = _unique(np.asarray(y))
    unknown = [label for label in labels.tolist() if label not in rank_of]
    if unknown:
        raise UserError(
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
        raise UserError(
            f"y must hold labels of one kind, got {error}: numbers or strings, none missing"
        ) from error


def check_order(order: Sequence[Any]) -> Array:
    """Give the classes that a user lists, lowest first."""
    classes = np.asarray(order)
    if classes.ndim != 1 or len(set(classes.tolist())) < len(classes):
        raise UserError(
            f"classes must be a list of different labels, got {order!r}: each has one rank"
        )
    if classes.tolist() != list(order):
        raise UserError(
            f"classes must be labels of one kind, got {order!r}: numbers or strings, not both"
        )
    return classes


def order_classes(y: Array, order: Sequence[Any] | None) -> tuple[Array, Array]:
    """Give the classes in order and the rank of each label.

    Without an order they are sorted, as scikit-learn expects. That is said where they are strings
    whose order is another one, or is not known; two classes have no order that could be wrong.
    """
    classes = _unique(y)[0] if order is None else check_order(order)
    if order is None and len(classes) > 2:
        _warn_of_the_alphabet(classes.tolist())
    ranks = ranks_of(y, classes)
    counts = np.bincount(ranks, minlength=len(classes))
    if (counts > 0).sum() < 2:
        raise UserError(
            f"y must have at least two classes, got one class, {y.tolist()[0]!r}: "
            "there is nothing to learn"
        )
    if len(y) < len(classes):
        raise UserError(
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


def _warn_of_the_alphabet(labels: list[Any]) -> None:
    """Warn of strings that are sorted, where their order is another one or not known."""
    if not all(isinstance(label, str) for label in labels):
        return
    known = known_order(labels)
    if known is None:
        why, right = "by the alphabet, and their order is not known", guess_order(labels)
        cure = "correct this guess, lowest first"
    else:
        right, reason = known
        why, cure = f"against the order of {reason}", "give"
    if known is None or right != labels:
        warnings.warn(
            f"y has strings, sorted as {' < '.join(labels)}, {why}: {cure} classes={right!r}",
            stacklevel=5,  # where fit was called
        )


def weigh_classes(
    class_weight: str | Mapping[Any, float] | None, classes: Array, ranks: Array, weight: Array
) -> Array:
    r"""Give the weight of each class.

    ``balanced`` makes all classes count the same, :math:`w_k \propto 1/n_k`. ``effective`` divides
    by the effective number of samples instead (Cui et al., Class-Balanced Loss, CVPR 2019),

    .. math:: w_k \propto \frac{1 - \beta}{1 - \beta^{n_k}}, \qquad \beta = \frac{N - 1}{N}

    with N the mean number of samples of a class: rare classes are weighed as if balanced, while
    frequent ones keep some of what they are ahead. In both the weights of all samples have mean 1.
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
            f"class_weight must be None, 'balanced', 'effective' or a dict, got {class_weight!r}: "
            "a dict gives labels their weights"
        )
    for label, value in class_weight.items():
        if label not in classes.tolist():
            raise UserError(f"class_weight must have classes as keys, got {label!r}: no such class")
        if not (isinstance(value, Real) and 0 < value < np.inf):
            raise UserError(
                f"class_weight must be finite and above 0, got {value!r} for {label!r}: "
                "to leave a class out, leave out its samples"
            )
        factors[classes.tolist().index(label)] = value
    return factors


def checked_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Give one weight per row, in float64; only their ratios matter."""
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise UserError(
            f"sample_weight must have the shape ({n},), got {weight.shape}: one for each row of X"
        )
    wrong = ~((weight >= 0) & np.isfinite(weight))
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"sample_weight must be finite and not negative, got {weight[row]} in row {row}: "
            "0 leaves a sample out"
        )
    if not weight.any():
        raise UserError("sample_weight must be above zero somewhere, got only zeros: no sample")
    return np.asarray(weight / weight.max())  # so that sums stay finite
