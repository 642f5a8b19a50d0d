"""The numbers at the top of a report, with what they mean and what a constant would reach."""

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from layline import metrics
from layline.reports.run_record import RunRecord
from layline.reports.text import readable


@dataclass(frozen=True)
class Tile:
    """A big number.

    Attributes:
        name: What is measured.
        value: The number as text.
        meaning: In a few words.
        baseline: What always predicting one class would reach, if that is known.
    """

    name: str
    value: str
    meaning: str
    baseline: str | None = None


_TILES = {
    "accuracy": ("Accuracy", "exactly right", ".1%"),
    "mae": ("MAE", "ranks off on average, lower is better", ".3f"),
    "within_one": ("Within one", "at most one rank off", ".1%"),
    "qwk": ("QWK", "agreement beyond chance, 1 is perfect", ".3f"),
    "rps": ("RPS", "distance of the distributions, lower is better", ".3f"),
    "ece": ("ECE", "gap between confidence and accuracy, lower is better", ".3f"),
    "unimodality_rate": ("Unimodal", "distributions with one peak", ".1%"),
}
DECODED = {key: _TILES[key] for key in ("accuracy", "mae", "within_one", "qwk")}


def number(value: float | None, spec: str) -> str:
    """Write a number; a dash where there is none."""
    return "–" if value is None or not np.isfinite(value) else format(value, spec)


def tiles(run: RunRecord) -> list[Tile]:
    """Give the big numbers of a run."""
    constant = baselines(run)
    found = []
    for key, (name, meaning, spec) in _TILES.items():
        baseline = None
        if key in constant:
            label, value = constant[key]
            baseline = f"always “{label}”: {number(value, spec)}"
        found.append(Tile(name, number(run.numbers.get(key), spec), meaning, baseline))
    return found


def baselines(run: RunRecord) -> dict[str, tuple[str, float]]:
    """Say what always predicting the commonest or the median training class would reach."""
    counts = np.array(run.environment.get("counts", {}).get("train", []))
    if len(counts) != len(run.classes) or counts.sum() == 0:
        return {}
    commonest = int(counts.argmax())
    median = int(np.searchsorted(counts.cumsum(), counts.sum() / 2))
    said = {rank: np.full(len(run.ranks), rank) for rank in (commonest, median)}
    return {
        "accuracy": (run.classes[commonest], metrics.accuracy(run.ranks, said[commonest])),
        "mae": (run.classes[median], metrics.mean_absolute_error(run.ranks, said[median])),
        "within_one": (run.classes[median], metrics.accuracy_within(run.ranks, said[median])),
    }


def decodings(run: RunRecord) -> list[dict[str, Any]]:
    """Give a row of numbers for each decoding."""
    return [
        {
            "name": name,
            "chosen": name == run.numbers["decode"],
            "values": [number(values.get(key), spec) for key, (_, _, spec) in DECODED.items()],
        }
        for name, values in run.numbers.get("by_decoding", {}).items()
    ]


def class_rows(run: RunRecord) -> list[dict[str, Any]]:
    """Give the samples of each class in each part; of old runs those of the test only."""
    test = np.bincount(run.ranks, minlength=len(run.classes)).tolist()
    counts = run.environment.get("counts", {"test": test})
    return [
        {"rank": rank, "name": name, "counts": {part: counts[part][rank] for part in counts}}
        for rank, name in enumerate(run.classes)
    ]


def facts(run: RunRecord) -> list[tuple[str, str]]:
    """Say in pairs what was trained on what, with what."""
    config, environment = run.config, run.environment
    counts = environment.get("counts", {})
    samples = ", ".join(f"{sum(counts[part]):,} {part}" for part in counts)
    dim = config.head.dim
    found = [
        ("Data", f"{config.data.source}" + (f" · {samples}" if samples else "")),
        ("Method", f"{config.head.method} · {dim} dimension{'s' if dim > 1 else ''}"),
        ("Features", " · ".join(filter(None, [config.features.name, _weights(run)]))),
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
        found.append(("Command", readable(shlex.join(["layline", *arguments]))))
    return [(name, readable(value)) for name, value in found]


_VERSIONS = ("layline", "torch", "python")


def _weights(run: RunRecord) -> str:
    weights, frozen = run.config.features.weights, run.config.features.freeze
    words = "" if weights in (None, "none") else f"weights {weights}"
    return f"{words}, frozen" if frozen else words
