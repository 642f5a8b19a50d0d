"""Curves over a number that is varied: MAE at the left, accuracy at the right, as in the paper.

A method has its own colour, marker and place in the legend, a metric its own line style, so that
nothing depends on colours; these are those of Okabe and Ito, which most eyes can tell apart.
"""

from collections.abc import Sequence
from typing import Any

from layline.experiments.measures import measure_of
from layline.experiments.reproductions.curves import Curve
from layline.optional import require
from layline.reports.printing import new_figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
_SYMBOLS = ("circle", "square", "triangle-up", "diamond")
_LINES = {"mae": "-", "accuracy": "--"}
_DASHES = {"mae": "solid", "accuracy": "dash"}
_FAINT = "66"  # how much an error bar covers, of ff
_WIDE = 16  # more than this between first and last: steps are factors


def draw_curves(curves: Sequence[Curve], symbol: str, title: str, metrics: Sequence[str]) -> Any:
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
                [entry.mean for entry in entries],
                [entry.sd or 0.0 for entry in entries],
                label=f"{curve.name}, {_name(metric)}",
                color=_COLOURS[place],
                marker=_MARKERS[place],
                markerfacecolor=_COLOURS[place] if metric == "mae" else "white",
                linestyle=_LINES[metric],
                linewidth=1.4,
                ecolor=_COLOURS[place] + _FAINT,
                elinewidth=1.0,
                capsize=3,
            )
        axis.set_ylabel(measure_of(metric).title)
    ticks = sorted({x for curve in curves for x in curve.x})
    if _is_wide(ticks):
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
                name=f"{curve.name}, {_name(metric)}",
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
            "type": "log" if _is_wide(ticks) else "linear",
            "tickvals": ticks,
            "ticktext": [f"{x:g}" for x in ticks],
        },
        yaxis={"title": measure_of(metrics[0]).title, "showgrid": True},
        legend={"orientation": "h", "y": -0.2},
    )
    if len(metrics) > 1:
        right = {"title": measure_of(metrics[1]).title, "overlaying": "y", "side": "right"}
        figure.update_layout(yaxis2=right)
    return figure


def _is_wide(ticks: Sequence[float]) -> bool:
    return bool(ticks) and ticks[0] > 0 and ticks[-1] / ticks[0] > _WIDE


def _name(metric: str) -> str:
    return measure_of(metric).title.split(" (")[0]
