"""The page of a comparison: tables, figures, and samples that only one of two runs gets right."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layline.evaluation.diagnostics import COMPARED
from layline.metrics import METRICS
from layline.reports.comparison import (
    ComparedRun,
    Comparison,
    image_path,
    p_text,
    verdict,
)
from layline.reports.html import plot_text, render_page, valid_unicode
from layline.reports.run_figures import confusion_figure
from layline.training.record import LONGER_SIDE
from layline.utils.files import write_text

_SHOWN = 12  # samples that only one of two runs gets right


def write_comparison(comparison: Comparison, out: Path) -> None:
    """Write the page of a comparison: one HTML file that needs nothing else."""
    write_text(out, render_comparison(comparison))


def render_comparison(comparison: Comparison) -> str:
    """Make the page."""
    numbers, first = comparison.numbers, comparison.runs[0]
    classes = [valid_unicode(name) for name in first.classes]
    figures: dict[str, Any] = {}
    for metric in COMPARED:
        figures[f"difference-{metric}"] = differences_figure(numbers, metric)
    for place, pair in enumerate(numbers["pairs"], start=1):
        figures[f"agreement-{place}"] = agreement_figure(pair, classes)
    return render_page(
        "compare.html",
        [],
        {"figures": figures},
        numbers=numbers,
        metrics=[METRICS[name] for name in COMPARED],
        tables=[_table(pair) for pair in numbers["pairs"]],
        classes=classes,
        number=_number,
        disagreements=[
            {
                "second": other.name,
                "first_only": disagreements(first, other, first_is_right=True),
                "second_only": disagreements(first, other, first_is_right=False),
            }
            for other in comparison.runs[1:]
        ],
        notes=[valid_unicode(note) for note in numbers["notes"]],
    )


def _number(value: float | None, spec: str = ".3f") -> str:
    return "–" if value is None else format(value, spec)


def _table(pair: dict[str, Any]) -> list[dict[str, str]]:
    """Give a row for each metric."""
    rows = []
    for metric, row in pair["metrics"].items():
        ends = row["interval"]
        rows.append(
            {
                "name": METRICS[metric].label,
                "first": _number(row["first"]),
                "second": _number(row["second"]),
                "difference": _number(row["difference"], "+.3f"),
                "interval": "–" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}",
                "p": p_text(row["p"]),
                "verdict": verdict(metric, row),
            }
        )
    return rows


def differences_figure(numbers: dict[str, Any], metric: str) -> dict[str, Any]:
    """Draw how much the other runs differ from the first by a metric, with intervals.

    Args:
        numbers: Of a comparison.
        metric: One of ``COMPARED``.
    """
    shown = METRICS[metric]
    better = "higher" if shown.higher_is_better else "lower"
    rows = [(pair["second"], pair["metrics"][metric]) for pair in numbers["pairs"]]
    rows = [(name, row) for name, row in rows if row["difference"] is not None]
    values = np.array([row["difference"] for _, row in rows])
    ends = np.array([row["interval"] or [row["difference"]] * 2 for _, row in rows]).reshape(-1, 2)
    reach = max(float(np.abs([*ends.ravel(), *values, 0.0]).max()), 1e-9)
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": values.tolist(),
                "y": [plot_text(name) for name, _ in rows],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": (ends[:, 1] - values).tolist(),
                    "arrayminus": (values - ends[:, 0]).tolist(),
                    "color": "@muted",
                    "thickness": 1.6,
                    "width": 4,
                },
                "marker": {"color": "@accent", "size": 9},
                "hovertemplate": "%{y}: %{x:+.4f}<extra></extra>",
            }
        ],
        "layout": {
            "height": 104 + 24 * max(len(rows), 1),
            "title": {"text": f"{shown.label}: {better} is better"},
            "xaxis": {"range": [-1.15 * reach, 1.15 * reach], "nticks": 5},
            "yaxis": {"autorange": "reversed", "type": "category", "dtick": 1, "ticksuffix": " "},
            "margin": {"l": 40, "r": 14, "t": 40, "b": 30},
            "shapes": [
                {
                    **{"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper"},
                    "line": {"color": "@muted", "width": 1, "dash": "dot"},
                }
            ],
        },
    }


def agreement_figure(pair: dict[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Draw what the second run answers where the first answers each class."""
    figure = confusion_figure(np.array(pair["agreement"]), classes)
    heat, layout = figure["data"][0], figure["layout"]
    heat["hovertemplate"] = (
        "the first says %{customdata[1]}<br>the second %{customdata[2]}<br>"
        "%{customdata[0]} samples, %{z:.1%} of the row<extra></extra>"
    )
    layout["yaxis"]["title"] = {"text": plot_text(pair["first"])}
    layout["xaxis"]["title"] = {"text": plot_text(pair["second"])}
    return figure


def disagreements(
    first: ComparedRun, other: ComparedRun, *, first_is_right: bool
) -> list[dict[str, Any]]:
    """Give samples that one run gets right and the other wrong, the furthest off first.

    Args:
        first: The run that others are compared with.
        other: Another one.
        first_is_right: Which of them is right.
    """
    right, wrong = (first, other) if first_is_right else (other, first)
    error = np.abs(wrong.predicted - first.ranks)
    chosen = np.flatnonzero((right.predicted == first.ranks) & (error > 0))
    order = np.lexsort((chosen, wrong.proba[chosen, first.ranks[chosen]], -error[chosen]))
    pictures = _pictures(first) | _pictures(other)
    found = []
    for index in chosen[order][:_SHOWN].tolist():
        name = first.names[index]
        found.append(
            {
                "name": valid_unicode(name),
                "true": int(first.ranks[index]),
                "picture": pictures.get(name) or _picture(first, name) or _picture(other, name),
                "answers": [
                    {
                        "run": run.name,
                        "predicted": int(run.predicted[index]),
                        "probabilities": run.proba[index].tolist(),
                    }
                    for run in (first, other)
                ],
            }
        )
    return found


def _pictures(run: ComparedRun) -> dict[str, str]:
    """Give the thumbnails that a run has kept, by the name of the sample."""
    found = {}
    for path in (run.folder.mistakes, run.folder.review):
        records = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        for record in records:
            image = run.folder.thumbnails / record.get("image", "")
            if "image" in record and image.is_file():
                found[record["name"]] = _data_uri(image.read_bytes())
    return found


def _picture(run: ComparedRun, name: str) -> str | None:
    """Make a thumbnail of a sample whose file is still there."""
    path = image_path(run, name)
    if path is None:
        return None
    from layline.data.decoding import Image, decode

    try:
        image = Image.fromarray(decode(path, LONGER_SIDE))
    except (ValueError, OSError):
        return None  # it was damaged since; the page can do without
    image.thumbnail((LONGER_SIDE, LONGER_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=80)
    return _data_uri(buffer.getvalue())


def _data_uri(image: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(image).decode("ascii")
