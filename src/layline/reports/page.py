"""The report of a run: one HTML file that needs nothing else, neither files nor a network."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layline.files import write_text
from layline.geometry.decoding import DECODINGS
from layline.reports import summary
from layline.reports.figures.confusion import confusion_figure
from layline.reports.figures.errors import class_errors_figure, error_sizes_figure
from layline.reports.figures.frames import layout_frames
from layline.reports.figures.learning import curves
from layline.reports.figures.modes import count_modes, modes_figure
from layline.reports.figures.reliability import binned, reliability_figure
from layline.reports.figures.similarities import similarity_figures
from layline.reports.html import render_page
from layline.reports.run_record import RunRecord, read_run
from layline.reports.text import HOVER, in_plot

_EXAMPLES = 3


def write_report(run: Path, out: Path) -> None:
    """Write the report of a run.

    Args:
        run: The folder of the run.
        out: The HTML file.
    """
    write_text(out, render(read_run(run)))


def render(run: RunRecord) -> str:
    """Make the page."""
    modes = count_modes(run.proba)
    figures = _figures(run, modes)
    return render_page(
        "run.html",
        ["layout.js"],
        {"figures": figures, "layout": _layout(run)},
        run=run,
        summary=summary,
        figures=figures,
        samples=len(run.ranks),
        examples=_many_peaked(run, modes),
        thumbnails=[_data_uri(mistake.image) for mistake in run.mistakes or []],
    )


def _figures(run: RunRecord, modes: np.ndarray[Any, Any]) -> dict[str, Any]:
    best, confusion = run.numbers["epoch"], np.array(run.numbers["confusion"])
    loss = {"validation_loss": "validation", "train_loss": "training"}
    figures = {
        "loss": curves(run.history, loss, best, "Loss"),
        "mae": curves(run.history, {"validation_mae": "MAE"}, best, "Validation MAE"),
        "accuracy": curves(
            run.history, {"validation_accuracy": "accuracy"}, best, "Validation accuracy"
        ),
        "confusion": confusion_figure(confusion, run.classes),
        "class-errors": class_errors_figure(confusion, run.classes),
        "error-sizes": error_sizes_figure(confusion),
        "reliability": reliability_figure(binned(run.ranks, run.proba)),
        "modes": modes_figure(modes),
    }
    if "q" in run.similarities:
        u = run.similarities.get("u")
        figures |= similarity_figures(run.similarities["q"], u, run.classes)
    return figures


def _layout(run: RunRecord) -> dict[str, Any]:
    frames = layout_frames(run.layouts, run.test_layout, run.numbers["epoch"], len(run.classes))
    measured = {record["epoch"]: record for record in run.history}
    for frame in frames["validation"]:
        record = measured.get(frame["epoch"], {})
        frame["mae"], frame["accuracy"] = (
            record.get(f"validation_{name}") for name in ("mae", "accuracy")
        )
    if frames["test"] is not None:
        frames["test"]["names"] = _names_drawn(run)
        for name in ("mae", "accuracy"):
            frames["test"][name] = run.numbers[name]
    frames["classes"] = [in_plot(name, HOVER) for name in run.classes]
    frames["ticks"] = [in_plot(name) for name in run.classes]
    frames["last"] = len(run.history)
    return frames


def _names_drawn(run: RunRecord) -> list[str]:
    layout = run.test_layout
    if layout is None or layout.index is None:
        return []
    return [in_plot(run.names[index], HOVER) for index in layout.index]


def _many_peaked(run: RunRecord, modes: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Give the samples with the most peaks."""
    order = np.argsort(-modes, kind="stable")[:_EXAMPLES]
    predicted = DECODINGS[run.numbers["decode"]](torch.from_numpy(run.proba))
    return [
        {
            "name": run.names[index],
            "true": int(run.ranks[index]),
            "predicted": int(predicted[index]),
            "probabilities": run.proba[index].tolist(),
            "peaks": int(modes[index]),
        }
        for index in order
        if modes[index] > 1
    ]


def _data_uri(image: bytes | None) -> str | None:
    if image is None:
        return None
    return "data:image/jpeg;base64," + base64.b64encode(image).decode("ascii")
