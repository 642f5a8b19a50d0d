"""How far off predictions are: for each class, and altogether."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.reports.figures.confusion import MOST_WITH_TEXT, class_axis
from layline.reports.figures.shares import share_bars
from layline.reports.text import HOVER, in_plot


def class_errors(confusion: Int[np.ndarray, "K K"]) -> Float[np.ndarray, " K"]:
    """Give the mean absolute error of each class; NaN for one without samples."""
    ranks = np.arange(len(confusion))
    distance = np.abs(ranks[:, None] - ranks)
    support = confusion.sum(axis=1)
    total = (confusion * distance).sum(axis=1)
    return np.where(support > 0, total / np.maximum(support, 1), np.nan)


def error_counts(confusion: Int[np.ndarray, "K K"]) -> Int[np.ndarray, " sizes"]:
    """Count the samples that are 0, 1, 2, … ranks off, up to the largest error there is."""
    ranks = np.arange(len(confusion))
    distance = np.abs(ranks[:, None] - ranks)
    counts = np.bincount(distance.ravel(), weights=confusion.ravel()).astype(np.int64)
    return np.trim_zeros(counts, "b")


def class_errors_figure(
    confusion: Int[np.ndarray, "K K"], classes: Sequence[str]
) -> dict[str, Any]:
    """Draw the mean absolute error of each class, with how many samples it has."""
    errors, support = class_errors(confusion), confusion.sum(axis=1)
    few = len(classes) <= MOST_WITH_TEXT
    bars: dict[str, Any] = {
        "type": "bar",
        "x": list(range(len(classes))),
        "y": [None if np.isnan(value) else round(float(value), 4) for value in errors],
        "customdata": [
            [in_plot(name, HOVER), int(n)] for name, n in zip(classes, support, strict=True)
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
            "xaxis": {**class_axis(classes), "showgrid": False},
            "yaxis": {"rangemode": "tozero"},
            "bargap": 0.25 if few else 0.05,
        },
    }


def error_sizes_figure(confusion: Int[np.ndarray, "K K"]) -> dict[str, Any]:
    """Draw the share of samples by how many ranks they are off."""
    counts = error_counts(confusion)
    return {
        "data": [share_bars(counts, 0, "%{x} off", most_with_text=10)],
        "layout": {
            "title": {"text": "How many ranks off"},
            "xaxis": {"title": {"text": "|error| in ranks"}, "tickformat": "d", "showgrid": False}
            | ({"dtick": 1} if len(counts) <= 12 else {}),
            "yaxis": {"tickformat": ".0%", "rangemode": "tozero"},
        },
    }
