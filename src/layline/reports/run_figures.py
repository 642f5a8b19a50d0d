"""The figures of a run's report: pure functions from numbers to what plotly draws.

A figure is a dictionary with ``data`` and ``layout``. A colour is a name such as ``@accent`` that
the page fills in, so that light and dark need no second figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.reports.html import HOVER, plot_text

# Classes: with more of them a cell has no room for its count, its share, its similarity.
MOST_WITH_COUNTS = 16
MOST_WITH_SHARES = 8
MOST_WITH_SIMILARITIES = 10
BINS = 15  # those of the expected calibration error
TOLERANCE = 1e-7  # predictions are written with eight digits
_STYLES: list[dict[str, Any]] = [
    {"line": {"color": "@accent", "width": 2.2}, "marker": {"symbol": "circle", "size": 5}},
    {
        "line": {"color": "@muted", "width": 2, "dash": "dot"},
        "marker": {"symbol": "diamond", "size": 5},
    },
]


# --- how training went


def learning_curves(
    history: Sequence[Mapping[str, Any]], shown: Mapping[str, str], best: int, title: str
) -> dict[str, Any]:
    """Draw numbers over the epochs, with a line at the epoch that was kept.

    Args:
        history: A record per epoch.
        shown: What to call each key of a record; one or two.
        best: The epoch that was kept.
        title: What the numbers are.
    """
    epochs = [record["epoch"] for record in history]
    data = [
        {
            "type": "scatter",
            "mode": "lines" if len(epochs) > 40 else "lines+markers",
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
            # below: inside, it would hide a curve
            "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.22},
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


# --- which classes are taken for which, and how far off predictions are


def confusion_figure(confusion: Int[np.ndarray, "K K"], classes: Sequence[str]) -> dict[str, Any]:
    """Draw the confusion matrix, true classes in rows, both in class order.

    Args:
        confusion: Counts.
        classes: Names of the classes, lowest first.
    """
    shares, count = row_shares(confusion), len(classes)
    has_text = count <= MOST_WITH_COUNTS
    full = [plot_text(name, HOVER) for name in classes]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": np.round(shares, 4).tolist(),
        "x": list(range(count)),
        "y": list(range(count)),
        "zmin": 0,
        "zmax": 1,
        "colorscale": "@heat",
        "showscale": not has_text,
        "colorbar": {"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
        "customdata": [
            [[int(confusion[i, j]), full[i], full[j]] for j in range(count)] for i in range(count)
        ],
        "hovertemplate": "true %{customdata[1]}<br>predicted %{customdata[2]}<br>"
        "%{customdata[0]} samples, %{z:.1%} of the class<extra></extra>",
        "xgap": 1 if has_text else 0,
        "ygap": 1 if has_text else 0,
    }
    if has_text:
        heat["text"] = [
            [_cell_text(int(confusion[i, j]), shares[i, j], count) for j in range(count)]
            for i in range(count)
        ]
        heat["texttemplate"] = "%{text}"
        heat["textfont"] = {"size": 12 if count <= MOST_WITH_SHARES else 10}
    axes = _square_axes(classes)
    axes["xaxis"]["title"] = {"text": "predicted"}
    axes["yaxis"]["title"] = {"text": "true"}
    return {"data": [heat], "layout": axes}


def row_shares(confusion: Int[np.ndarray, "K K"]) -> Float[np.ndarray, "K K"]:
    """Divide each row by its sum; a class without samples has zeros."""
    totals = confusion.sum(axis=1, keepdims=True)
    return np.asarray(confusion / np.maximum(totals, 1), dtype=np.float64)


def _cell_text(count: int, share: float, classes: int) -> str:
    if count == 0:
        return ""
    return f"{count}<br>{share:.0%}" if classes <= MOST_WITH_SHARES else str(count)


def class_errors_figure(
    confusion: Int[np.ndarray, "K K"], classes: Sequence[str]
) -> dict[str, Any]:
    """Draw the mean absolute error of each class, with how many samples it has."""
    errors, support = class_errors(confusion), confusion.sum(axis=1)
    few = len(classes) <= MOST_WITH_COUNTS
    bars: dict[str, Any] = {
        "type": "bar",
        "x": list(range(len(classes))),
        "y": [None if np.isnan(value) else round(float(value), 4) for value in errors],
        "customdata": [
            [plot_text(name, HOVER), int(n)] for name, n in zip(classes, support, strict=True)
        ],
        "hovertemplate": "%{customdata[0]}<br>MAE %{y:.3f}, %{customdata[1]} samples"
        "<extra></extra>",
        "marker": {"color": "@accent"},
    }
    if few:
        bars["text"] = [f"n={n}" for n in support]
        bars |= {"textposition": "outside", "cliponaxis": False, "constraintext": "none"}
    return {
        "data": [bars],
        "layout": {
            "title": {"text": "Mean absolute error by true class"},
            "xaxis": {**_class_axis(classes), "showgrid": False},
            "yaxis": {"rangemode": "tozero"},
            "bargap": 0.25 if few else 0.05,
        },
    }


def class_errors(confusion: Int[np.ndarray, "K K"]) -> Float[np.ndarray, " K"]:
    """Give the mean absolute error of each class; NaN for one without samples."""
    support = confusion.sum(axis=1)
    total = (confusion * _rank_distances(len(confusion))).sum(axis=1)
    return np.where(support > 0, total / np.maximum(support, 1), np.nan)


def error_sizes_figure(confusion: Int[np.ndarray, "K K"]) -> dict[str, Any]:
    """Draw the share of samples by how many ranks they are off."""
    counts = error_counts(confusion)
    return {
        "data": [_share_bars(counts, 0, "%{x} off", most_with_text=10)],
        "layout": {
            "title": {"text": "How many ranks off"},
            "xaxis": {"title": {"text": "|error| in ranks"}, "tickformat": "d", "showgrid": False}
            | ({"dtick": 1} if len(counts) <= 12 else {}),
            "yaxis": {"tickformat": ".0%", "rangemode": "tozero"},
        },
    }


def error_counts(confusion: Int[np.ndarray, "K K"]) -> Int[np.ndarray, " sizes"]:
    """Count the samples that are 0, 1, 2, … ranks off, up to the largest error there is."""
    distances = _rank_distances(len(confusion)).ravel()
    counts = np.bincount(distances, weights=confusion.ravel()).astype(np.int64)
    return np.trim_zeros(counts, "b")


def _rank_distances(num_classes: int) -> Int[np.ndarray, "K K"]:
    ranks = np.arange(num_classes)
    return np.asarray(np.abs(ranks[:, None] - ranks))


def class_rates_figure(rows: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> dict[str, Any]:
    """Draw recall and precision of each class, with their intervals.

    Args:
        rows: As ``by_class`` of ``test.json``.
        classes: Names of the classes, lowest first.
    """
    return {
        "data": [
            _rate_points(rows, "recall", classes, -0.12, _STYLES[0]),
            _rate_points(rows, "precision", classes, 0.12, _STYLES[1]),
        ],
        "layout": {
            "title": {"text": "Recall and precision by class"},
            "showlegend": True,
            "xaxis": {
                **_class_axis(classes),
                "showgrid": False,
                "range": [-0.6, len(classes) - 0.4],
            },
            "yaxis": {"tickformat": ".0%", "range": [-0.03, 1.03]},
        },
    }


def _rate_points(
    rows: Sequence[Mapping[str, Any]],
    key: str,
    classes: Sequence[str],
    shift: float,
    style: Mapping[str, Any],
) -> dict[str, Any]:
    """Draw a share of each class that has one as a point beside its place, with its interval."""
    known = [(rank, row) for rank, row in enumerate(rows) if row[key] is not None]
    shares = [row[key] for _, row in known]
    lows, highs = ([row[f"{key}_interval"][end] for _, row in known] for end in (0, 1))
    colour = style["line"]["color"]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": key,
        "x": [rank + shift for rank, _ in known],
        "y": np.round(shares, 5).tolist(),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": np.round(np.subtract(highs, shares), 5).tolist(),
            "arrayminus": np.round(np.subtract(shares, lows), 5).tolist(),
            "width": 3,
            "thickness": 1.4,
            "color": colour,
        },
        "customdata": [
            [plot_text(classes[rank], HOVER), low, high]
            for (rank, _), low, high in zip(known, lows, highs, strict=True)
        ],
        "hovertemplate": f"%{{customdata[0]}}<br>{key} %{{y:.1%}} "
        "(%{customdata[1]:.1%} to %{customdata[2]:.1%})<extra></extra>",
        "marker": {**style["marker"], "color": colour, "size": 8},
    }


# --- what is acted on, and who is sent for review


def roc_figure(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Draw the curve of a threshold with the point that the model works at.

    Args:
        row: One of ``thresholds`` of ``test.json``.

    Returns:
        None where no curve was kept.
    """
    curve = row["curve"]
    if curve is None:
        return None
    found, alarmed = row["sensitivity"], 1 - row["specificity"]
    hover = "%{y:.1%} found, %{x:.1%} of the others reported too<extra></extra>"
    return {
        "data": [
            {
                **{"type": "scatter", "mode": "lines", "name": "no better than chance"},
                **{"x": [0, 1], "y": [0, 1], "hoverinfo": "skip"},
                "line": {"color": "@muted", "dash": "dash", "width": 1.5},
            },
            {
                **{"type": "scatter", "mode": "lines", "name": "this model, stricter or laxer"},
                **{"x": curve["fpr"], "y": curve["tpr"], "hovertemplate": hover},
                "line": {"color": "@accent", "width": 2.2},
            },
            {
                **{"type": "scatter", "mode": "markers", "name": "as it decides"},
                **{"x": [round(alarmed, 5)], "y": [round(found, 5)], "hovertemplate": hover},
                "marker": {"color": "@ink", "size": 11, "symbol": "diamond"},
            },
        ],
        "layout": {
            "showlegend": True,
            "margin": {"l": 46, "r": 12, "t": 12, "b": 90},
            "legend": {"orientation": "h", "x": 0, "y": -0.2},
            "xaxis": {
                **{"range": [-0.02, 1.02], "tickformat": ".0%"},
                "title": {"text": "of those below: reported too"},
            },
            "yaxis": {
                **{"range": [-0.02, 1.02], "tickformat": ".0%"},
                "title": {"text": "of those at or above: found"},
            },
        },
    }


def referral_figure(curve: Mapping[str, Sequence[float]], key: str) -> dict[str, Any]:
    """Draw the error of what is decided alone, against how much that is.

    Args:
        curve: As in ``referral`` of ``test.json``.
        key: ``error`` or ``mae``.
    """
    is_share = key == "error"
    form = ".1%" if is_share else ".3f"
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines" if len(curve["coverage"]) > 40 else "lines+markers",
                "x": list(curve["coverage"]),
                "y": list(curve[key]),
                "line": {"color": "@accent", "width": 2.2},
                "hovertemplate": f"of the %{{x:.0%}} that it is most certain of: %{{y:{form}}} "
                f"{'wrong' if is_share else 'classes off'}<extra></extra>",
            }
        ],
        "layout": {
            "margin": {"l": 46, "r": 12, "t": 12, "b": 40},
            "xaxis": {
                **{"range": [0, 1.01], "tickformat": ".0%"},
                "title": {"text": "share that the model decides alone"},
            },
            "yaxis": {
                **{"rangemode": "tozero", "tickformat": ".0%" if is_share else ""},
                "title": {"text": "of these, wrong" if is_share else "MAE of these"},
            },
        },
    }


# --- whether probabilities can be believed, and how many peaks they have


@dataclass(frozen=True)
class ReliabilityBins:
    """Samples by the probability of their likeliest class, bin b in (b/B, (b+1)/B].

    Attributes:
        counts: Samples in each bin.
        confidence: Their mean probability; NaN in an empty bin.
        accuracy: Share of them that the likeliest class is right for.
    """

    counts: Int[np.ndarray, " B"]
    confidence: Float[np.ndarray, " B"]
    accuracy: Float[np.ndarray, " B"]


def reliability_bins(
    ranks: Int[np.ndarray, " n"], proba: Float[np.ndarray, "n K"], bins: int = BINS
) -> ReliabilityBins:
    """Sort samples into bins, as :func:`layline.metrics.expected_calibration_error` does."""
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == ranks
    place = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, weights=confidence, minlength=bins) / counts
        shares = np.bincount(place, weights=right, minlength=bins) / counts
    return ReliabilityBins(counts, means, shares)


def uncalibrated(proba: Float[np.ndarray, "n K"], temperature: float) -> Float[np.ndarray, "n K"]:
    """Give the probabilities before they were divided by a temperature in log space."""
    raw = proba**temperature
    return np.asarray(raw / raw.sum(axis=1, keepdims=True))


def reliability_figure(
    bins: ReliabilityBins, before: ReliabilityBins | None = None
) -> dict[str, Any]:
    """Draw accuracy against confidence, above the number of samples in each bin.

    Args:
        bins: Those of the probabilities that the model gives.
        before: Those of its probabilities before they were calibrated, if they were.
    """
    count = len(bins.counts)
    middles = (np.arange(count) + 0.5) / count
    lines = [_reliability_line(bins, "this model", _STYLES[0])]
    if before is not None:
        lines.insert(0, _reliability_line(before, "before calibration", _STYLES[1]))
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
            *lines,
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


def _reliability_line(bins: ReliabilityBins, name: str, style: dict[str, Any]) -> dict[str, Any]:
    filled = bins.counts > 0
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": np.round(bins.confidence[filled], 5).tolist(),
        "y": np.round(bins.accuracy[filled], 5).tolist(),
        "customdata": bins.counts[filled].tolist(),
        "line": style["line"],
        "marker": {**style["marker"], "color": style["line"]["color"], "size": 8},
        "hovertemplate": "confidence %{x:.1%}<br>accuracy %{y:.1%}<br>"
        "%{customdata} samples<extra></extra>",
    }


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
        "data": [_share_bars(counts, 1, "peaks %{x}", most_with_text=8) | {"width": 0.6}],
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


def _share_bars(
    counts: Int[np.ndarray, " numbers"], first: int, hover: str, most_with_text: int
) -> dict[str, Any]:
    """Draw the share of the samples that each whole number has.

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


# --- how similar the proxies are to each other


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
    figures = {"q": _similarity_figure(q, classes, "Q: the proxies as learned", even)}
    if u is not None:
        gap = q - u
        most = max(float(np.abs(gap).max()), 1e-3)
        signed = {"colorscale": "@diverging", "zmin": -most, "zmax": most}
        figures["u"] = _similarity_figure(u, classes, "U: what they are held to", even)
        figures["difference"] = _similarity_figure(gap, classes, "Q − U", signed)
    return figures


def _similarity_figure(
    table: Float[np.ndarray, "K K"], classes: Sequence[str], title: str, scale: dict[str, Any]
) -> dict[str, Any]:
    full = [plot_text(name, HOVER) for name in classes]
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
    if len(classes) <= MOST_WITH_SIMILARITIES:
        heat |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}, "showscale": False}
    return {"data": [heat], "layout": {"title": {"text": title}, **_square_axes(classes)}}


def _square_axes(classes: Sequence[str]) -> dict[str, Any]:
    """Give the axes of a table of classes by classes: square cells, the first row on top."""
    axis = {**_class_axis(classes), "showgrid": False, "constrain": "domain"}
    return {"xaxis": axis, "yaxis": {**axis, "autorange": "reversed", "scaleanchor": "x"}}


def _class_axis(classes: Sequence[str]) -> dict[str, Any]:
    """Name the classes beside an axis; of many, only some."""
    step = -(-len(classes) // 20)
    return {
        "tickvals": list(range(0, len(classes), step)),
        "ticktext": [plot_text(name) for name in classes[::step]],
    }
