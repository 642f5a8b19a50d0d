"""The picture of ``layline demo``: where the classes lie, and some images with their ranges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from layline.data.dataset import Pixels
from layline.reports.layout_frames import at_rim
from layline.reports.printed_figures import draw_plane, new_figure
from layline.training.record import Snapshot
from layline.utils.optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.62  # inches of an image


@dataclass(frozen=True)
class GradedImage:
    """A test image, and what the model says of it.

    Attributes:
        name: What it is called.
        place: Which sample of the test part it is.
        true: Its grade.
        grade: What the model takes it for.
        probability: Of that grade.
        ends: The lowest and the highest grade that is possible, if ranges are known.
        pixels: The image, if it is to be drawn.
    """

    name: str
    place: int
    true: int
    grade: int
    probability: float
    ends: tuple[int, int] | None
    pixels: Pixels | None = None


def demo_picture(
    layout: Snapshot, classes: Sequence[str], images: Sequence[GradedImage], coverage: float | None
) -> "Figure":
    """Draw the test samples around the proxies, and beside them images on the scale of grades.

    Args:
        layout: Of the test part; the head has proxies and compares directions only.
        classes: Names of the grades, lowest first.
        images: Lettered from a, in both halves.
        coverage: Of the ranges, if there are any.
    """
    height = max(4.4, 1.3 + _ROW * len(images))
    figure = new_figure(11.2, height)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    _draw_directions(left, layout, classes, images)
    _draw_grades(right, classes, images, coverage)
    return figure


def _colours(count: int) -> Float[np.ndarray, "K 4"]:
    palette = require("matplotlib", extra="report", needed_by="a picture").colormaps["viridis"]
    found: Float[np.ndarray, "K 4"] = palette(np.linspace(0, 1, count))
    return found


def _draw_directions(
    axis: "Axes", layout: Snapshot, classes: Sequence[str], images: Sequence[GradedImage]
) -> None:
    """Draw the plane, the proxies moved out to its rim: only directions are compared."""
    assert layout.proxies is not None  # the caller's method has them
    proxies = at_rim(layout.proxies, layout.points)
    rim = float(np.linalg.norm(proxies[0]))
    turns = np.arctan2(proxies[[0, -1], 1], proxies[[0, -1], 0])
    turns = np.linspace(turns[0] % (2 * np.pi), turns[1], 100)  # from the left over the top
    arc = rim * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    for place in proxies:
        axis.plot([0, place[0]], [0, place[1]], color="0.85", linewidth=0.8, zorder=0)
    draw_plane(axis, layout.points, layout.ranks, proxies, len(classes), path=arc)
    for name, place in zip(classes, proxies, strict=True):
        side = "center" if abs(place[0]) < 0.3 * rim else "left" if place[0] > 0 else "right"
        below = abs(place[1]) < 0.2 * rim  # at the ends there is room below only
        axis.annotate(
            name,
            place,
            xytext=(0, -14) if below else (10 * np.sign(place[0]), 10),
            textcoords="offset points",
            ha="center" if below else side,
            va="top" if below else "bottom",
            fontsize=9,
            annotation_clip=False,
            parse_math=False,
        )
    where = dict(zip(_indices(layout), layout.points, strict=True))
    for letter, image in _lettered(images):
        if image.place in where:
            axis.annotate(
                letter,
                where[image.place],
                ha="center",
                va="center",
                fontsize=8,
                fontweight="bold",
                bbox={"boxstyle": "circle,pad=0.2", "fc": "white", "ec": "black", "lw": 0.8},
                zorder=5,
            )
    axis.set_title(f"Where: {len(layout.points)} test images, in the plane of the arc", fontsize=11)
    axis.set_xlabel(
        "Colour: the true grade. Direction from the middle: what the model makes of it.",
        fontsize=9,
    )
    for spine in axis.spines.values():
        spine.set_visible(False)


def _indices(layout: Snapshot) -> list[int]:
    return list(range(len(layout.points))) if layout.index is None else layout.index.tolist()


def _lettered(images: Sequence[GradedImage]) -> list[tuple[str, GradedImage]]:
    return [(chr(ord("a") + place), image) for place, image in enumerate(images)]


def _draw_grades(
    axis: "Axes", classes: Sequence[str], images: Sequence[GradedImage], coverage: float | None
) -> None:
    """Draw a row for each image: itself, its range as a bar, the grades as marks."""
    colours = _colours(len(classes))
    for row, (letter, image) in enumerate(_lettered(images)):
        axis.axhline(row, color="0.92", linewidth=0.8, zorder=0)
        if image.pixels is not None:
            box = axis.inset_axes((-1.95, row - 0.45, 1.0, 0.9), transform=axis.transData)
            box.imshow(image.pixels)
            box.set_axis_off()
        axis.annotate(
            letter, (-2.15, row), ha="right", va="center", fontsize=10, annotation_clip=False
        )
        if image.ends is not None:
            low, high = image.ends
            axis.barh(row, high - low + 0.8, left=low - 0.4, height=0.5, color="0.82", zorder=1)
        axis.scatter(
            image.grade, row, s=95, color=colours[image.grade], edgecolors="black", zorder=3
        )
        axis.scatter(
            image.true, row, s=240, facecolors="none", edgecolors="black", marker="s", zorder=2
        )
        axis.annotate(
            f"{image.probability:.0%}",
            (len(classes) - 0.35, row),
            ha="left",
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
    axis.set_xlim(-0.6, len(classes) - 0.4)
    axis.set_ylim(len(images) - 0.4, -0.6)
    axis.set_yticks([])
    axis.set_xticks(range(len(classes)), classes, fontsize=9, parse_math=False)
    axis.tick_params(length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.set_title("How sure: the first test image of each grade", fontsize=11)
    bar = "" if coverage is None else f"grey: the range at {coverage:.0%}   "
    axis.set_xlabel(f"●: the grade, its probability at the right   {bar}□: the truth", fontsize=9)
