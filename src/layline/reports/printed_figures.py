"""Figures for print: how methods compare, and where the classes lie, as PNG and PDF.

The critical-difference diagram is that of Demšar (JMLR 7, 2006): methods on the axis of mean ranks,
the best at the left. Two methods under one bar are not significantly different by the test of
Nemenyi. The forest plot has the mean of every method with its interval, one panel per data set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from layline.bench.statistics import cliques, critical_difference
from layline.bench.summaries import Metric, find_metric, intervals
from layline.utils.errors import UserError
from layline.utils.files import atomic_write
from layline.utils.optional import require
from layline.utils.validation import find_known

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# By ending; without the date, the same numbers give the same bytes.
PRINT_FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "png", "dpi": 160},
    ".pdf": {"format": "pdf", "metadata": {"CreationDate": None}},
}
_INK = "black"
_LEADER = "0.45"
_BAR_STEP = 0.5  # between bars, in lines of text
_SPAN = 5.6  # inches of the axis of ranks
_LINE = 0.2  # inches of a line of text
_ACROSS = 4  # panels side by side


def new_figure(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained"
) -> "Figure":
    """Make an empty figure: no window, no global state.

    Args:
        width: In inches.
        height: In inches.
        layout: ``constrained`` makes room for what is around the axes, None leaves them alone.
    """
    require("matplotlib", extra="report", needed_by="a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure, cut to what is drawn, in the format that the ending of the path says."""
    options = find_known("the ending of a picture", path.suffix, PRINT_FORMATS)
    with atomic_write(path) as part:
        figure.savefig(part, bbox_inches="tight", **options)
    return path


# --- the critical-difference diagram


@dataclass(frozen=True)
class Leader:
    """The line from a method's place on the axis to its name.

    Attributes:
        name: Of the method.
        rank: Its mean rank, where the line leaves the axis.
        side: Where the name stands.
        level: How many names of its side are above it.
    """

    name: str
    rank: float
    side: Literal["left", "right"]
    level: int


def leaders(ranks: "pd.Series[float]") -> list[Leader]:
    """Give the better half of the methods a name at the left, the others one at the right.

    On each side the outermost method has the highest name, so that no two lines cross.
    """
    ordered = ranks.sort_values(kind="stable")
    names, values = [str(name) for name in ordered.index], ordered.tolist()
    half = (len(names) + 1) // 2
    found = [Leader(names[i], values[i], "left", i) for i in range(half)]
    last = len(names) - 1
    return found + [Leader(names[i], values[i], "right", last - i) for i in range(half, last + 1)]


def bar_levels(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Put each span on the first level where it touches no other."""
    ends: list[float] = []
    levels = {}
    for low, high in sorted(spans):
        level = next((i for i, end in enumerate(ends) if end < low), len(ends))
        ends[level : level + 1] = [high]
        levels[low, high] = level
    return [levels[span] for span in spans]


def critical_difference_diagram(ranks: "pd.Series[float]", data: int, title: str = "") -> "Figure":
    """Draw the diagram, with a difference that is found by chance in 5 % of the cases.

    Args:
        ranks: The mean rank of each method.
        data: The number of data sets that they are ranked on.
        title: Above it.
    """
    if len(ranks) < 2:
        raise UserError(
            f"ranks must be of at least 2 methods, got {len(ranks)}: "
            "methods are ranked where they finished on every data set"
        )
    difference = critical_difference(len(ranks), data)
    values = {str(name): rank for name, rank in ranks.items()}
    groups = [(values[group[0]], values[group[-1]]) for group in cliques(ranks, difference)]
    lines = (len(ranks) + 1) // 2 + _BAR_STEP * len(set(bar_levels(groups)))
    figure = new_figure(_SPAN, (lines + 4) * _LINE, layout=None)
    axis = figure.add_axes((0, 0, 1, 1))  # the names stand outside
    draw_critical_difference(axis, ranks, groups, difference)
    if title:
        axis.set_title(title, fontsize=10, parse_math=False)
    return figure


def draw_critical_difference(
    axis: "Axes",
    ranks: "pd.Series[float]",
    groups: Sequence[tuple[float, float]],
    difference: float,
) -> None:
    """Draw the diagram on an axis. Down is counted in lines of text, from the axis of ranks at 0.

    Args:
        axis: To draw on.
        ranks: The mean rank of each method.
        groups: The first and last mean rank of what is not significantly different.
        difference: The critical one.
    """
    start, stop = floor(ranks.min()), max(ceil(ranks.max()), floor(ranks.min()) + 1)
    margin = (stop - start) * 0.04
    _draw_scale(axis, start, stop, difference)
    bars = bar_levels(groups)
    for (low, high), level in zip(groups, bars, strict=True):
        ends, depth = [low - margin / 6, high + margin / 6], 0.6 + _BAR_STEP * level
        axis.plot(ends, [depth] * 2, color=_INK, linewidth=3, solid_capstyle="butt", zorder=3)
    first = 1.0 + _BAR_STEP * len(set(bars))  # where the names begin
    for leader in leaders(ranks):
        left = leader.side == "left"
        edge, depth = (start - margin if left else stop + margin), first + leader.level
        path = [[leader.rank, leader.rank, edge], [0, depth, depth]]
        axis.plot(*path, color=_LEADER, linewidth=0.8, zorder=1, clip_on=False)
        axis.plot([leader.rank], [0], marker="o", markersize=3, color=_INK, zorder=4)
        text = f"{leader.name}  {leader.rank:.2f}" if left else f"{leader.rank:.2f}  {leader.name}"
        axis.annotate(
            text,
            (edge, depth),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=9,
            annotation_clip=False,
            parse_math=False,  # a name may have dollars in it
        )
    axis.set_ylim(first + (len(ranks) + 1) // 2 - 0.5, -3.5)  # down is deeper
    axis.set_xlim(start - margin, stop + margin)
    axis.set_axis_off()


def _draw_scale(axis: "Axes", start: int, stop: int, difference: float) -> None:
    """Draw the axis of ranks, as far as there are methods, and the critical difference above it."""
    axis.plot([start, stop], [0, 0], color=_INK, linewidth=1.2, zorder=2)
    step = next(step for step in (1, 2, 5, 10, 20, 50, stop) if (stop - start) / step <= 12)
    inner = (tick for tick in range(0, stop, step) if min(tick - start, stop - tick) > step / 2)
    for tick in (start, *inner, stop):
        axis.plot([tick, tick], [0, -0.3], color=_INK, linewidth=1.0)
        axis.annotate(str(tick), (tick, -0.45), ha="center", va="bottom", fontsize=9)
    shown = min(difference, stop - start)
    label = f"CD = {difference:.2f}" + (" (longer than the axis)" if difference > shown else "")
    axis.plot([start, start + shown], [-2.2, -2.2], color=_INK, linewidth=1.2)
    for end in (start, start + shown):
        axis.plot([end, end], [-2.0, -2.4], color=_INK, linewidth=1.2)
    axis.annotate(label, (start, -2.5), ha="left", va="bottom", fontsize=9)


# --- the forest plot


def forest_plot(frame: pd.DataFrame, metric: str, decode: str) -> "Figure":
    """Draw 95 % intervals of the mean over seeds by Student's t, the best method on top.

    Args:
        frame: One row per run and decoding.
        metric: What is drawn.
        decode: How distributions became ranks.
    """
    shown = find_metric(metric)
    found = intervals(frame, metric, decode)
    methods = best_first(found, shown)
    data = list(found.index.unique("data"))
    across = min(_ACROSS, len(data))
    down = -(-len(data) // across)
    figure = new_figure(1.8 + 2.2 * across, (0.9 + 0.19 * len(methods)) * down + 0.3)
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for axis, name in zip(axes, data, strict=False):
        draw_intervals(axis, found.xs(name, level="data"), methods, shown)
        axis.set_title(name, fontsize=10, parse_math=False)
    for axis in axes[len(data) :]:
        axis.set_visible(False)
    figure.supxlabel(f"{shown.caption(decode)}: mean over seeds with 95% interval", fontsize=9)
    return figure


def best_first(found: pd.DataFrame, metric: Metric) -> list[str]:
    """Put the methods in the order of their mean over panels, the best first.

    Those that have no number on some panel come after the others.
    """
    table = found["mean"].unstack("method")
    overall = pd.DataFrame({"missing": table.isna().any(), "mean": table.mean()})
    ordered = overall.sort_values(["missing", "mean"], ascending=[True, metric.lower_is_better])
    return [str(name) for name in ordered.index]


def draw_intervals(axis: "Axes", found: pd.DataFrame, methods: list[str], metric: Metric) -> None:
    """Draw one panel: a dot at each mean, a line over its interval.

    Args:
        axis: To draw on.
        found: The mean, low and high of each method, in the metric's own unit.
        methods: From top to bottom; one without a number has a cross at the left edge.
        metric: How the metric is shown.
    """
    scaled = found.reindex(methods)[["mean", "low", "high"]] * metric.scale
    for place, (mean, low, high) in enumerate(scaled.to_numpy().tolist()):
        if mean != mean:  # NaN: no run finished
            axis.annotate(
                "× no result",
                (0.02, place),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=7,
                color="0.35",
            )
            continue
        axis.plot([low, high], [place, place], color=_INK, linewidth=1.2)
        axis.plot([mean], [place], marker="o", markersize=4, color=_INK)
    axis.set_yticks(range(len(methods)))
    axis.set_yticklabels(methods, fontsize=8, parse_math=False)
    axis.set_ylim(len(methods) - 0.4, -0.6)  # the best on top
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="both", color="0.9", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


# --- where the classes lie


def draw_plane(
    axis: "Axes",
    features: Float[np.ndarray, "n 2"],
    ranks: Int[np.ndarray, " n"],
    proxies: Float[np.ndarray, "K 2"] | None,
    num_classes: int,
    marker: str = "o",
    path: Float[np.ndarray, "m 2"] | None = None,
) -> None:
    """Draw features of two dimensions, coloured by class, with the proxies on top.

    Colours run from dark to light in the order of the classes, so that they can be told apart
    without seeing hues; each proxy has its rank written on it.

    Args:
        axis: To draw on.
        features: One point per sample.
        ranks: The class of each sample.
        proxies: One point per class, for a head that has them.
        num_classes: K.
        marker: Of the features.
        path: What joins the proxies, if not straight lines.
    """
    palette = require("matplotlib", extra="report", needed_by="a picture").colormaps["viridis"]
    colours = palette(np.linspace(0, 1, num_classes))
    lines = {"linewidths": 0} if marker == "o" else {"linewidths": 0.8, "zorder": 1.5}
    axis.scatter(features[:, 0], features[:, 1], c=colours[ranks], s=9, marker=marker, **lines)
    if proxies is not None:
        axis.plot(*(proxies if path is None else path).T, color="0.3", linewidth=0.8, zorder=2)
        axis.scatter(proxies[:, 0], proxies[:, 1], c=colours, s=170, edgecolors="black", zorder=3)
        for rank, place in enumerate(proxies):
            ink = "white" if rank < num_classes / 2 else "black"
            axis.annotate(
                str(rank), place, ha="center", va="center", color=ink, fontsize=9, zorder=4
            )
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
