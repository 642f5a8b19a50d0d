"""Figures for print, as PNG and PDF: layouts, curves over a setting, critical differences.

Methods differ in color (those of Okabe and Ito), marker and place in the legend. The diagram of
critical differences is that of Demšar (JMLR 7, 2006): methods on an axis of mean ranks, with a bar
that joins methods that do not differ significantly by Nemenyi's test.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from layline.bench.grid import Cell
from layline.bench.paper import Preset, Reproduction, read_snapshots
from layline.bench.statistics import METRICS, cliques, critical_difference
from layline.bench.store import Store
from layline.bench.tables import write_tables
from layline.training.report_data import Snapshot
from layline.utils.files import atomic_write, write_text
from layline.utils.validation import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# By file suffix. Without the date, the same numbers give the same bytes.
PRINT_FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"dpi": 160},
    ".pdf": {"metadata": {"CreationDate": None}},
}
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
_LOGARITHMIC = 16  # use a logarithmic axis if the last value is more than this times the first


def new_figure(width: float, height: float) -> "Figure":
    """Make an empty figure, sized in inches, without a window or global state."""
    matplotlib = require("matplotlib.figure", extra="report", needed_by="a picture")
    figure: Figure = matplotlib.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG and PDF; ``path`` has no suffix."""
    for suffix, options in PRINT_FORMATS.items():
        with atomic_write(path.with_name(path.name + suffix)) as part:
            figure.savefig(part, format=suffix[1:], bbox_inches="tight", **options)


def write_reproduction(
    reproduction: Reproduction,
    preset: Preset,
    cells: Sequence[Cell],
    store: Store,
    folder: Path,
    latex: bool = False,
) -> None:
    """Write the table, the figure if it is one, and the numbers of every run."""
    frame = store.frame(cells)
    write_tables(folder, {"table": reproduction.table(frame, preset)}, latex)
    write_text(folder / "cells.csv", frame.to_csv(index=False, lineterminator="\n"))
    if reproduction.values:
        save_figure(draw_curves(reproduction, frame), folder / "figure")
    elif reproduction.layouts:
        methods = {
            cell.labels["method"]: read_snapshots(store.run_folder(cell))
            for cell in cells
            if store.is_done(cell)
        }
        if methods:
            title = f"{reproduction.title}\ncorrectly classified"
            save_figure(draw_layouts(methods, title), folder / "figure")


def draw_curves(reproduction: Reproduction, frame: pd.DataFrame) -> "Figure":
    """Draw metrics over the values of a setting; a second metric on the right axis."""
    curves, metrics = reproduction.curves(frame), reproduction.drawn
    figure = new_figure(6.4, 4.4)
    left = figure.add_subplot()
    axes = [left, *(left.twinx() for _ in metrics[1:])]
    for number, (metric, axis) in enumerate(zip(metrics, axes, strict=True)):
        label = METRICS[metric].title
        for color, marker, (name, points) in zip(_COLORS, _MARKERS, curves.items(), strict=False):
            entries = points[metric].values()
            axis.errorbar(
                list(points[metric]),
                np.array([entry.mean for entry in entries], dtype=float),
                [entry.sd or 0.0 for entry in entries],
                label=f"{name}, {label.split(' (')[0]}",
                color=color,
                marker=marker,
                markerfacecolor="white" if number else color,
                linestyle="--" if number else "-",
                linewidth=1.4,
                ecolor=f"{color}66",
                elinewidth=1.0,
                capsize=3,
            )
        axis.set_ylabel(label)
    ticks = sorted({x for points in curves.values() for x in points[metrics[0]]})
    if ticks and ticks[0] > 0 and ticks[-1] / ticks[0] > _LOGARITHMIC:
        left.set_xscale("log", base=2)
    left.set_xticks(ticks, [f"{x:g}" for x in ticks])
    left.minorticks_off()
    left.set_xlabel(reproduction.symbol)
    left.grid(visible=True, axis="y", color="0.9", linewidth=0.7)
    left.set_title(reproduction.title, fontsize=11)
    handles = [handle for axis in axes for handle in axis.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def draw_layouts(methods: Mapping[str, Mapping[str, Snapshot]], title: str) -> "Figure":
    """Draw the correctly classified samples: a row per method, a column per moment of training."""
    columns = max(len(snapshots) for snapshots in methods.values())
    figure = new_figure(3.0 * columns, 2.8 * len(methods) + 0.5)
    axes = figure.subplots(len(methods), columns, squeeze=False)
    for line, (name, snapshots) in zip(axes, methods.items(), strict=True):
        for axis, (label, shot) in zip(line, snapshots.items(), strict=False):
            correct = shot.ranks == shot.predicted
            count = 1 + int(max(shot.ranks.max(), shot.predicted.max()))
            count = count if shot.proxies is None else len(shot.proxies)
            draw_plane(axis, shot.points[correct], shot.ranks[correct], shot.proxies, count)
            axis.set_title(f"{label}: {correct.sum()} of {len(correct)}", fontsize=9)
        line[0].set_ylabel(name, fontsize=12)
    figure.suptitle(title, fontsize=11)
    return figure


def draw_plane(
    axis: "Axes",
    features: Float[np.ndarray, "n 2"],
    ranks: Int[np.ndarray, " n"],
    proxies: Float[np.ndarray, "K 2"] | None,
    num_classes: int,
) -> None:
    """Draw features of two dimensions, from dark to light in class order, and numbered proxies."""
    palette = require("matplotlib", extra="report", needed_by="a picture").colormaps["viridis"]
    colors = palette(np.linspace(0, 1, num_classes))
    axis.scatter(features[:, 0], features[:, 1], c=colors[ranks], s=9, linewidths=0)
    if proxies is not None:
        axis.plot(*proxies.T, color="0.3", linewidth=0.8, zorder=2)
        axis.scatter(proxies[:, 0], proxies[:, 1], c=colors, s=170, edgecolors="black", zorder=3)
        for rank, place in enumerate(proxies):
            ink = "white" if rank < num_classes / 2 else "black"
            center: dict[str, Any] = {"ha": "center", "va": "center"}
            axis.annotate(str(rank), place, color=ink, fontsize=9, zorder=4, **center)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])


def critical_difference_diagram(
    ranks: "pd.Series[float]", num_data: int, title: str = ""
) -> "Figure":
    """Draw the critical-difference diagram at the 5 % level, the better half at the left."""
    ranks = ranks.sort_values(kind="stable")
    values = [float(rank) for rank in ranks]
    difference = critical_difference(len(ranks), num_data)
    start, stop = floor(values[0]), max(ceil(values[-1]), floor(values[0]) + 1)
    spans = [(ranks[group[0]], ranks[group[-1]]) for group in cliques(ranks, difference)]
    ends, levels = list[float](), list[int]()
    for low, high in spans:  # on the first level where a bar touches no other
        levels.append(next((i for i, end in enumerate(ends) if end < low), len(ends)))
        ends[levels[-1] : levels[-1] + 1] = [high]
    first, half = 1.0 + 0.5 * len(ends), (len(ranks) + 1) // 2  # depths in lines of text
    figure = new_figure(5.6, (first + half + 3) * 0.2)
    axis = figure.add_subplot()
    axis.set_axis_off()
    axis.set_xlim(start, stop)
    axis.set_ylim(first + half - 0.5, -3.5)
    ink: dict[str, Any] = {"color": "black", "linewidth": 1.2, "clip_on": False}
    axis.plot([start, stop], [0, 0], **ink)
    step = next(step for step in (1, 2, 5, 10, 20, 50, stop) if (stop - start) / step <= 12)
    for tick in range(start, stop + 1, step):
        axis.plot([tick, tick], [0, -0.3], **ink)
        axis.text(tick, -0.45, str(tick), ha="center", va="bottom", fontsize=9)
    shown = min(difference, stop - start)
    axis.plot([start, start + shown], [-2.2, -2.2], marker="|", **ink)
    longer = " (longer than the axis)" if difference > shown else ""
    axis.text(start, -2.5, f"CD = {difference:.2f}{longer}", va="bottom", fontsize=9)
    for (low, high), level in zip(spans, levels, strict=True):
        axis.plot([low, high], [0.6 + 0.5 * level] * 2, color="black", linewidth=3)
    margin = 0.04 * (stop - start)
    for place, (name, rank) in enumerate(zip(ranks.index, values, strict=True)):
        left = place < half
        depth = first + (place if left else len(ranks) - 1 - place)
        edge = start - margin if left else stop + margin
        axis.plot([rank, rank, edge], [0, depth, depth], color="0.45", linewidth=0.8, clip_on=False)
        axis.plot([rank], [0], marker="o", markersize=3, color="black")
        axis.text(
            edge - margin / 4 if left else edge + margin / 4,
            depth,
            f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}",
            ha="right" if left else "left",
            va="center",
            fontsize=9,
            parse_math=False,  # a name may contain dollar signs
        )
    axis.set_title(title, fontsize=10, parse_math=False)
    return figure
