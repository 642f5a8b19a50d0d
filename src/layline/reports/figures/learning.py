"""How training went: a number after each epoch, with the epoch that was kept."""

from collections.abc import Mapping, Sequence
from typing import Any

_STYLES = [
    {"line": {"color": "@accent", "width": 2.2}, "marker": {"symbol": "circle", "size": 5}},
    {
        "line": {"color": "@muted", "width": 2, "dash": "dot"},
        "marker": {"symbol": "diamond", "size": 5},
    },
]


def curves(
    history: Sequence[Mapping[str, Any]], shown: Mapping[str, str], best: int, title: str
) -> dict[str, Any]:
    """Draw numbers over the epochs.

    Args:
        history: A record per epoch.
        shown: What to call each key of a record; one or two.
        best: The epoch that was kept.
        title: What the numbers are.
    """
    epochs = [record["epoch"] for record in history]
    many = len(epochs) > 40
    data = [
        {
            "type": "scatter",
            "mode": "lines" if many else "lines+markers",
            "name": name,
            "x": epochs,
            "y": [record.get(key) for record in history],
            "hovertemplate": f"{name} %{{y:.4f}}<extra></extra>",
            **style,
        }
        for (key, name), style in zip(shown.items(), _STYLES, strict=False)
    ]
    return {
        "data": data,
        "layout": {
            "title": {"text": title},
            "hovermode": "x unified",
            "showlegend": len(data) > 1,
            "legend": {"x": 1, "xanchor": "right", "y": 1, "yanchor": "top", "bgcolor": "@paper"},
            "xaxis": {"title": {"text": "epoch"}, "rangemode": "normal", "tickformat": "d"},
            "yaxis": {"rangemode": "tozero"},
            "shapes": [
                {
                    **{"type": "line", "x0": best, "x1": best, "y0": 0, "y1": 1},
                    **{"yref": "paper", "line": {"color": "@ink", "width": 1, "dash": "dash"}},
                }
            ],
            "annotations": [
                {
                    **{"x": best, "y": 1, "yref": "paper", "yanchor": "bottom"},
                    **{"text": f"kept: {best}", "showarrow": False},
                }
            ],
        },
    }
