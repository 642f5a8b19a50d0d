"""The layout epoch by epoch: each aligned with the next, in few enough bytes for a page."""

import base64
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import orthogonal_procrustes

from layline.training.record import Snapshot

MOST_FRAMES = 60
_LEVELS = 32767  # of a coordinate, in 16 bits
_GROWTH = 1.6  # beyond so many times the kept epoch's size, each frame gets a view of its own
_OUTERMOST, _RIM = 0.9, 1.05  # most samples are inside, with a little room
_CENTRE_WEIGHT = 0.01  # of class centres beside proxies
Rotation = Float[np.ndarray, "2 2"]


def shown_epochs(epochs: list[int], best: int, most: int = MOST_FRAMES) -> list[int]:
    """Choose evenly spaced epochs, the first, the best and the last among them."""
    if len(epochs) <= most:
        return list(epochs)
    places = np.linspace(0, len(epochs) - 1, most).round().astype(int)
    chosen = [epochs[place] for place in places]
    if best in epochs and best not in chosen:
        inner = chosen[1:-1]
        nearest = min(inner, key=lambda epoch: abs(epoch - best))
        chosen[chosen.index(nearest)] = best
    return sorted(chosen)


def landmarks(layout: Snapshot, num_classes: int) -> Float[np.ndarray, "marks 2"]:
    """Give what two layouts are compared by: the centre of each class, and the proxies.

    Where there are proxies they decide; the centres count little, but enough to tell on which side
    of a straight line the features lie.
    """
    points, ranks = layout.points.astype(np.float64), layout.ranks.astype(np.int64)
    counts = np.bincount(ranks, minlength=num_classes)
    sums = [np.bincount(ranks, weights=column, minlength=num_classes) for column in points.T]
    with np.errstate(invalid="ignore"):
        centres = np.stack(sums, axis=1) / counts[:, None]  # NaN for an absent class
    if layout.proxies is None:
        return centres
    sizes = [np.sqrt(np.nansum(marks**2)) for marks in (centres, layout.proxies)]
    if min(sizes) > 0:
        centres *= _CENTRE_WEIGHT * sizes[1] / sizes[0]
    return np.concatenate([centres, layout.proxies])


def align(moved: Float[np.ndarray, "marks 2"], fixed: Float[np.ndarray, "marks 2"]) -> Rotation:
    """Find the rotation or reflection that brings marks closest to others, by Procrustes.

    Marks that are missing in either do not count.
    """
    both = np.isfinite(moved).all(axis=1) & np.isfinite(fixed).all(axis=1)
    rotation, _ = orthogonal_procrustes(moved[both], fixed[both])
    return np.asarray(rotation)


def left_to_right(marks: Float[np.ndarray, "marks 2"], num_classes: int) -> Rotation:
    """Find the rotation that orders classes from left to right, bulging upwards if they bulge."""
    line = marks[-num_classes:]  # the proxies, or the centres of a head without
    line = line[np.isfinite(line).all(axis=1)]
    if len(line) < 2:
        return np.eye(2)
    along = line[-1] - line[0]
    if not np.linalg.norm(along) > 0:
        return np.eye(2)
    along = along / np.linalg.norm(along)
    across = np.array([-along[1], along[0]])
    bulge = (line.mean(axis=0) - (line[0] + line[-1]) / 2) @ across
    return np.stack([along, -across if bulge < 0 else across], axis=1)


def at_rim(
    proxies: Float[np.ndarray, "K 2"], points: Float[np.ndarray, "m 2"]
) -> Float[np.ndarray, "K 2"]:
    """Move proxies that are compared by direction out to the rim of the samples.

    At their own length, one, they would be a spot in the middle of samples ten times as far out.
    """
    lengths = np.linalg.norm(points, axis=1)
    rim = _RIM * float(np.quantile(lengths, _OUTERMOST)) if len(points) else 1.0
    moved: Float[np.ndarray, "K 2"] = proxies * max(rim, 1e-12)
    return moved


def layout_frames(
    layouts: Mapping[int, Snapshot],
    test: Snapshot | None,
    best: int,
    num_classes: int,
    by_direction: bool = False,
) -> dict[str, Any]:
    """Give the frames of the validation part and of the test part, for the page to draw.

    Each epoch is aligned with its neighbour, starting from the kept one, which runs left to right.

    Args:
        layouts: The validation part by epoch.
        test: The test part at the best epoch.
        best: That epoch.
        num_classes: K.
        by_direction: Whether the proxies have length one, and stand for directions.
    """
    epochs = shown_epochs(sorted(layouts), best)
    start = epochs.index(best) if best in epochs else len(epochs) - 1
    rotations: dict[int, Rotation] = {}
    marks = {epoch: landmarks(layouts[epoch], num_classes) for epoch in epochs}
    if epochs:
        kept = epochs[start]
        rotations[kept] = left_to_right(marks[kept], num_classes)
        for way in (epochs[start:], epochs[start::-1]):
            for before, epoch in pairwise(way):
                rotations[epoch] = align(marks[epoch], marks[before] @ rotations[before])
    frames = [
        _frame(layouts[epoch], rotations[epoch], by_direction) | {"epoch": epoch}
        for epoch in epochs
    ]
    _share_views(frames, start)
    found: dict[str, Any] = {"validation": frames, "start": start, "test": None}
    if epochs:
        found["ranks"] = _packed(layouts[epochs[0]].ranks)
    if test is not None and len(test.points):
        own = landmarks(test, num_classes)
        if epochs:
            rotation = align(own, marks[kept] @ rotations[kept])
        else:
            rotation = left_to_right(own, num_classes)
        found["test"] = _frame(test, rotation, by_direction)
        found["test"] |= {"epoch": best, "ranks": _packed(test.ranks)}
    return found


def _frame(layout: Snapshot, rotation: Rotation, by_direction: bool) -> dict[str, Any]:
    points = np.nan_to_num(layout.points.astype(np.float64) @ rotation)
    proxies = None if layout.proxies is None else layout.proxies.astype(np.float64) @ rotation
    if proxies is not None and by_direction:
        proxies = at_rim(proxies, points)
    scale = max(float(np.abs(points).max(initial=0)), 1e-12) / _LEVELS
    return {
        "scale": scale,
        "points": _packed(np.round(points / scale), "<i2"),
        "predicted": _packed(layout.predicted),
        "proxies": None if proxies is None else np.round(proxies, 5).tolist(),
        "explained": round(layout.explained, 4),
        "view": _view(points, proxies),
    }


def _packed(values: np.ndarray[Any, Any], kind: str = "<u2") -> str:
    """Write integers as base64 of 16 bits each."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def _view(
    points: Float[np.ndarray, "m 2"], proxies: Float[np.ndarray, "K 2"] | None
) -> list[list[float]]:
    """Give the range of each axis that holds the proxies and all but the outermost points."""
    edges = [np.quantile(points, share, axis=0) for share in (0.02, 0.98) if len(points)]
    marks = np.array([*edges, *([] if proxies is None else proxies)]).reshape(-1, 2)
    low, high = (marks.min(axis=0), marks.max(axis=0)) if len(marks) else (-np.ones(2), np.ones(2))
    pad = np.maximum(0.07 * (high - low).max(), 1e-6)
    view: list[list[float]] = np.round(np.stack([low - pad, high + pad], axis=1), 5).tolist()
    return view


def _share_views(frames: list[dict[str, Any]], kept: int) -> None:
    """Give all frames one view, unless some epochs are far larger than the kept one."""
    if not frames:
        return
    views = np.array([frame["view"] for frame in frames])  # (epochs, axis, end)
    sizes = (views[:, :, 1] - views[:, :, 0]).max(axis=1)
    if sizes.max() <= _GROWTH * sizes[kept]:
        common = np.stack([views[:, :, 0].min(axis=0), views[:, :, 1].max(axis=0)], axis=1)
        for frame in frames:
            frame["view"] = common.tolist()
