"""The report of a run: one HTML file that needs nothing else, neither files nor a network."""

import base64
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from layline import metrics
from layline.files import write_text
from layline.reports.html import HOVER, plot_text, render_page, valid_unicode
from layline.reports.layout_frames import layout_frames
from layline.reports.run_figures import (
    class_errors_figure,
    confusion_figure,
    count_modes,
    error_sizes_figure,
    learning_curves,
    modes_figure,
    reliability_bins,
    reliability_figure,
    similarity_figures,
)
from layline.reports.run_record import RunRecord, read_run

# By the key in test.json: name, meaning and format.
_TILES = {
    "accuracy": ("Accuracy", "exactly right", ".1%"),
    "mae": ("MAE", "ranks off on average, lower is better", ".3f"),
    "within_one": ("Within one", "at most one rank off", ".1%"),
    "qwk": ("QWK", "agreement beyond chance, 1 is perfect", ".3f"),
    "rps": ("RPS", "distance of the distributions, lower is better", ".3f"),
    "ece": ("ECE", "gap between confidence and accuracy, lower is better", ".3f"),
    "unimodality_rate": ("Unimodal", "distributions with one peak", ".1%"),
}
_DECODED = ("accuracy", "mae", "within_one", "qwk")  # those that depend on the decoding
_VERSIONS = ("layline", "torch", "python")
_EXAMPLES = 3  # distributions with several peaks


def write_run_report(run: Path, out: Path) -> None:
    """Write the report of a run.

    Args:
        run: The folder of the run.
        out: The HTML file.
    """
    write_text(out, render_run(read_run(run)))


def render_run(run: RunRecord) -> str:
    """Make the page."""
    modes = count_modes(run.proba)
    figures = _figures(run, modes)
    return render_page(
        "run.html",
        ["layout.js"],
        {"figures": figures, "layout": _layout(run)},
        run=run,
        samples=len(run.ranks),
        tiles=tiles(run),
        facts=_facts(run),
        decoded=[_TILES[key][0] for key in _DECODED],
        decodings=_decodings(run),
        class_rows=_class_rows(run),
        number=_number,
        figures=figures,
        examples=most_peaked(run, modes),
        thumbnails=[_data_uri(mistake.image) for mistake in run.mistakes or []],
    )


def tiles(run: RunRecord) -> list[dict[str, str]]:
    """Give the big numbers, with what always predicting one class would reach if that is known."""
    constant = constant_baselines(run)
    found = []
    for key, (name, meaning, spec) in _TILES.items():
        value, baseline = _number(run.numbers.get(key), spec), ""
        if key in constant:
            label, reached = constant[key]
            baseline = f"always “{label}”: {_number(reached, spec)}"
        found.append({"name": name, "value": value, "meaning": meaning, "baseline": baseline})
    return found


def constant_baselines(run: RunRecord) -> dict[str, tuple[str, float]]:
    """Measure what always predicting the commonest or the median training class would reach."""
    counts = np.array(run.environment.get("counts", {}).get("train", []))
    if len(counts) != len(run.classes) or counts.sum() == 0:
        return {}
    commonest = int(counts.argmax())
    median = int(np.searchsorted(counts.cumsum(), counts.sum() / 2))
    constant = {rank: np.full(len(run.ranks), rank) for rank in (commonest, median)}
    return {
        "accuracy": (run.classes[commonest], metrics.accuracy(run.ranks, constant[commonest])),
        "mae": (run.classes[median], metrics.mean_absolute_error(run.ranks, constant[median])),
        "within_one": (run.classes[median], metrics.accuracy_within(run.ranks, constant[median])),
    }


def most_peaked(run: RunRecord, modes: Int[np.ndarray, " n"]) -> list[dict[str, Any]]:
    """Give the samples with the most peaks."""
    order = np.argsort(-modes, kind="stable")[:_EXAMPLES]
    return [
        {
            "name": run.names[index],
            "true": int(run.ranks[index]),
            "predicted": int(run.predicted[index]),
            "probabilities": run.proba[index].tolist(),
            "peaks": int(modes[index]),
        }
        for index in order
        if modes[index] > 1
    ]


def _number(value: float | None, spec: str) -> str:
    """Write a number; a dash where there is none."""
    return "–" if value is None or not np.isfinite(value) else format(value, spec)


def _decodings(run: RunRecord) -> list[dict[str, Any]]:
    """Give a row of numbers for each decoding."""
    return [
        {
            "name": name,
            "chosen": name == run.numbers["decode"],
            "values": [_number(values.get(key), _TILES[key][2]) for key in _DECODED],
        }
        for name, values in run.numbers.get("by_decoding", {}).items()
    ]


def _class_rows(run: RunRecord) -> list[dict[str, Any]]:
    """Give the samples of each class in each part; of old runs those of the test only."""
    test = np.bincount(run.ranks, minlength=len(run.classes)).tolist()
    counts = run.environment.get("counts", {"test": test})
    return [
        {"rank": rank, "name": name, "counts": {part: counts[part][rank] for part in counts}}
        for rank, name in enumerate(run.classes)
    ]


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    """Say in pairs what was trained on what, with what."""
    config, environment = run.config, run.environment
    counts = environment.get("counts", {})
    samples = ", ".join(f"{sum(counts[part]):,} {part}" for part in counts)
    weights, dim = config.features.weights, config.head.dim
    features = str(config.features.name)
    features += "" if weights in (None, "none") else f" · weights {weights}"
    features += ", frozen" if config.features.freeze else ""
    found = [
        ("Data", f"{config.data.source}" + (f" · {samples}" if samples else "")),
        ("Method", f"{config.head.method} · {dim} dimension{'s' if dim > 1 else ''}"),
        ("Features", features),
        ("Epochs", f"{len(run.history)} trained, {run.numbers['epoch']} kept (validation MAE)"),
        ("Decoding", str(run.numbers["decode"])),
    ]
    versions = [f"{name} {environment[name]}" for name in _VERSIONS if name in environment]
    if versions:
        found.append(("Versions", " · ".join(versions)))
    if "device" in environment:
        found.append(("Device", f"{environment['device']} · {environment.get('platform', '')}"))
    if environment.get("command"):
        _, *arguments = environment["command"]
        found.append(("Command", shlex.join(["layline", *arguments])))
    return [(name, valid_unicode(value)) for name, value in found]


def _figures(run: RunRecord, modes: Int[np.ndarray, " n"]) -> dict[str, Any]:
    best, confusion = run.numbers["epoch"], np.array(run.numbers["confusion"])
    loss = {"validation_loss": "validation", "train_loss": "training"}
    mae, accuracy = {"validation_mae": "MAE"}, {"validation_accuracy": "accuracy"}
    figures = {
        "loss": learning_curves(run.history, loss, best, "Loss"),
        "mae": learning_curves(run.history, mae, best, "Validation MAE"),
        "accuracy": learning_curves(run.history, accuracy, best, "Validation accuracy"),
        "confusion": confusion_figure(confusion, run.classes),
        "class-errors": class_errors_figure(confusion, run.classes),
        "error-sizes": error_sizes_figure(confusion),
        "reliability": reliability_figure(reliability_bins(run.ranks, run.proba)),
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
        for name in ("mae", "accuracy"):
            frame[name] = record.get(f"validation_{name}")
    if frames["test"] is not None and run.test_layout is not None:
        drawn = run.test_layout.index
        frames["test"]["names"] = [
            plot_text(run.names[index], HOVER) for index in ([] if drawn is None else drawn)
        ]
        for name in ("mae", "accuracy"):
            frames["test"][name] = run.numbers[name]
    frames["classes"] = [plot_text(name, HOVER) for name in run.classes]
    frames["ticks"] = [plot_text(name) for name in run.classes]
    frames["last"] = len(run.history)
    return frames


def _data_uri(image: bytes | None) -> str | None:
    if image is None:
        return None
    return "data:image/jpeg;base64," + base64.b64encode(image).decode("ascii")
