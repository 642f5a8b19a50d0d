"""Which classes are taken for which: counts, and shares of each true class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.reports.text import HOVER, in_plot

MOST_WITH_TEXT = 16  # classes; with more of them a cell has no room for a number
MOST_WITH_SHARES = 8


def row_shares(confusion: Int[np.ndarray, "K K"]) -> Float[np.ndarray, "K K"]:
    """Divide each row by its sum; a class without samples has zeros."""
    totals = confusion.sum(axis=1, keepdims=True)
    return np.asarray(confusion / np.maximum(totals, 1), dtype=np.float64)


def confusion_figure(confusion: Int[np.ndarray, "K K"], classes: Sequence[str]) -> dict[str, Any]:
    """Draw the confusion matrix, true classes in rows, both in class order.

    Args:
        confusion: Counts.
        classes: Names of the classes, lowest first.
    """
    shares, count = row_shares(confusion), len(classes)
    full = [in_plot(name, HOVER) for name in classes]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": np.round(shares, 4).tolist(),
        "x": list(range(count)),
        "y": list(range(count)),
        "zmin": 0,
        "zmax": 1,
        "colorscale": "@heat",
        "showscale": count > MOST_WITH_TEXT,
        "colorbar": {"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
        "customdata": [
            [[int(confusion[true, said]), full[true], full[said]] for said in range(count)]
            for true in range(count)
        ],
        "hovertemplate": "true %{customdata[1]}<br>predicted %{customdata[2]}<br>"
        "%{customdata[0]} samples, %{z:.1%} of the class<extra></extra>",
        "xgap": 1 if count <= MOST_WITH_TEXT else 0,
        "ygap": 1 if count <= MOST_WITH_TEXT else 0,
    }
    if count <= MOST_WITH_TEXT:
        heat["text"] = [
            [_cell(int(confusion[i, j]), shares[i, j], count) for j in range(count)]
            for i in range(count)
        ]
        heat["texttemplate"] = "%{text}"
        heat["textfont"] = {"size": 12 if count <= MOST_WITH_SHARES else 10}
    axis = class_axis(classes)
    return {
        "data": [heat],
        "layout": {
            "xaxis": {
                **axis,
                "title": {"text": "predicted"},
                "showgrid": False,
                "constrain": "domain",
            },
            "yaxis": {
                **axis,
                "title": {"text": "true"},
                "autorange": "reversed",
                "showgrid": False,
                "scaleanchor": "x",
                "constrain": "domain",
            },
        },
    }


def class_axis(classes: Sequence[str]) -> dict[str, Any]:
    """Name the classes beside an axis; of many, only some."""
    step = -(-len(classes) // 20)
    return {
        "tickvals": list(range(0, len(classes), step)),
        "ticktext": [in_plot(name) for name in classes[::step]],
    }


def _cell(count: int, share: float, classes: int) -> str:
    if count == 0:
        return ""
    return f"{count}<br>{share:.0%}" if classes <= MOST_WITH_SHARES else str(count)
