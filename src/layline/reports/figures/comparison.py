"""Methods side by side: their mean ranks, and their means with the bootstrap's intervals."""

from typing import Any

import pandas as pd

from layline.experiments.measures import Measure
from layline.experiments.ranks import Ranking, critical_difference

_LINE = 21  # pixels for a method


def ranks_figure(ranking: Ranking) -> dict[str, Any]:
    """Draw the mean rank of each method; the band is what differs from the best by chance.

    Args:
        ranking: The best first.
    """
    ranks = ranking.ranks
    best = float(ranks.iloc[0])
    within = critical_difference(len(ranks), ranking.data)
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": [float(rank) for rank in ranks],
                "y": [str(name) for name in ranks.index],
                "marker": {"color": "@accent", "size": 9},
                "hovertemplate": "%{y}: %{x:.2f}<extra></extra>",
            }
        ],
        "layout": {
            **_rows(len(ranks)),
            "xaxis": {
                "title": {"text": "mean rank by MAE, lower is better"},
                "side": "top",
                "range": [0.5, len(ranks) + 0.5],
            },
            "shapes": [
                {
                    **{"type": "rect", "x0": best, "x1": best + within, "y0": 0, "y1": 1},
                    **{"yref": "paper", "fillcolor": "@soft", "opacity": 0.55, "layer": "below"},
                    "line": {"width": 0},
                }
            ],
        },
    }


def intervals_figure(found: pd.DataFrame, measure: Measure) -> dict[str, Any]:
    """Draw the mean of each method with its interval, the best on top.

    Args:
        found: ``mean``, ``low`` and ``high`` of each method, in the metric's own unit.
        measure: How it is shown.
    """
    known = found.dropna(subset=["mean"])[["mean", "low", "high"]] * measure.scale
    known = known.sort_values("mean", ascending=measure.lower_is_better)
    mean = known["mean"]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": mean.tolist(),
                "y": [str(name) for name in known.index],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": (known["high"] - mean).tolist(),
                    "arrayminus": (mean - known["low"]).tolist(),
                    "color": "@muted",
                    "thickness": 1.6,
                    "width": 3,
                },
                "marker": {"color": "@accent", "size": 8},
                "hovertemplate": "%{y}: %{x:.3f}<extra></extra>",
            }
        ],
        "layout": {
            **_rows(len(known)),
            "xaxis": {"title": {"text": measure.title}, "side": "top"},
        },
    }


def _rows(count: int) -> dict[str, Any]:
    """One line per method, the first on top, each with its name."""
    return {
        "height": 90 + _LINE * count,
        "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1, "ticksuffix": " "},
        "margin": {"l": 60, "r": 16, "t": 56, "b": 12},
    }
