"""The frames of the layout animation: each epoch aligned with the next, packed for the page."""

import base64
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import orthogonal_procrustes

from layline.training.report_data import Snapshot

MOST_FRAMES = 60
_LEVELS = 32767  # a coordinate has 16 bits
_GROWTH = 1.6  # if frames are larger than this times the selected one, each gets its own view
_CENTER_WEIGHT = 0.01  # of class centers relative to proxies
Rotation = Float[np.ndarray, "2 2"]
Marks = Float[np.ndarray, "marks 2"]


def layout_frames(
    layouts: Mapping[int, Snapshot],
    test: Snapshot | None,
    best: int,
    num_classes: int,
    by_direction: bool = False,
) -> dict[str, Any]:
    """Make the frames of the validation and test samples that the page draws.

    The selected epoch runs from left to right; every other epoch is rotated or reflected onto its
    neighbor. ``by_direction``: only the directions of the proxies matter.
    """
    epochs = select_epochs(sorted(layouts), best)
    start = epochs.index(best) if best in epochs else len(epochs) - 1
    marks = {epoch: landmarks(layouts[epoch], num_classes) for epoch in epochs}
    rotations: dict[int, Rotation] = {}
    if epochs:
        rotations[epochs[start]] = rotate_left_to_right(marks[epochs[start]], num_classes)
        for way in (epochs[start:], epochs[start::-1]):
            for before, epoch in pairwise(way):
                rotations[epoch] = align(marks[epoch], marks[before] @ rotations[before])
    frames = [
        _frame(layouts[epoch], rotations[epoch], by_direction) | {"epoch": epoch}
        for epoch in epochs
    ]
    _share_views(frames, start)
    result: dict[str, Any] = {"validation": frames, "start": start, "test": None}
    if epochs:
        result["ranks"] = _packed(layouts[epochs[0]].ranks)
    if test is not None and len(test.points):
        own = landmarks(test, num_classes)
        rotation = rotate_left_to_right(own, num_classes)
        if epochs:
            rotation = align(own, marks[epochs[start]] @ rotations[epochs[start]])
        frame = _frame(test, rotation, by_direction)
        result["test"] = frame | {"epoch": best, "ranks": _packed(test.ranks)}
    return result


def select_epochs(epochs: list[int], best: int, most: int = MOST_FRAMES) -> list[int]:
    """Select evenly spaced epochs, including the first, the best and the last."""
    if len(epochs) <= most:
        return list(epochs)
    selected = [
        epochs[place] for place in np.linspace(0, len(epochs) - 1, most).round().astype(int)
    ]
    if best in epochs and best not in selected:
        nearest = min(selected[1:-1], key=lambda epoch: abs(epoch - best))
        selected[selected.index(nearest)] = best
    return sorted(selected)


def landmarks(layout: Snapshot, num_classes: int) -> Marks:
    """Give the points that two layouts are aligned by: class centers, and proxies if there are any.

    The centers count little next to proxies, but decide on which side of a straight line of proxies
    the features are. An absent class has NaN.
    """
    points, ranks = layout.points.astype(np.float64), layout.ranks.astype(np.int64)
    counts = np.bincount(ranks, minlength=num_classes)
    sums = [np.bincount(ranks, weights=column, minlength=num_classes) for column in points.T]
    with np.errstate(invalid="ignore"):
        centers = np.stack(sums, axis=1) / counts[:, None]
    if layout.proxies is None:
        return centers
    sizes = [np.sqrt(np.nansum(each**2)) for each in (centers, layout.proxies)]
    if min(sizes) > 0:
        centers *= _CENTER_WEIGHT * sizes[1] / sizes[0]
    return np.concatenate([centers, layout.proxies])


def align(moved: Marks, fixed: Marks) -> Rotation:
    """Find the rotation or reflection that moves marks closest to others; NaN is left out."""
    both = np.isfinite(moved).all(axis=1) & np.isfinite(fixed).all(axis=1)
    rotation, _ = orthogonal_procrustes(moved[both], fixed[both])
    return np.asarray(rotation)


def rotate_left_to_right(marks: Marks, num_classes: int) -> Rotation:
    """Find the rotation that orders classes from left to right, with a curve bulging upwards."""
    line = marks[-num_classes:]  # the proxies, or the centers without them
    line = line[np.isfinite(line).all(axis=1)]
    along = line[-1] - line[0] if len(line) else np.zeros(2)
    length = np.linalg.norm(along)
    if not length > 0:
        return np.eye(2)
    along = along / length
    across = np.array([-along[1], along[0]])
    bulge = (line.mean(axis=0) - (line[0] + line[-1]) / 2) @ across
    return np.stack([along, -across if bulge < 0 else across], axis=1)


def _frame(layout: Snapshot, rotation: Rotation, by_direction: bool) -> dict[str, Any]:
    points = np.nan_to_num(layout.points.astype(np.float64) @ rotation)
    proxies = None if layout.proxies is None else layout.proxies.astype(np.float64) @ rotation
    if proxies is not None and by_direction and len(points):
        # at their own length, one, they would be a spot in the middle of the samples
        rim = 1.05 * float(np.quantile(np.linalg.norm(points, axis=1), 0.9))
        proxies = proxies * max(rim, 1e-12)
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
    """Give the range of each axis that contains the proxies and all but the outermost points."""
    edges = [np.quantile(points, share, axis=0) for share in (0.02, 0.98) if len(points)]
    marks = np.array([*edges, *([] if proxies is None else proxies)]).reshape(-1, 2)
    low, high = (marks.min(axis=0), marks.max(axis=0)) if len(marks) else (-np.ones(2), np.ones(2))
    pad = np.maximum(0.07 * (high - low).max(), 1e-6)
    view: list[list[float]] = np.round(np.stack([low - pad, high + pad], axis=1), 5).tolist()
    return view


def _share_views(frames: list[dict[str, Any]], kept: int) -> None:
    """Give all frames one view, unless some epochs are far larger than the selected one."""
    if not frames:
        return
    views = np.array([frame["view"] for frame in frames])  # (epochs, axis, end)
    sizes = (views[:, :, 1] - views[:, :, 0]).max(axis=1)
    if sizes.max() <= _GROWTH * sizes[kept]:
        common = np.stack([views[:, :, 0].min(axis=0), views[:, :, 1].max(axis=0)], axis=1)
        for frame in frames:
            frame["view"] = common.tolist()
