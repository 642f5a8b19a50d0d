"""The figures of the report pages: pure functions from numbers to plotly figures.

A figure is a dictionary with ``data`` and ``layout``. Colors are names such as ``@accent`` that the
page replaces, so light and dark share one figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.metrics import BINS, calibration_gaps
from layline.reports import HOVER, plot_text

# A table of more classes has no room for counts, shares or similarities in its cells.
MOST_WITH_COUNTS = 16
MOST_WITH_SHARES = 8
MOST_WITH_SIMILARITIES = 10
Figure = dict[str, Any]

_MAIN: Figure = {
    "line": {"color": "@accent", "width": 2.2},
    "marker": {"symbol": "circle", "size": 6, "color": "@accent"},
}
_SECOND: Figure = {
    "line": {"color": "@muted", "width": 2, "dash": "dot"},
    "marker": {"symbol": "diamond", "size": 6, "color": "@muted"},
}
_REFERENCE: Figure = {
    "line": {"color": "@muted", "width": 1.5, "dash": "dash"},
    "hoverinfo": "skip",
}


def _figure(traces: list[Figure], title: str = "", **layout: Any) -> Figure:
    return {"data": traces, "layout": _titled(title, **layout) if title else layout}


def _titled(title: str, **more: Any) -> Figure:
    return {"title": {"text": title}, **more}


def _scatter(x: Sequence[float], y: Sequence[Any], mode: str, **more: Any) -> Figure:
    return {"type": "scatter", "x": list(x), "y": list(y), "mode": mode, **more}


def _rounded(values: Any) -> list[Any]:
    return list(np.round(np.asarray(values, dtype=np.float64), 5).tolist())


def _error_bars(low: Any, middle: Any, high: Any, color: str) -> Figure:
    middle = np.asarray(middle, dtype=np.float64)
    return {
        "type": "data",
        "symmetric": False,
        "array": _rounded(np.asarray(high) - middle),
        "arrayminus": _rounded(middle - np.asarray(low)),
        "color": color,
        "thickness": 1.5,
        "width": 3,
    }


def interval_rows(
    names: Sequence[str], means: Any, low: Any, high: Any, form: str = ".3f"
) -> tuple[Figure, Figure]:
    """Draw a mean with its interval per name: the trace, and the part of the layout it needs."""
    trace = _scatter(
        _rounded(means),
        list(names),
        "markers",
        error_x=_error_bars(low, means, high, "@muted"),
        marker={"color": "@accent", "size": 8},
        hovertemplate=f"%{{y}}: %{{x:{form}}}<extra></extra>",
    )
    rows = {"autorange": "reversed", "type": "category", "dtick": 1, "ticksuffix": " "}
    return trace, {"yaxis": rows, "height": 90 + 21 * max(len(names), 1)}


# --- learning curves


def learning_curves(
    history: Sequence[Mapping[str, Any]], shown: Mapping[str, str], best: int, title: str
) -> Figure:
    """Draw numbers over the epochs, with a line at the selected epoch."""
    epochs = [record["epoch"] for record in history]
    mode = "lines" if len(epochs) > 40 else "lines+markers"
    traces = []
    for (key, name), style in zip(shown.items(), (_MAIN, _SECOND), strict=False):
        hover = f"{name} %{{y:.4f}}<extra></extra>"
        values = [record.get(key) for record in history]
        traces.append(_scatter(epochs, values, mode, name=name, hovertemplate=hover, **style))
    mark = {"x": best, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    return _figure(
        traces,
        title,
        hovermode="x unified",
        showlegend=len(shown) > 1,
        # below the axis, where it hides no curve
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.22},
        xaxis=_titled("epoch", tickformat="d"),
        yaxis={"rangemode": "tozero"},
        shapes=[line_at(x=best, color="@ink", dash="dash")],
        annotations=[mark | {"text": f"selected: {best}"}],
    )


def line_at(*, x: float, color: str, dash: str) -> Figure:
    """Make a vertical line over the whole height of a figure."""
    place = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    return {**place, "line": {"color": color, "width": 1, "dash": dash}}


# --- errors


def confusion_figure(confusion: Int[np.ndarray, "K K"], classes: Sequence[str]) -> Figure:
    """Draw a confusion matrix, shaded by the share of the row."""
    count = len(classes)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    hover = "true %{customdata[1]}<br>predicted %{customdata[2]}<br>"
    hover += "%{customdata[0]} samples, %{z:.1%} of the row<extra></extra>"
    texts = None
    if count <= MOST_WITH_COUNTS:
        form = "{}<br>{:.0%}" if count <= MOST_WITH_SHARES else "{}"
        texts = [
            [form.format(n, p) if n else "" for n, p in zip(line, row, strict=True)]
            for line, row in zip(confusion.tolist(), shares.tolist(), strict=True)
        ]
    heat = _heat_map(shares, classes, hover, texts, 12 if count <= MOST_WITH_SHARES else 10)
    for row, line in zip(heat["customdata"], confusion.tolist(), strict=True):
        row[:] = [[n, *names] for n, names in zip(line, row, strict=True)]
    heat |= {"zmin": 0, "zmax": 1, "colorscale": "@heat"}
    heat["colorbar"]["tickformat"] = ".0%"
    return _figure([heat], **_square_axes(classes, "predicted", "true"))


def _heat_map(
    table: Float[np.ndarray, "K K"],
    classes: Sequence[str],
    hover: str,
    texts: list[list[str]] | None,
    size: int,
) -> Figure:
    full = [plot_text(name, HOVER) for name in classes]
    places = list(range(len(classes)))
    written = {"text": texts, "texttemplate": "%{text}", "textfont": {"size": size}}
    return {
        "type": "heatmap",
        "z": _rounded(table),
        "x": places,
        "y": places,
        "customdata": [[[row, column] for column in full] for row in full],
        "hovertemplate": hover,
        "showscale": texts is None,
        "colorbar": {"thickness": 8, "outlinewidth": 0, "len": 0.8, "nticks": 5},
        "xgap": int(texts is not None),
        "ygap": int(texts is not None),
        **({} if texts is None else written),
    }


def _square_axes(classes: Sequence[str], x: str = "", y: str = "") -> Figure:
    axis = {**_class_axis(classes), "showgrid": False, "constrain": "domain"}
    yaxis = {**axis, "autorange": "reversed", "scaleanchor": "x"}
    return {"xaxis": _titled(x, **axis), "yaxis": _titled(y, **yaxis)}


def _class_axis(classes: Sequence[str]) -> Figure:
    """Name the classes along an axis; at most 20 of them."""
    step = -(-len(classes) // 20)
    return {
        "tickvals": list(range(0, len(classes), step)),
        "ticktext": [plot_text(name) for name in classes[::step]],
    }


def class_errors_figure(confusion: Int[np.ndarray, "K K"], classes: Sequence[str]) -> Figure:
    """Draw the mean absolute error of each class, with its number of samples."""
    ranks, support = np.arange(len(classes)), confusion.sum(axis=1).tolist()
    total = (confusion * np.abs(ranks[:, None] - ranks)).sum(axis=1)
    few = len(classes) <= MOST_WITH_COUNTS
    means = [round(t / n, 4) if n else None for t, n in zip(total.tolist(), support, strict=True)]
    custom = [[plot_text(c, HOVER), n] for c, n in zip(classes, support, strict=True)]
    texts = [f"n={n}" for n in support] if few else None
    hover = "%{customdata[0]}<br>MAE %{y:.3f}, %{customdata[1]} samples"
    return _figure(
        [_bars(ranks.tolist(), means, texts, custom, hover)],
        "Mean absolute error by true class",
        xaxis={**_class_axis(classes), "showgrid": False},
        yaxis={"rangemode": "tozero"},
        bargap=0.25 if few else 0.05,
    )


def error_sizes_figure(confusion: Int[np.ndarray, "K K"]) -> Figure:
    """Draw the share of samples by how many ranks they are off."""
    ranks = np.arange(len(confusion))
    distances = np.abs(ranks[:, None] - ranks).ravel()
    counts = np.trim_zeros(np.bincount(distances, weights=confusion.ravel()), "b").astype(int)
    shares = counts / max(counts.sum(), 1)
    few = len(counts) <= 12
    texts = [f"{share:.1%}" for share in shares] if few else None
    hover = "%{x} off: %{customdata} samples, %{y:.1%}"
    places = list(range(len(counts)))
    bars = _bars(places, _rounded(shares), texts, counts.tolist(), hover) | {"width": 0.7}
    xaxis = _titled("|error| in ranks", showgrid=False, tickformat="d")
    if few:
        xaxis |= {"dtick": 1, "range": [-0.6, max(len(counts), 3) - 0.4]}
    yaxis = {"tickformat": ".0%", "range": [0, 1.12 * float(shares.max(initial=0.01))]}
    return _figure([bars], "How many ranks off", xaxis=xaxis, yaxis=yaxis)


def _bars(
    x: list[int], y: list[Any], texts: list[str] | None, custom: list[Any], hover: str
) -> Figure:
    texts_above = {"text": texts, "textposition": "outside", "constraintext": "none"}
    style = {"marker": {"color": "@accent"}, "cliponaxis": False, **texts_above}
    values = {"x": x, "y": y, "customdata": custom, "hovertemplate": f"{hover}<extra></extra>"}
    return {"type": "bar", **values, **style}


def class_rates_figure(rows: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Figure:
    """Draw recall and precision of each class with their intervals."""
    traces = []
    for key, shift, style in (("recall", -0.12, _MAIN), ("precision", 0.12, _SECOND)):
        known = [(rank, row) for rank, row in enumerate(rows) if row[key] is not None]
        shares = [row[key] for _, row in known]
        ends = np.array([row[f"{key}_interval"] for _, row in known]).reshape(-1, 2)
        traces.append(
            _scatter(
                [rank + shift for rank, _ in known],
                _rounded(shares),
                "markers",
                name=key,
                error_y=_error_bars(ends[:, 0], shares, ends[:, 1], style["marker"]["color"]),
                customdata=[
                    [plot_text(classes[rank], HOVER), *_rounded(pair)]
                    for (rank, _), pair in zip(known, ends, strict=True)
                ],
                hovertemplate=f"%{{customdata[0]}}<br>{key} %{{y:.1%}} "
                "(%{customdata[1]:.1%} to %{customdata[2]:.1%})<extra></extra>",
                marker={**style["marker"], "size": 8},
            )
        )
    return _figure(
        traces,
        "Recall and precision by class",
        showlegend=True,
        xaxis={**_class_axis(classes), "showgrid": False, "range": [-0.6, len(classes) - 0.4]},
        yaxis={"tickformat": ".0%", "range": [-0.03, 1.03]},
    )


# --- decisions


def roc_figure(row: Mapping[str, Any]) -> Figure | None:
    """Draw the ROC curve of a threshold, if one was recorded, and the model's decisions."""
    curve = row["curve"]
    if curve is None:
        return None
    hover = "sensitivity %{y:.1%}, false positive rate %{x:.1%}<extra></extra>"
    share = {"range": [-0.02, 1.02], "tickformat": ".0%"}
    x, y = _rounded([1 - row["specificity"], row["sensitivity"]])
    others = {"name": "other decision thresholds", "line": _MAIN["line"]}
    marker = {"color": "@ink", "size": 11, "symbol": "diamond"}
    chosen = {"name": "the model's decisions", "marker": marker}
    return _figure(
        [
            _scatter([0, 1], [0, 1], "lines", name="chance", **_REFERENCE),
            _scatter(curve["fpr"], curve["tpr"], "lines", hovertemplate=hover, **others),
            _scatter([x], [y], "markers", hovertemplate=hover, **chosen),
        ],
        showlegend=True,
        margin={"l": 46, "r": 12, "t": 12, "b": 90},
        legend={"orientation": "h", "x": 0, "y": -0.2},
        xaxis=_titled("false positive rate", **share),
        yaxis=_titled("sensitivity", **share),
    )


def referral_figure(curve: Mapping[str, Sequence[float]], key: str) -> Figure:
    """Draw the error of the samples that the model decides alone against their share."""
    is_share = key == "error"
    unit = "{y:.1%} wrong" if is_share else "{y:.3f} classes off"
    mode = "lines" if len(curve["coverage"]) > 40 else "lines+markers"
    hover = f"of the most certain %{{x:.0%}}: %{unit}<extra></extra>"
    line = _scatter(curve["coverage"], curve[key], mode, line=_MAIN["line"], hovertemplate=hover)
    title, tick = ("error rate of these", ".0%") if is_share else ("MAE of these", "")
    return _figure(
        [line],
        margin={"l": 46, "r": 12, "t": 12, "b": 40},
        xaxis=_titled("share decided by the model", range=[0, 1.01], tickformat=".0%"),
        yaxis=_titled(title, rangemode="tozero", tickformat=tick),
    )


# --- probabilities


def reliability_figure(
    ranks: Int[np.ndarray, " n"], proba: Float[np.ndarray, "n K"], temperature: float = 1.0
) -> Figure:
    """Draw accuracy against confidence, after and before calibration, and the counts of bins."""
    shown = [("this model", _MAIN, proba)]
    if temperature != 1:
        raw = proba**temperature
        shown.insert(0, ("before calibration", _SECOND, raw / raw.sum(axis=1, keepdims=True)))
    lines = []
    for name, style, each in shown:
        counts, confidence, accuracy = reliability_bins(ranks, each)
        filled = counts > 0
        lines.append(
            _scatter(
                _rounded(confidence[filled]),
                _rounded(accuracy[filled]),
                "lines+markers",
                name=name,
                customdata=counts[filled].tolist(),
                hovertemplate="confidence %{x:.1%}<br>accuracy %{y:.1%}<br>"
                "%{customdata} samples<extra></extra>",
                **style,
            )
        )
    histogram = {
        "type": "bar",
        "x": _rounded((np.arange(BINS) + 0.5) / BINS),
        "y": counts.tolist(),
        "width": 0.9 / BINS,
        "yaxis": "y2",
        "marker": {"color": "@soft", "line": {"color": "@muted", "width": 0.5}},
        "hovertemplate": "%{y} samples<extra></extra>",
        "showlegend": False,
    }
    perfect = _scatter([0, 1], [0, 1], "lines", name="perfectly calibrated", **_REFERENCE)
    title = "probability of the most probable class"
    return _figure(
        [perfect, *lines, histogram],
        "Reliability",
        showlegend=True,
        xaxis=_titled(title, range=[0, 1], tickformat=".0%", anchor="y2"),
        yaxis=_titled("accuracy", range=[-0.03, 1.03], tickformat=".0%", domain=[0.32, 1]),
        yaxis2=_titled("samples", domain=[0, 0.22], nticks=3),
    )


def reliability_bins(
    ranks: Int[np.ndarray, " n"], proba: Float[np.ndarray, "n K"]
) -> tuple[Int[np.ndarray, " B"], Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:
    """Give counts, mean confidence and accuracy of the bins of the expected calibration error."""
    place, gaps = calibration_gaps(ranks, proba)
    counts = np.bincount(place, minlength=BINS)
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, weights=proba.max(axis=1), minlength=BINS) / counts
        gap = np.bincount(place, weights=gaps, minlength=BINS) / counts
    return counts, means, means + gap


# --- proxies


def similarity_figures(
    q: Float[np.ndarray, "K K"], u: Float[np.ndarray, "K K"] | None, classes: Sequence[str]
) -> dict[str, Figure]:
    """Draw Q and, if there is one, U and their difference, on common scales."""
    top = float(max(table.max() for table in (q, u) if table is not None))
    scale = {"colorscale": "@heat", "zmin": 0.0, "zmax": top}
    tables = {"q": (q, "Q: learned similarities", scale)}
    if u is not None:
        most = max(float(np.abs(q - u).max()), 1e-3)
        signed = {"colorscale": "@diverging", "zmin": -most, "zmax": most}
        tables |= {"u": (u, "U: unimodal targets", scale), "difference": (q - u, "Q − U", signed)}
    hover = "%{customdata[0]} to %{customdata[1]}: %{z:.4f}<extra></extra>"
    figures = {}
    for name, (table, title, colors) in tables.items():
        few = len(classes) <= MOST_WITH_SIMILARITIES
        texts = [[f"{value:.2f}" for value in row] for row in table.tolist()] if few else None
        heat = _heat_map(table, classes, hover, texts, 10) | colors
        figures[name] = _figure([heat], title, **_square_axes(classes))
    return figures
