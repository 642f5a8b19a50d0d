"""The critical-difference diagram: methods on the axis of mean ranks, bars over what is alike.

After Demšar (JMLR 7, 2006). The best method is at the left. Two methods under one bar are not
significantly different by the test of Nemenyi.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from layline.experiments.ranks import cliques, critical_difference
from layline.reports.canvas import blank, save

_INK = "black"
_LEADER = "0.45"
_BAR_STEP = 0.5  # between bars, in lines of text
_SPAN = 5.6  # inches of the axis
_LINE = 0.2  # inches of a line of text


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


def stacked(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Put each span on the first level where it touches no other."""
    ends: list[float] = []
    levels = []
    for low, high in sorted(spans):
        level = next((i for i, end in enumerate(ends) if end < low), len(ends))
        ends[level : level + 1] = [high]
        levels.append((low, high, level))
    places = {(low, high): level for low, high, level in levels}
    return [places[span] for span in spans]


def save_critical_difference(
    path: Path, ranks: "pd.Series[float]", data: int, alpha: float = 0.05, title: str = ""
) -> None:
    """Draw the diagram and write it as PNG or PDF.

    Args:
        path: The picture; its ending says the format.
        ranks: The mean rank of each method.
        data: The number of data sets that they are ranked on.
        alpha: How often a difference may be found where there is none.
        title: Above it.
    """
    if len(ranks) < 2:
        raise ValueError(
            f"ranks must be of at least 2 methods, got {len(ranks)}: "
            "methods are ranked where they finished on every data set"
        )
    difference = critical_difference(len(ranks), data, alpha)
    values = {str(name): rank for name, rank in ranks.items()}
    groups = [(values[group[0]], values[group[-1]]) for group in cliques(ranks, difference)]
    lines = (len(ranks) + 1) // 2 + _BAR_STEP * len(set(stacked(groups)))
    figure = blank(_SPAN, (lines + 4) * _LINE, layout=None)
    axis = figure.add_axes((0, 0, 1, 1))  # the names stand outside
    draw_critical_difference(axis, ranks, groups, difference)
    if title:
        axis.set_title(title, fontsize=10, parse_math=False)
    save(figure, path)


def draw_critical_difference(
    axis: Any,
    ranks: "pd.Series[float]",
    groups: Sequence[tuple[float, float]],
    difference: float,
) -> None:
    """Draw the diagram. Down is counted in lines of text, from the axis of ranks at 0.

    Args:
        axis: Of matplotlib.
        ranks: The mean rank of each method.
        groups: The first and last mean rank of what is not significantly different.
        difference: The critical one.
    """
    start, stop = floor(ranks.min()), max(ceil(ranks.max()), floor(ranks.min()) + 1)
    margin = (stop - start) * 0.04
    _draw_scale(axis, start, stop, difference)
    bars = stacked(groups)
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


def _draw_scale(axis: Any, start: int, stop: int, difference: float) -> None:
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
