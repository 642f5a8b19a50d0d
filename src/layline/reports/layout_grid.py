"""Layouts side by side: a row for each method, a column for each moment of its training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from layline.optional import require
from layline.reports.layouts import draw_plane
from layline.reports.printing import new_figure
from layline.training.snapshot import Snapshot

Moments = Mapping[str, Snapshot]


def correct(snapshot: Snapshot) -> Snapshot:
    """Leave out the samples that were taken for another class."""
    return _part(snapshot, snapshot.ranks == snapshot.predicted)


def wrong(snapshot: Snapshot) -> Snapshot:
    """Keep only the samples that were taken for another class."""
    return _part(snapshot, snapshot.ranks != snapshot.predicted)


def draw_layouts(methods: Mapping[str, Moments], title: str, with_wrong: bool) -> Any:
    """Draw layouts for print.

    Args:
        methods: What each method recorded, by the names of the moments.
        title: Above the figure.
        with_wrong: Whether misclassified samples are drawn too, as crosses.
    """
    columns = max(len(moments) for moments in methods.values())
    figure = new_figure(3.0 * columns, 2.8 * len(methods) + 0.5)
    axes = figure.subplots(len(methods), columns, squeeze=False)
    for line, (name, moments) in zip(axes, methods.items(), strict=True):
        for axis in line[len(moments) :]:
            axis.set_visible(False)
        for axis, (moment, snapshot) in zip(line, moments.items(), strict=False):
            right, others = correct(snapshot), wrong(snapshot)
            num_classes = _num_classes(snapshot)
            draw_plane(axis, right.points, right.ranks, snapshot.proxies, num_classes)
            if with_wrong:
                draw_plane(axis, others.points, others.ranks, None, num_classes, marker="x")
            axis.set_title(f"{moment}: {len(right.ranks)} of {len(snapshot.ranks)}", fontsize=9)
        line[0].set_ylabel(name, fontsize=12)
    figure.suptitle(title, fontsize=11)
    return figure


def interactive_layouts(methods: Mapping[str, Moments], title: str) -> Any:
    """Draw the same layouts for a page, where the misclassified can be switched on and off."""
    go = require("plotly.graph_objects", extra="report", needed_by="a page")
    subplots = require("plotly.subplots", extra="report", needed_by="a page")
    columns = max(len(moments) for moments in methods.values())
    titles = [
        f"{name}, {moment}"
        for name, moments in methods.items()
        for moment in [*moments, *[""] * (columns - len(moments))]
    ]
    figure = subplots.make_subplots(
        rows=len(methods),
        cols=columns,
        subplot_titles=[title if title.split(", ", 1)[1] else "" for title in titles],
        horizontal_spacing=0.03,
        vertical_spacing=0.06,
    )
    seen: set[str] = set()
    for row, moments in enumerate(methods.values(), start=1):
        for column, snapshot in enumerate(moments.values(), start=1):
            for group, part, symbol in (
                ("correct", correct(snapshot), "circle"),
                ("misclassified", wrong(snapshot), "x-thin"),
            ):
                trace = _points(go, group, part, symbol, _num_classes(snapshot))
                figure.add_trace(trace.update(showlegend=group not in seen), row, column)
                seen.add(group)
            if snapshot.proxies is not None:
                trace = _proxies(go, snapshot.proxies)
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


def _points(go: Any, group: str, part: Snapshot, symbol: str, num_classes: int) -> Any:
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


def _proxies(go: Any, proxies: Any) -> Any:
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


def _part(snapshot: Snapshot, kept: Any) -> Snapshot:
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
