"""Whether probabilities can be believed: accuracy against confidence, in the bins of the ECE."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

BINS = 15


@dataclass(frozen=True)
class Bins:
    """Samples by the probability of their likeliest class, bin b in (b/B, (b+1)/B].

    Attributes:
        counts: Samples in each bin.
        confidence: Their mean probability; NaN in an empty bin.
        accuracy: Share of them that the likeliest class is right for.
    """

    counts: Int[np.ndarray, " B"]
    confidence: Float[np.ndarray, " B"]
    accuracy: Float[np.ndarray, " B"]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float((self.counts * gaps).sum() / self.counts.sum())


def binned(ranks: Int[np.ndarray, " n"], proba: Float[np.ndarray, "n K"], bins: int = BINS) -> Bins:
    """Sort samples into bins, as :func:`layline.metrics.expected_calibration_error` does."""
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == ranks
    place = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, weights=confidence, minlength=bins) / counts
        shares = np.bincount(place, weights=right, minlength=bins) / counts
    return Bins(counts, means, shares)


def reliability_figure(bins: Bins) -> dict[str, Any]:
    """Draw accuracy against confidence, above the number of samples in each bin."""
    count = len(bins.counts)
    filled = bins.counts > 0
    middles = (np.arange(count) + 0.5) / count
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": "perfectly calibrated",
                "x": [0, 1],
                "y": [0, 1],
                "line": {"color": "@muted", "dash": "dash", "width": 1.5},
                "hoverinfo": "skip",
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "this model",
                "x": np.round(bins.confidence[filled], 5).tolist(),
                "y": np.round(bins.accuracy[filled], 5).tolist(),
                "customdata": bins.counts[filled].tolist(),
                "line": {"color": "@accent", "width": 2.2},
                "marker": {"color": "@accent", "size": 8},
                "hovertemplate": "confidence %{x:.1%}<br>accuracy %{y:.1%}<br>"
                "%{customdata} samples<extra></extra>",
            },
            {
                "type": "bar",
                "name": "samples",
                "x": np.round(middles, 5).tolist(),
                "y": bins.counts.tolist(),
                "width": 0.9 / count,
                "yaxis": "y2",
                "marker": {"color": "@soft", "line": {"color": "@muted", "width": 0.5}},
                "hovertemplate": "%{y} samples<extra></extra>",
                "showlegend": False,
            },
        ],
        "layout": {
            "title": {"text": "Reliability"},
            "showlegend": True,
            "xaxis": {
                **{"range": [0, 1], "tickformat": ".0%", "anchor": "y2"},
                "title": {"text": "probability of the likeliest class"},
            },
            "yaxis": {
                **{"range": [-0.03, 1.03], "tickformat": ".0%", "domain": [0.32, 1]},
                "title": {"text": "share right"},
            },
            "yaxis2": {"domain": [0, 0.22], "title": {"text": "samples"}, "nticks": 3},
        },
    }
