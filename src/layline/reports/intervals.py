"""A forest plot: the mean of every method with its interval, one panel per data set."""

from pathlib import Path
from typing import Any

import pandas as pd

from layline.experiments.measures import Measure, measure_of
from layline.experiments.summaries import intervals
from layline.reports.canvas import blank, save

_ACROSS = 4  # panels side by side
_INK = "black"


def save_intervals(
    path: Path,
    frame: pd.DataFrame,
    metric: str,
    decode: str,
    confidence: float = 0.95,
    *,
    pooled: bool = False,
) -> None:
    """Draw a forest plot of one metric, the best method on top, and write it as PNG or PDF.

    Args:
        path: The picture; its ending says the format.
        frame: One row per run and decoding.
        metric: What is drawn.
        decode: How distributions became ranks.
        confidence: Of the bootstrap intervals of the mean over seeds.
        pooled: One panel with the mean over data sets instead of one for each.
    """
    measure = measure_of(metric)
    found = intervals(frame, metric, decode, confidence, pooled=pooled)
    methods = order(found, measure)
    data = list(found.index.unique("data"))
    across = min(_ACROSS, len(data))
    down = -(-len(data) // across)
    figure = blank(1.8 + 2.2 * across, (0.9 + 0.19 * len(methods)) * down + 0.3)
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for axis, name in zip(axes, data, strict=False):
        draw_intervals(axis, found.xs(name, level="data"), methods, measure)
        if not pooled:
            axis.set_title(name, fontsize=10, parse_math=False)
    for axis in axes[len(data) :]:
        axis.set_visible(False)
    where = "mean over data sets and seeds" if pooled else "mean over seeds"
    decoding = f", decoding by the {decode}" if measure.decoded else ""
    better = "lower" if measure.lower_is_better else "higher"
    figure.supxlabel(
        f"{measure.title}, {better} is better{decoding}: {where} with {confidence:.0%} interval",
        fontsize=9,
    )
    save(figure, path)


def order(found: pd.DataFrame, measure: Measure) -> list[str]:
    """Put the methods in the order of their mean over panels, the best first.

    Those that have no number on some panel come after the others.
    """
    table = found["mean"].unstack("method")
    overall = pd.DataFrame({"missing": table.isna().any(), "mean": table.mean()})
    ordered = overall.sort_values(["missing", "mean"], ascending=[True, measure.lower_is_better])
    return [str(name) for name in ordered.index]


def draw_intervals(axis: Any, found: pd.DataFrame, methods: list[str], measure: Measure) -> None:
    """Draw one panel: a dot at each mean, a line over its interval.

    Args:
        axis: Of matplotlib.
        found: The mean, low and high of each method, in the metric's own unit.
        methods: From top to bottom; one without a number has a cross at the left edge.
        measure: How the metric is shown.
    """
    scaled = found.reindex(methods)[["mean", "low", "high"]] * measure.scale
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
