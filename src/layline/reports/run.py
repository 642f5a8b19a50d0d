"""The report of a run: one HTML file that needs nothing else, neither files nor a network."""

import base64
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from layline import metrics
from layline.evaluation.diagnostics import alarms, diagnose, referral
from layline.metrics import METRICS
from layline.reports.html import HOVER, plot_text, render_page, valid_unicode
from layline.reports.layout_frames import layout_frames
from layline.reports.run_figures import (
    class_errors_figure,
    class_rates_figure,
    confusion_figure,
    count_modes,
    error_sizes_figure,
    learning_curves,
    modes_figure,
    referral_figure,
    reliability_bins,
    reliability_figure,
    roc_figure,
    similarity_figures,
    uncalibrated,
)
from layline.reports.run_record import RunRecord, read_run
from layline.training.run_folder import as_written
from layline.utils.files import write_text

_TILES = ("accuracy", "mae", "within_one", "qwk", "rps", "ece", "unimodality_rate")
_DECODED = ("accuracy", "mae", "within_one", "qwk")  # those that depend on the decoding
_VERSIONS = ("layline", "torch", "python")
_EXAMPLES = 3  # distributions with several peaks
_REFERRAL_POINTS = 1000  # so that the number of cases on the page is exact, or nearly so
MOST_BUTTONS = 9  # thresholds; of more one is chosen from a list
# By the key in a threshold: name, and what comes before the number of a hundred.
_RATES = {
    "sensitivity": ("Sensitivity", "Of 100 cases at or above, it finds"),
    "specificity": ("Specificity", "Of 100 cases below, it leaves alone"),
    "ppv": ("Positive predictive value", "Of 100 that it reports, are at or above"),
    "npv": ("Negative predictive value", "Of 100 that it leaves alone, are below"),
}


def write_run_report(run: Path, out: Path) -> None:
    """Write the report of a run.

    Args:
        run: The folder of the run.
        out: The HTML file.
    """
    record = read_run(run)
    with as_written(run, f"layline train --resume {run} tests it again"):
        page = render_run(record)
    write_text(out, page)


def render_run(run: RunRecord) -> str:
    """Make the page."""
    run = replace(run, numbers=diagnosed(run))
    modes = count_modes(run.proba)
    curve = referral(run.ranks, run.predicted, run.proba, points=_REFERRAL_POINTS)["curve"]
    curves = {key: referral_figure(curve, key) for key in ("error", "mae")}
    thresholds = [roc_figure(row) for row in run.numbers["thresholds"]]
    figures = _figures(run, modes) | {"referral": curves["error"]}
    first = len(run.classes) // 2
    if thresholds[first - 1] is not None:
        figures["roc"] = thresholds[first - 1]
    return render_page(
        "run.html",
        ["layout.js", "decisions.js"],
        {
            "figures": figures,
            "layout": _layout(run),
            "thresholds": thresholds,
            "referral": {
                "curves": curves,
                "coverage": curve["coverage"],
                "samples": len(run.ranks),
            },
        },
        run=run,
        samples=len(run.ranks),
        alarms=[valid_unicode(text) for text in run.numbers["alarms"]],
        tiles=tiles(run),
        thresholds=threshold_tables(run),
        first_threshold=first,
        most_buttons=MOST_BUTTONS,
        class_rates=_class_rates(run),
        kept=_kept(run),
        data_uri=_data_uri,
        facts=_facts(run),
        decoded=[METRICS[key].label for key in _DECODED],
        decodings=_decodings(run),
        class_rows=_class_rows(run),
        number=_number,
        figures=figures,
        examples=most_peaked(run, modes),
    )


def diagnosed(run: RunRecord) -> dict[str, Any]:
    """Give the numbers of the test with their diagnosis, made now if the run did not keep one."""
    numbers = dict(run.numbers)
    if "intervals" not in numbers:
        numbers |= diagnose(run.ranks, run.predicted, run.proba, run.classes)
    if "alarms" not in numbers:
        counts = run.environment.get("counts", {})
        numbers["alarms"] = alarms(numbers, counts, run.classes)
    return numbers


def tiles(run: RunRecord) -> list[dict[str, str]]:
    """Give the big numbers, with what always predicting one class would reach if that is known."""
    constant = constant_baselines(run)
    found = []
    for key in _TILES:
        metric = METRICS[key]
        spec = metric.format
        value, baseline = _number(run.numbers.get(key), spec), ""
        if key in constant:
            label, reached = constant[key]
            baseline = f"always “{label}”: {_number(reached, spec)}"
        found.append(
            {
                "name": metric.label,
                "value": value,
                "interval": _interval(run.numbers.get("intervals", {}).get(key), spec),
                "meaning": metric.description,
                "baseline": baseline,
            }
        )
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


def _interval(ends: Sequence[float] | None, spec: str) -> str:
    """Write an interval; nothing where there is none."""
    if ends is None:
        return ""
    between = " to " if min(ends) < 0 else "–"
    return between.join(format(end, spec) for end in ends)


def threshold_tables(run: RunRecord) -> list[dict[str, Any]]:
    """Say of each threshold in words what the model does at it."""
    found = []
    for name, row in zip(run.classes[1:], run.numbers["thresholds"], strict=True):
        rates = [
            {
                "name": title,
                "words": words,
                "of_100": "–" if row[key] is None else f"{100 * row[key]:.0f}",
                "interval": _hundreds(row[f"{key}_interval"]),
            }
            for key, (title, words) in _RATES.items()
        ]
        rates.append(
            {
                "name": "AUC",
                "words": "Of 100 pairs, one case at or above and one below, it tells apart",
                "of_100": "–" if row["auc"] is None else f"{100 * row['auc']:.0f}",
                "interval": "",
            }
        )
        found.append({"from": name, "positives": row["positives"], "rates": rates})
    return found


def _hundreds(ends: Sequence[float] | None) -> str:
    return "" if ends is None else "–".join(f"{100 * end:.0f}" for end in ends)


def _class_rates(run: RunRecord) -> list[dict[str, Any]]:
    """Give a row of recall and precision for each class, with intervals."""
    return [
        {
            "name": name,
            "samples": row["samples"],
            "predicted": row["predicted"],
            "rates": [
                (_number(row[key], ".1%"), _interval(row[f"{key}_interval"], ".0%"))
                for key in ("recall", "precision")
            ],
        }
        for name, row in zip(run.classes, run.numbers["by_class"], strict=True)
    ]


def _decodings(run: RunRecord) -> list[dict[str, Any]]:
    """Give a row of numbers for each decoding."""
    return [
        {
            "name": name,
            "chosen": name == run.numbers["decode"],
            "values": [_number(values.get(key), METRICS[key].format) for key in _DECODED],
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
    parts = [run.numbers["part"]] if run.is_evaluation else counts
    samples = ", ".join(f"{sum(counts[part]):,} {part}" for part in parts)
    weights, dim = config.backbone.weights, config.head.dim
    data, source = run.data_name, config.data.source
    data += "" if data == source else f" ({source})"
    features = str(config.backbone.name)
    features += "" if weights in (None, "none") else f" · weights {weights}"
    features += ", frozen" if config.backbone.freeze else ""
    found = [
        ("Data", data + (f" · {samples}" if samples else "")),
        ("Method", f"{config.head.method} · {dim} dimension{'s' if dim > 1 else ''}"),
        ("Backbone", features),
        *_origin(run),
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


def _origin(run: RunRecord) -> list[tuple[str, str]]:
    """Say where the weights come from: training, and what that went on from."""
    start = run.config.init_from
    found = [] if start is None else [("Goes on from", f"{start.model} ({start.digest})")]
    if run.is_evaluation:
        of_them = "trained on" if run.environment["own_data"] else "not trained on"
        return [*found, ("Model", f"best of {run.environment['run']}, {of_them} these data")]
    epochs = f"{len(run.history)} trained, {run.numbers['epoch']} kept, {_kept(run)}"
    return [*found, ("Epochs", epochs)]


def _kept(run: RunRecord) -> str:
    """Say which epoch was kept."""
    training = run.config.training
    metric = METRICS[training.metric]
    best = "highest" if metric.higher_is_better else "lowest"
    found = f"the {best} validation {metric.label}"
    if training.ties == "first":
        return f"the first with {found}"
    return f"that with {found}, of equal ones that with the lowest loss"


def _figures(run: RunRecord, modes: Int[np.ndarray, " n"]) -> dict[str, Any]:
    confusion = np.array(run.numbers["confusion"])
    figures = {} if run.is_evaluation else _learning(run)
    figures |= {
        "confusion": confusion_figure(confusion, run.classes),
        "class-errors": class_errors_figure(confusion, run.classes),
        "error-sizes": error_sizes_figure(confusion),
        "class-rates": class_rates_figure(run.numbers["by_class"], run.classes),
        "reliability": _reliability(run),
        "modes": modes_figure(modes),
    }
    if "q" in run.similarities:
        u = run.similarities.get("u")
        figures |= similarity_figures(run.similarities["q"], u, run.classes)
    return figures


def _learning(run: RunRecord) -> dict[str, Any]:
    """Draw the learning curves."""
    best = run.numbers["epoch"]
    loss = {"validation_loss": "validation", "train_loss": "training"}
    mae, accuracy = {"validation_mae": "MAE"}, {"validation_accuracy": "accuracy"}
    return {
        "loss": learning_curves(run.history, loss, best, "Loss"),
        "mae": learning_curves(run.history, mae, best, "Validation MAE"),
        "accuracy": learning_curves(run.history, accuracy, best, "Validation accuracy"),
    }


def _reliability(run: RunRecord) -> dict[str, Any]:
    """Draw whether probabilities can be believed, before and after they were calibrated."""
    before, calibration = None, run.numbers.get("calibration")
    if calibration is not None and calibration["temperature"] != 1:
        raw = uncalibrated(run.proba, calibration["temperature"])
        before = reliability_bins(run.ranks, raw)
    return reliability_figure(reliability_bins(run.ranks, run.proba), before)


def _layout(run: RunRecord) -> dict[str, Any]:
    best = run.numbers.get("epoch", 0)  # of an evaluation there is none
    frames = layout_frames(run.layouts, run.test_layout, best, len(run.classes), run.by_direction)
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
