"""Dividing samples into parts."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from jaxtyping import Int

from layline.arguments import check_above, check_integer
from layline.data.base import Indices, Partition
from layline.data.grouped import assign_groups


def stratified_holdout(
    ranks: Int[np.ndarray, " n"], fraction: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Hold a fraction of the samples out, the same fraction of each class as far as it divides.

    The total is rounded, and is at least one sample unless the fraction is zero. It is shared
    over the classes by largest remainder. A class always keeps one sample for training, so nothing
    is held out where every class has one sample only.

    Args:
        ranks: The class of each sample.
        fraction: Share of the samples to hold out, in [0, 1).
        rng: Breaks ties between classes and draws the samples.

    Returns:
        The indices of the samples to train on and of those held out, each in ascending order.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction must be in [0, 1), got {fraction}: something must be left")
    total = max(round(fraction * len(ranks)), 1) if fraction > 0 else 0
    part_of = _draw(ranks, [total], rng)
    return np.flatnonzero(part_of == 0), np.flatnonzero(part_of == 1)


def three_way(
    ranks: Int[np.ndarray, " n"],
    validation: float,
    test: float,
    seed: int,
    groups: Sequence[Hashable] | None = None,
) -> Partition:
    """Divide samples at random into training, validation and test, each class alike.

    Args:
        ranks: The class of each sample.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        seed: The same seed gives the same partition.
        groups: What must stay together, such as the patient of each sample.
    """
    return Partition(**divide(ranks, {"validation": validation, "test": test}, seed, groups))


def divide(
    ranks: Int[np.ndarray, " n"],
    fractions: Mapping[str, float],
    seed: int,
    groups: Sequence[Hashable] | None = None,
) -> dict[str, Indices]:
    """Hold several parts out at once and call the rest ``train``.

    Without groups the sizes are exact; with groups they and the shares of the classes are as near
    as whole groups come. Every class keeps a training sample, and no part is empty.
    """
    check_integer("seed", seed, 0, "the partition is drawn from it")
    for name, fraction in fractions.items():
        check_above(name, fraction, 0, "it is the share to hold out")
    if sum(fractions.values()) >= 1:
        raise ValueError(
            f"{' and '.join(fractions)} must be below 1 together, got "
            f"{' and '.join(map(str, fractions.values()))}: training needs samples"
        )
    rng = np.random.default_rng(seed)
    if groups is None:
        totals = [max(round(fraction * len(ranks)), 1) for fraction in fractions.values()]
        different = len(np.unique(ranks))
        if sum(totals) > len(ranks) - different:
            raise ValueError(
                f"{' and '.join(fractions)} must leave a training sample of each class, got "
                f"{len(ranks)} samples of {different} classes to hold {sum(totals)} out: "
                "give more samples, or smaller shares"
            )
        part_of = _draw(ranks, totals, rng)
    else:
        part_of = assign_groups(ranks, groups, list(fractions.values()), rng)
    return {name: np.flatnonzero(part_of == p) for p, name in enumerate(["train", *fractions])}


def _draw(ranks: Indices, totals: Sequence[int], rng: np.random.Generator) -> Indices:
    """Number the part of each sample, 0 for what no part takes."""
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    part_of = np.zeros(len(ranks), dtype=np.int64)
    room = counts - 1
    for part, total in enumerate(totals, start=1):
        shares = _shares(counts, room, total, rng)
        room = room - shares
        for k, take in enumerate(shares):
            members = np.flatnonzero((class_of == k) & (part_of == 0))
            part_of[rng.choice(members, size=take, replace=False)] = part
    return part_of


def _shares(counts: Indices, room: Indices, total: int, rng: np.random.Generator) -> Indices:
    """Share ``total`` over classes in proportion to ``counts``, as far as they have room."""
    total = min(total, int(room.sum()))
    quota = total * counts / max(counts.sum(), 1)
    shares: Indices = np.minimum(np.floor(quota).astype(np.int64), room)
    luck = rng.permutation(len(counts))
    while shares.sum() < total:
        remainder = np.where(shares < room, quota - shares, -np.inf)
        shares[np.lexsort((luck, remainder))[-1]] += 1
    return shares
