"""Dividing samples into parts."""

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

Indices = NDArray[np.int64]


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
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    total = max(round(fraction * len(ranks)), 1) if fraction > 0 else 0
    held_out = np.zeros(len(ranks), dtype=bool)
    for k, take in enumerate(_shares(counts, total, rng)):
        members = np.flatnonzero(class_of == k)
        held_out[rng.choice(members, size=take, replace=False)] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _shares(counts: Indices, total: int, rng: np.random.Generator) -> Indices:
    """Share ``total`` over classes in proportion to ``counts``, leaving one sample in each."""
    room = counts - 1
    total = min(total, int(room.sum()))
    quota = total * counts / max(counts.sum(), 1)
    shares: Indices = np.minimum(np.floor(quota).astype(np.int64), room)
    luck = rng.permutation(len(counts))
    while shares.sum() < total:
        remainder = np.where(shares < room, quota - shares, -np.inf)
        shares[np.lexsort((luck, remainder))[-1]] += 1
    return shares
