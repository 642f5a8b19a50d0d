"""The classes of the user's own data: which there are, and in what order."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from layline.data.base import Indices
from layline.data.natural import is_number, natural_key, natural_order


def parse_names(argument: str, names: str | Sequence[Any]) -> tuple[str, ...]:
    """Read a list of different names, given as such or as ``"a,b,c"``."""
    given = names.split(",") if isinstance(names, str) else names
    parsed = tuple(str(name).strip() for name in given) if isinstance(given, Sequence) else ("",)
    if "" in parsed or len(set(parsed)) < len(parsed):
        raise ValueError(f"{argument} must be different names, got {names!r}: write a,b,c")
    return parsed


def order_found(
    found: Collection[str], classes: str | Sequence[Any] | None, called: str
) -> tuple[tuple[str, ...], str]:
    """Give the classes in order, and the sentence that says where the order came from.

    Names outside ``classes`` are for the caller to refuse: it knows where they stand.

    Args:
        found: The different names in the data.
        classes: The order, or None for the natural order.
        called: What the names are, in the plural.
    """
    if classes is not None:
        given = parse_names("classes", classes)
        absent = [name for name in given if name not in found]
        if absent:
            raise ValueError(
                f"classes must be {called} of the data, got {', '.join(map(repr, absent))}: "
                f"there are only {', '.join(natural_order(sorted(found)))}"
            )
        return given, "The classes are in the order given"
    ordered = natural_order(sorted(found))
    key = float if all(map(is_number, ordered)) else natural_key
    for before, after in pairwise(ordered):
        if key(before) == key(after):
            raise ValueError(
                f"{called} must have an order, got {before!r} and {after!r}: "
                "write them alike, or give classes"
            )
    return tuple(ordered), f"The classes are in the natural order of the {called}"


def ranks_in(labels: Sequence[str], classes: Sequence[str]) -> Indices:
    """Give the place of each label among the classes, -1 where it has none."""
    place = {name: rank for rank, name in enumerate(classes)}
    return np.array([place.get(label, -1) for label in labels], dtype=np.int64)


def rank_labels(
    labels: Sequence[str], rows: Sequence[int], classes: str | Sequence[Any] | None
) -> tuple[Indices, tuple[str, ...], str]:
    """Give the ranks of labels that stand in rows of a file, the classes, and their sentence."""
    ordered, note = order_found(set(labels), classes, "labels")
    ranks = ranks_in(labels, ordered)
    if (ranks < 0).any():
        first = int(np.argmin(ranks))
        raise ValueError(
            f"labels must be among {', '.join(ordered)}, got {labels[first]!r} in row "
            f"{rows[first]}: correct it, or add it to classes"
        )
    return ranks, ordered, note
