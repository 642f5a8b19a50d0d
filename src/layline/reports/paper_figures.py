"""The paper's figures, for print and for a page: curves over a number, and layouts side by side.

Curves have MAE at the left and accuracy at the right. A method has its own colour, marker and place
in the legend, a metric its own line style, so that nothing depends on colours; these are those of
Okabe and Ito, which most eyes can tell apart. Layouts have a row for each method, a column for each
snapshot of its training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from layline.bench.paper.figures import Curve
from layline.bench.summaries import find_metric
from layline.reports.printed_figures import draw_plane, new_figure
from layline.training.record import Snapshot
from layline.utils.optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Snapshots = Mapping[str, Snapshot]
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
_SYMBOLS = ("circle", "square", "triangle-up", "diamond")
_LINES = {"mae": "-", "accuracy": "--"}
_DASHES = {"mae": "solid", "accuracy": "dash"}
_FAINT = "66"  # how much an error bar covers, of ff
_LOGARITHMIC = 16  # a last value more than so many times the first: steps are factors


def draw_curves(
    curves: Sequence[Curve], symbol: str, title: str, metrics: Sequence[str]
) -> "Figure":
    """Draw curves for print.

    Args:
        curves: One per method.
        symbol: What the number on the x axis is called.
        title: Above the figure.
        metrics: What is drawn: the first on the left axis, the second, if any, on the right.
    """
    figure = new_figure(6.4, 4.4)
    left = figure.add_subplot()
    axes = [left, *(left.twinx() for _ in metrics[1:])]
    for metric, axis in zip(metrics, axes, strict=True):
        for place, curve in enumerate(curves):
            entries = curve.metrics[metric]
            axis.errorbar(
                curve.x,
                np.array([entry.mean for entry in entries], dtype=float),
                [entry.sd or 0.0 for entry in entries],
                label=f"{curve.name}, {_short_title(metric)}",
                color=_COLOURS[place],
                marker=_MARKERS[place],
                markerfacecolor=_COLOURS[place] if metric == "mae" else "white",
                linestyle=_LINES[metric],
                linewidth=1.4,
                ecolor=_COLOURS[place] + _FAINT,
                elinewidth=1.0,
                capsize=3,
            )
        axis.set_ylabel(find_metric(metric).title)
    ticks = sorted({x for curve in curves for x in curve.x})
    if _is_logarithmic(ticks):
        left.set_xscale("log", base=2)
    left.set_xticks(ticks, [f"{x:g}" for x in ticks])
    left.minorticks_off()
    left.set_xlabel(symbol)
    left.grid(visible=True, axis="y", color="0.9", linewidth=0.7)
    left.set_title(title, fontsize=11)
    handles = [handle for axis in axes for handle in axis.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def interactive_curves(
    curves: Sequence[Curve], symbol: str, title: str, metrics: Sequence[str]
) -> Any:
    """Draw the same curves for a page."""
    go = require("plotly.graph_objects", extra="report", needed_by="a page")
    figure = go.Figure()
    for number, metric in enumerate(metrics):
        for place, curve in enumerate(curves):
            entries = curve.metrics[metric]
            figure.add_scatter(
                x=list(curve.x),
                y=[entry.mean for entry in entries],
                error_y={
                    "array": [entry.sd or 0.0 for entry in entries],
                    "color": _COLOURS[place] + _FAINT,
                },
                customdata=[entry.n for entry in entries],
                hovertemplate=f"{symbol} = %{{x}}: %{{y:.3f}} over %{{customdata}} partitions",
                name=f"{curve.name}, {_short_title(metric)}",
                mode="lines+markers",
                line={"color": _COLOURS[place], "dash": _DASHES[metric]},
                marker={
                    "symbol": _SYMBOLS[place] + ("" if metric == "mae" else "-open"),
                    "size": 9,
                },
                yaxis="y" if number == 0 else "y2",
            )
    ticks = sorted({x for curve in curves for x in curve.x})
    figure.update_layout(
        title=title,
        template="simple_white",
        height=560,
        xaxis={
            "title": symbol,
            "type": "log" if _is_logarithmic(ticks) else "linear",
            "tickvals": ticks,
            "ticktext": [f"{x:g}" for x in ticks],
        },
        yaxis={"title": find_metric(metrics[0]).title, "showgrid": True},
        legend={"orientation": "h", "y": -0.2},
    )
    if len(metrics) > 1:
        right = {"title": find_metric(metrics[1]).title, "overlaying": "y", "side": "right"}
        figure.update_layout(yaxis2=right)
    return figure


def _is_logarithmic(ticks: Sequence[float]) -> bool:
    return bool(ticks) and ticks[0] > 0 and ticks[-1] / ticks[0] > _LOGARITHMIC


def _short_title(metric: str) -> str:
    return find_metric(metric).title.split(" (")[0]


def draw_layouts(methods: Mapping[str, Snapshots], title: str, misclassified: bool) -> "Figure":
    """Draw layouts for print.

    Args:
        methods: What each method recorded, by the names of the snapshots.
        title: Above the figure.
        misclassified: Whether these samples are drawn too, as crosses.
    """
    columns = max(len(snapshots) for snapshots in methods.values())
    figure = new_figure(3.0 * columns, 2.8 * len(methods) + 0.5)
    axes = figure.subplots(len(methods), columns, squeeze=False)
    for line, (name, snapshots) in zip(axes, methods.items(), strict=True):
        for axis in line[len(snapshots) :]:
            axis.set_visible(False)
        for axis, (label, snapshot) in zip(line, snapshots.items(), strict=False):
            correct, wrong = split_by_outcome(snapshot)
            num_classes = _num_classes(snapshot)
            draw_plane(axis, correct.points, correct.ranks, snapshot.proxies, num_classes)
            if misclassified:
                draw_plane(axis, wrong.points, wrong.ranks, None, num_classes, marker="x")
            axis.set_title(f"{label}: {len(correct.ranks)} of {len(snapshot.ranks)}", fontsize=9)
        line[0].set_ylabel(name, fontsize=12)
    figure.suptitle(title, fontsize=11)
    return figure


def interactive_layouts(methods: Mapping[str, Snapshots], title: str) -> Any:
    """Draw the same layouts for a page, where the misclassified can be switched on and off."""
    go = require("plotly.graph_objects", extra="report", needed_by="a page")
    subplots = require("plotly.subplots", extra="report", needed_by="a page")
    columns = max(len(snapshots) for snapshots in methods.values())
    titles = []
    for name, snapshots in methods.items():
        titles += [f"{name}, {label}" for label in snapshots]
        titles += [""] * (columns - len(snapshots))
    figure = subplots.make_subplots(
        rows=len(methods),
        cols=columns,
        subplot_titles=titles,
        horizontal_spacing=0.03,
        vertical_spacing=0.06,
    )
    seen: set[str] = set()
    for row, snapshots in enumerate(methods.values(), start=1):
        for column, snapshot in enumerate(snapshots.values(), start=1):
            correct, wrong = split_by_outcome(snapshot)
            for group, part, symbol in (
                ("correct", correct, "circle"),
                ("misclassified", wrong, "x-thin"),
            ):
                trace = _point_trace(go, group, part, symbol, _num_classes(snapshot))
                figure.add_trace(trace.update(showlegend=group not in seen), row, column)
                seen.add(group)
            if snapshot.proxies is not None:
                trace = _proxy_trace(go, snapshot.proxies)
                figure.add_trace(trace.update(showlegend="proxies" not in seen), row, column)
                seen.add("proxies")
    figure.update_xaxes(showticklabels=False, zeroline=False)
    figure.update_yaxes(showticklabels=False, zeroline=False)
    for number in range(1, len(methods) * columns + 1):  # a step is as long in both directions
        figure.layout[f"yaxis{number}"].update(scaleanchor=f"x{number}")
    figure.update_layout(
        title=title,
        template="simple_white",
        height=300 * len(methods) + 120,
        legend={"orientation": "h", "y": -0.02, "groupclick": "togglegroup"},
    )
    return figure


def _point_trace(go: Any, group: str, part: Snapshot, symbol: str, num_classes: int) -> Any:
    # the line is what a thin cross is made of
    colour = {"color": part.ranks.tolist(), "colorscale": "Viridis", "cmin": 0}
    colour |= {"cmax": num_classes - 1}
    line = {**colour, "width": 1} if symbol == "x-thin" else {"width": 0}
    return go.Scatter(
        x=np.round(part.points[:, 0].astype(float), 4),
        y=np.round(part.points[:, 1].astype(float), 4),
        customdata=np.stack([part.ranks, part.predicted], axis=1),
        hovertemplate="true rank %{customdata[0]}, predicted %{customdata[1]}<extra></extra>",
        mode="markers",
        marker={**colour, "symbol": symbol, "size": 5, "line": line},
        name=group,
        legendgroup=group,
    )


def _proxy_trace(go: Any, proxies: Float[np.ndarray, "K 2"]) -> Any:
    return go.Scatter(
        x=proxies[:, 0].astype(float),
        y=proxies[:, 1].astype(float),
        text=[str(rank) for rank in range(len(proxies))],
        hovertemplate="proxy of rank %{text}<extra></extra>",
        mode="lines+markers+text",
        line={"color": "#444", "width": 1},
        marker={"color": "white", "size": 15, "line": {"color": "black", "width": 1}},
        textfont={"size": 10, "color": "black"},
        name="proxies",
        legendgroup="proxies",
    )


def split_by_outcome(snapshot: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Give the samples that are classified correctly, and the others."""
    correct = snapshot.ranks == snapshot.predicted
    return _subset(snapshot, correct), _subset(snapshot, ~correct)


def _subset(snapshot: Snapshot, kept: Bool[np.ndarray, " m"]) -> Snapshot:
    return replace(
        snapshot,
        points=snapshot.points[kept],
        ranks=snapshot.ranks[kept],
        predicted=snapshot.predicted[kept],
        index=None,
    )


def _num_classes(snapshot: Snapshot) -> int:
    if snapshot.proxies is not None:
        return len(snapshot.proxies)
    return int(max(snapshot.ranks.max(), snapshot.predicted.max())) + 1
