"""Bars of how the samples share out over whole numbers, such as the sizes of errors."""

from typing import Any

import numpy as np
from jaxtyping import Int


def share_bars(
    counts: Int[np.ndarray, " numbers"], first: int, hover: str, most_with_text: int
) -> dict[str, Any]:
    """Draw the share of the samples that each number has.

    Args:
        counts: Samples by number.
        first: The number that the counts start with.
        hover: What is said of a number before its samples.
        most_with_text: Up to so many bars have their share written above them.
    """
    shares = counts / max(counts.sum(), 1)
    return {
        "type": "bar",
        "x": list(range(first, first + len(counts))),
        "y": np.round(shares, 6).tolist(),
        "customdata": counts.tolist(),
        "text": [f"{share:.1%}" for share in shares] if len(counts) <= most_with_text else None,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": f"{hover}: %{{customdata}} samples, %{{y:.1%}}<extra></extra>",
        "marker": {"color": "@accent"},
    }
