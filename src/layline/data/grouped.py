r"""Parts made of whole groups: a patient's images are all in one part.

Groups are placed one after the other, each into the part where it lowers

.. math:: \sum_{p,k} (n_{pk} - t_{pk})^2 / t_{pk}

most, with :math:`n_{pk}` the samples of class k in part p so far and :math:`t_{pk}` as many as
the part should have. Large groups and those of rare classes come first, since small ones mend
what they leave.
"""

from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from layline.data.base import Indices

Table = NDArray[np.float64]


def assign_groups(
    ranks: Indices, groups: Sequence[Hashable], fractions: Sequence[float], rng: np.random.Generator
) -> Indices:
    """Number the part of each sample: 0 for training, then one for each fraction."""
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    if len(group_of) != len(ranks):
        raise ValueError(f"groups must be {len(ranks)}, got {len(group_of)}: one for each sample")
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    table = np.zeros((len(numbers), len(counts)))
    np.add.at(table, (group_of, class_of), 1)
    targets = np.outer([1 - sum(fractions), *fractions], counts)
    weight = (table**2 / counts).sum(axis=1)
    # the jitter makes the seed count: without it the same large groups would always be together
    order = np.argsort(-weight * rng.uniform(0.25, 1, len(weight)))
    parts = _place(table, targets, order, {})
    if len(np.unique(parts)) <= len(fractions):
        parts = _place(table, targets, order, _first_groups(table, fractions))
    part_of: Indices = parts[group_of]
    return part_of


def _place(table: Table, targets: Table, order: Indices, pinned: dict[int, int]) -> Indices:
    """Give the part of each group, with some of them fixed beforehand."""
    present = table > 0
    holders = present.sum(axis=0)  # groups still to come that have the class
    filled = np.zeros_like(targets)
    parts = np.zeros(len(table), dtype=np.int64)
    for group in [*pinned, *(g for g in order if g not in pinned)]:
        row = table[group]
        if group in pinned:
            part = pinned[group]
        elif (present[group] & (holders == 1) & (filled[0] == 0)).any():
            part = 0  # nobody else can bring this class into training
        else:
            part = int(np.argmin((row * (row + 2 * (filled - targets)) / targets).sum(axis=1)))
        parts[group] = part
        filled[part] += row
        holders = holders - present[group]
    return parts


def _first_groups(table: Table, fractions: Sequence[float]) -> dict[int, int]:
    """Choose a small group for each part held out, such that training can have every class."""
    present = table > 0
    holders = present.sum(axis=0)
    free = [
        g for g in np.argsort(table.sum(axis=1), kind="stable") if (holders[present[g]] > 1).all()
    ]
    parts = 1 + np.argsort(fractions, kind="stable")
    for chosen in combinations(free, len(fractions)):
        if (present[list(chosen)].sum(axis=0) < holders).all():
            return {int(g): int(part) for g, part in zip(chosen, parts, strict=True)}
    raise ValueError(
        f"groups must be enough for {len(fractions) + 1} parts with every class in training, got "
        f"{len(table)}: give samples of more groups, or the split yourself"
    )
