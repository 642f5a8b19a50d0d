"""Pictures of learning curves: the MAE relative to a reference over the number of labels.

One picture is for print, as SVG, with the name of each method at the end of its line. The other is
for the page of a benchmark, where the reader chooses the methods.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import isotonic_regression

from layline.bench.learning_curves import Curves
from layline.bench.statistics import ALL_LABELS, METRICS, NO_STRESS, label_counts
from layline.reports import plot_text
from layline.reports.figures import Figure
from layline.reports.paper_figures import new_figure
from layline.training.callbacks import amount
from layline.utils.files import atomic_write
from layline.utils.validation import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as PrintFigure

# Okabe and Ito's colors in an order in which neighbors differ, with darker yellow and sky blue
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#3DA5D9", "#7A4FBF", "#8C564B")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_INK, _GRAY = "#24292f", "#6e7781"
_WIDTH, _HEIGHT = 7.6, 4.5  # inches
_LINE = 0.054  # the height of a label, as a share of the axis
_SPREAD = 0.32  # the width over which the intervals at one number of labels are drawn


def draw_learning_curve(curves: Curves, methods: Sequence[str]) -> "PrintFigure":
    """Draw a line with 95 % intervals for each method, and the reference as the zero line."""
    sizes, found = label_counts(curves.frame), curves.compare("mae")
    figure = new_figure(_WIDTH, _HEIGHT)
    axis = figure.add_subplot()
    axis.axhline(0, color=_INK, linewidth=1.6, zorder=1)
    shifts = np.linspace(-_SPREAD / 2, _SPREAD / 2, len(methods)) if len(methods) > 1 else [0.0]
    ends = [(0.0, curves.reference, _INK)]
    for place, method in enumerate(methods):
        own = found.xs(method, level="method").reindex(sizes)
        color, x = _COLORS[place % len(_COLORS)], np.arange(len(sizes)) + shifts[place]
        middle = own["difference"].to_numpy(dtype=float)
        style: dict[str, Any] = {"color": color, "zorder": 4 + len(methods) - place}
        axis.vlines(x, own["low"], own["high"], alpha=0.35, linewidth=2.4, **style)
        marker = _MARKERS[place % len(_MARKERS)]
        axis.plot(x, middle, marker=marker, markersize=5.5, linewidth=1.7, **style)
        if np.isfinite(middle).any():
            ends.append((middle[np.isfinite(middle)][-1], method, color))
    axis.margins(y=0.05)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    edge = len(sizes) - 1 + _SPREAD / 2 + 0.06
    axis.set_xlim(-0.35, edge)
    ends.sort()
    for (value, name, color), height in zip(ends, _spread(ends, low, high), strict=True):
        line: dict[str, Any] = {"color": color, "linewidth": 0.8, "clip_on": False}
        axis.plot([edge, edge + 0.15], [value, height], **line)
        weight = "bold" if name == curves.reference else "normal"
        text: dict[str, Any] = {"va": "center", "fontsize": 10, "fontweight": weight}
        axis.text(edge + 0.19, height, name, color=color, parse_math=False, **text)
    _describe(axis, curves, [int(found.loc[size, "pairs"].max()) for size in sizes])
    form = lambda value, _: f"{value:{'+' if value else ''}g} %".replace("-", "−")  # noqa: E731
    axis.yaxis.set_major_formatter(form)
    axis.tick_params(length=0, labelcolor=_INK, labelsize=10)
    axis.grid(visible=True, axis="y", color="0.92", linewidth=0.8)
    axis.set_axisbelow(True)
    for side, spine in axis.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("0.8")
    return figure


def _spread(ends: Sequence[tuple[float, str, str]], low: float, high: float) -> list[float]:
    """Move sorted labels apart as little as possible, so that they do not overlap."""
    steps = (high - low) * _LINE * np.arange(len(ends))
    moved = isotonic_regression([value for value, *_ in ends] - steps).x
    return list((moved.clip(low, high - steps[-1]) + steps).tolist())


def _describe(axis: "Axes", curves: Curves, counts: Sequence[int]) -> None:
    """Write the title and the numbers of labels, with their numbers of data sets."""
    sizes = label_counts(curves.frame)
    ticks, over, label = sizes, amount(counts[0], "data set"), "labelled samples per class"
    if len(set(counts)) > 1:
        ticks = [f"{n}\n({k})" for n, k in zip(sizes, counts, strict=True)]
        over, label = "data sets", f"{label} (number of data sets)"
    stress = {NO_STRESS: "", "noise": " with 20 % wrong labels", "gap": " with a class unlabelled"}
    title = f"MAE relative to {curves.reference}{stress[curves.stress]}; lower is better"
    decode = METRICS["mae"].own_decoding(curves.decodings)
    group = f"{curves.group}, " if curves.group else ""
    detail = f"{group}mean over {over} with its 95 % bootstrap interval, decoding: {decode}"
    left: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    left |= {"parse_math": False, "annotation_clip": False}
    axis.annotate(title, (0, 1), (0, 24), fontsize=12, color=_INK, **left)
    axis.annotate(detail, (0, 1), (0, 9), fontsize=9.5, color=_GRAY, **left)
    axis.set_xticks(range(len(sizes)), ticks)
    axis.set_xlabel(label, fontsize=10.5, color=_INK, labelpad=6)


def save_svg(figure: "PrintFigure", path: Path) -> None:
    """Write a figure as SVG; the same numbers give the same bytes."""
    matplotlib = require("matplotlib", extra="report", needed_by="a picture")
    with matplotlib.rc_context({"svg.hashsalt": "layline"}), atomic_write(path) as part:
        figure.savefig(part, format="svg", bbox_inches="tight", metadata={"Date": None})


def curve_figure(curves: Curves, methods: Sequence[str]) -> Figure:
    """Draw the curve for a page: a click in the legend shows or hides a method."""
    sizes, found = label_counts(curves.frame), curves.compare("mae")
    others = [m for m in curves.order() if m not in methods and m != curves.reference]
    traces = []
    for place, method in enumerate([*methods, *others]):
        own = found.xs(method, level="method").reindex(sizes)
        own = own[own["difference"].notna()].round(3)
        color = _COLORS[place % len(_COLORS)]
        bars = own[["low", "high"]].sub(own["difference"], axis="index").fillna(0.0).abs()
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plot_text(method, 40),
                "visible": True if method in methods else "legendonly",
                "x": [_title(n) for n in own.index],
                "y": own["difference"].tolist(),
                "line": {"color": color, "width": 2},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": bars["high"].tolist(),
                    "arrayminus": bars["low"].tolist(),
                    "thickness": 1,
                    "width": 2,
                },
                "hovertemplate": f"{plot_text(method, 40)}, %{{x}}: %{{y:+.1f}} %<extra></extra>",
            }
        )
    return {
        "data": traces,
        "layout": {
            "height": 460,
            "showlegend": True,
            "legend": {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"},
            "xaxis": {
                "title": {"text": "labelled samples per class"},
                "type": "category",
                "categoryorder": "array",
                "categoryarray": [_title(n) for n in sizes],
            },
            "yaxis": {
                "title": {"text": plot_text(f"MAE relative to {curves.reference}, %", 60)},
                "zeroline": True,
                "zerolinecolor": "@ink",
            },
        },
    }


def _title(size: str) -> str:
    """Name a number of labels, so that plotly does not take it for a number."""
    return size if size == ALL_LABELS else f"{size} "
