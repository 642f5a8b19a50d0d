"""How similar the proxies are to each other (Q), beside what they are held to (U)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from layline.reports.figures.confusion import class_axis
from layline.reports.text import HOVER, in_plot

MOST_WITH_TEXT = 10


def similarity_figures(
    q: Float[np.ndarray, "K K"], u: Float[np.ndarray, "K K"] | None, classes: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Draw Q, and where there is one U and their difference, on common scales.

    Args:
        q: Similarities of the proxies, each row a distribution.
        u: The unimodal distributions they are held to, for a head with a smoothing.
        classes: Names of the classes, lowest first.

    Returns:
        The figures by name: ``q``, ``u`` and ``difference``.
    """
    top = float(max(table.max() for table in (q, u) if table is not None))
    even = {"colorscale": "@heat", "zmin": 0.0, "zmax": top}
    figures = {"q": _heat(q, classes, "Q: the proxies as learned", even)}
    if u is not None:
        gap = q - u
        most = max(float(np.abs(gap).max()), 1e-3)
        signed = {"colorscale": "@diverging", "zmin": -most, "zmax": most}
        figures["u"] = _heat(u, classes, "U: what they are held to", even)
        figures["difference"] = _heat(gap, classes, "Q − U", signed)
    return figures


def _heat(
    table: Float[np.ndarray, "K K"], classes: Sequence[str], title: str, scale: dict[str, Any]
) -> dict[str, Any]:
    full = [in_plot(name, HOVER) for name in classes]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": np.round(table.astype(np.float64), 5).tolist(),
        "x": list(range(len(classes))),
        "y": list(range(len(classes))),
        "customdata": [[[row, column] for column in full] for row in full],
        "hovertemplate": "%{customdata[0]} to %{customdata[1]}: %{z:.4f}<extra></extra>",
        "colorbar": {"thickness": 8, "outlinewidth": 0, "len": 0.8, "nticks": 5},
        **scale,
    }
    if len(classes) <= MOST_WITH_TEXT:
        heat |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}, "showscale": False}
    axis = class_axis(classes)
    return {
        "data": [heat],
        "layout": {
            "title": {"text": title},
            "xaxis": {**axis, "showgrid": False, "constrain": "domain"},
            "yaxis": {
                **axis,
                "showgrid": False,
                "autorange": "reversed",
                "scaleanchor": "x",
                "constrain": "domain",
            },
        },
    }
