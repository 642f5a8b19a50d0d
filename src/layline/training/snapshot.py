"""Snapshots of a layout: where features and proxies lie, in a plane, as a small file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.files import whole_file
from layline.training.plane import plane_of, share_shown


@dataclass(frozen=True)
class Snapshot:
    """A layout at one moment.

    Attributes:
        points: Where the samples lie in the plane.
        ranks: Their classes.
        predicted: What the model takes them for.
        explained: Share of the variance of the features that the plane shows.
        proxies: Where the proxies of the classes lie, for a head that has them.
        index: Which samples of their part they are, if that is kept.
    """

    points: Float[np.ndarray, "m 2"]
    ranks: Int[np.ndarray, " m"]
    predicted: Int[np.ndarray, " m"]
    explained: float
    proxies: Float[np.ndarray, "K 2"] | None = None
    index: Int[np.ndarray, " m"] | None = None

    def save(self, path: Path) -> None:
        """Write it as ``.npz``, whole or not at all."""
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        with whole_file(path) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> "Snapshot":
        """Read it; nothing in the file is run."""
        with np.load(path, allow_pickle=False) as arrays:
            found: dict[str, Any] = dict(arrays)
        return cls(**{**found, "explained": float(found["explained"])})


def chosen_samples(count: int, most: int, seed: int) -> Int[Tensor, " m"]:
    """Choose which samples are drawn, in their order: all of them, or as many as fit.

    Args:
        count: Samples there are.
        most: Samples that are drawn at most.
        seed: The same one chooses the same samples.
    """
    if count <= most:
        return torch.arange(count)
    drawn = np.random.default_rng(seed).permutation(count)[:most]
    return torch.from_numpy(np.sort(drawn))


def take_snapshot(
    features: Float[Tensor, "m d"],
    ranks: Int[Tensor, " m"],
    predicted: Int[Tensor, " m"],
    head: Any,
    index: Int[Tensor, " m"] | None = None,
) -> Snapshot:
    """Project features, and the proxies of a head that has them, onto their plane.

    Args:
        features: One row per sample that is drawn.
        ranks: Their classes.
        predicted: What the model takes them for.
        head: The ordinal method as it is now.
        index: Which samples they are, to be kept.
    """
    places = features.numpy()
    proxies = proxies_of(head)
    axes = plane_of(places, ranks.numpy(), proxies)
    smallest = np.min_scalar_type(getattr(head, "num_classes", 1) - 1)
    return Snapshot(
        points=(places.astype(np.float64) @ axes.T).astype(np.float32),
        ranks=ranks.numpy().astype(smallest),
        predicted=predicted.numpy().astype(smallest),
        explained=share_shown(places, axes),
        proxies=None
        if proxies is None
        else (proxies.astype(np.float64) @ axes.T).astype(np.float32),
        index=None if index is None else index.numpy(),
    )


def proxies_of(head: Any) -> Float[np.ndarray, "K d"] | None:
    """Give the proxies of a head that has them."""
    make = getattr(head, "proxies", None)
    if make is None:
        return None
    with torch.no_grad():
        proxies: np.ndarray[Any, np.dtype[np.float32]] = make().float().cpu().numpy()
    return proxies
