"""How many peaks the predicted distributions have: one is what ordered classes suggest."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.reports.figures.shares import share_bars

TOLERANCE = 1e-7  # predictions are written with eight digits


def count_modes(
    proba: Float[np.ndarray, "n K"], tolerance: float = TOLERANCE
) -> Int[np.ndarray, " n"]:
    """Count the peaks of each distribution: one, and one more for each rise after a fall."""
    modes = np.ones(len(proba), dtype=np.int64)
    falling = np.zeros(len(proba), dtype=bool)
    for step in np.diff(proba, axis=1).T:
        rises, falls = step > tolerance, step < -tolerance
        modes += falling & rises
        falling = (falling & ~rises) | falls
    return modes


def modes_figure(modes: Int[np.ndarray, " n"]) -> dict[str, Any]:
    """Draw the share of samples by the number of peaks."""
    counts = np.bincount(modes)[1:]
    return {
        "data": [share_bars(counts, 1, "peaks %{x}", most_with_text=8) | {"width": 0.6}],
        "layout": {
            "title": {"text": "Peaks of the predicted distributions"},
            "xaxis": {
                **{"title": {"text": "number of peaks"}, "showgrid": False},
                **({"dtick": 1} if len(counts) <= 12 else {}),
                "range": [0.4, max(len(counts), 3) + 0.6],
            },
            "yaxis": {"tickformat": ".0%", "range": [0, 1.12]},
        },
    }
