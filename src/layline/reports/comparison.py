"""Runs on the same test samples, side by side: paired differences, and who is right where.

The first run is what the others are compared with. A run is the folder of one that was trained, or
what ``layline evaluate`` wrote.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.data.dataset import listed
from layline.data.detect import image_folder
from layline.data.file_digests import digest_file
from layline.evaluation.diagnostics import COMPARED, paired_differences
from layline.evaluation.prediction_file import read_predictions
from layline.metrics import METRICS
from layline.reports.html import valid_unicode
from layline.training.config import Config, validate
from layline.training.run_folder import RunFolder, as_written
from layline.utils.errors import UserError

_LOOKED_AT = 200  # files whose content is compared where data have two roots


@dataclass(frozen=True)
class ComparedRun:
    """A run as it is compared.

    Attributes:
        name: What it is called on the page.
        folder: Where it is.
        config: What it was asked for, with the data that were measured.
        part: What was measured.
        decode: How a rank was chosen.
        names: What the samples are called.
        classes: Names of the classes, lowest first.
        ranks: The true ones.
        predicted: What the samples are taken for.
        proba: Their probabilities.
        groups: What each belongs to, if that is known.
    """

    name: str
    folder: RunFolder
    config: Config
    part: str
    decode: str
    names: list[str]
    classes: list[str]
    ranks: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    proba: Float[np.ndarray, "n K"]
    groups: list[str] | None


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        runs: The first is what the others are compared with; all have their samples in one order.
        numbers: All that was computed, fit for JSON.
        report: The page, if one was written.
    """

    runs: tuple[ComparedRun, ...]
    numbers: dict[str, Any]
    report: Path | None = None


def compare_runs(
    folders: Sequence[Path], draws: int = 2000, seed: int = 0, level: float = 0.95
) -> Comparison:
    """Compare runs, or evaluations, on the samples that all of them were tested on.

    Args:
        folders: The first is what the others are compared with.
        draws: Resamplings of an interval, and exchanges of a test.
        seed: Of both.
        level: Of the intervals.
    """
    if len(folders) < 2:
        raise UserError(
            f"runs must be two or more, got {len(folders)}: the first is what the others are "
            "compared with"
        )
    runs = [_read(Path(folder)) for folder in folders]
    first, *others = _named(runs)
    aligned, notes = [first], []
    for other in others:
        matched, more = _matched(first, other)
        aligned.append(matched)
        notes += more
    groups = next((run.groups for run in aligned if run.groups is not None), None)
    pairs = []
    for other in aligned[1:]:
        found = paired_differences(
            first.ranks,
            (first.predicted, first.proba),
            (other.predicted, other.proba),
            groups=groups,
            level=level,
            draws=draws,
            seed=seed,
        )
        pairs.append({"first": first.name, "second": other.name, **found, **_right(first, other)})
    if len({run.decode for run in aligned}) > 1:
        said = ", ".join(f"{run.name} by the {run.decode}" for run in aligned)
        notes.append(f"The runs choose ranks in different ways: {said}.")
    if len(pairs) > 1:
        notes.append(
            f"Each of the {len(pairs)} comparisons stands for itself: of many some look real by "
            "chance."
        )
    numbers = {
        "samples": len(first.ranks),
        "units": pairs[0]["units"],
        "over": pairs[0]["over"],
        "level": level,
        "draws": draws,
        "runs": [_described(run, pairs, place) for place, run in enumerate(aligned)],
        "pairs": [
            {key: value for key, value in pair.items() if key not in ("units", "over")}
            for pair in pairs
        ],
        "agreement": [
            {"runs": [one.name, two.name], "share": float((one.predicted == two.predicted).mean())}
            for one, two in combinations(aligned, 2)
        ],
        "notes": notes,
    }
    return Comparison(tuple(aligned), numbers)


def _read(path: Path) -> ComparedRun:
    """Read the predictions of a run or an evaluation."""
    folder = RunFolder(path)
    if folder.evaluation.is_file():
        with as_written(folder.evaluation, "layline evaluate writes it anew"):
            about = json.loads(folder.evaluation.read_text(encoding="utf-8"))
            config, name = validate(Config, about["config"]), Path(about["run"]).name
    elif folder.config.is_file():
        config, name = folder.read_record(), path.resolve().name
    else:
        raise FileNotFoundError(
            f"runs must be folders of runs or evaluations, got {path}: it has neither config.toml "
            "nor evaluation.json"
        )
    if not folder.predictions.is_file() or not folder.test.is_file():
        raise UserError(
            f"runs must have predictions, got {path} without: finish it with layline train "
            f"--resume {path}"
        )
    with as_written(folder.predictions, f"layline evaluate {path} --out PLACE measures it anew"):
        found = read_predictions(folder.predictions)
    numbers = folder.read_numbers()
    return ComparedRun(
        name=valid_unicode(name),
        folder=folder,
        config=config,
        part=str(numbers.get("part", "test")),
        decode=str(numbers["decode"]),
        names=found.names,
        classes=found.classes,
        ranks=found.ranks,
        predicted=found.predicted,
        proba=found.proba,
        groups=found.groups,
    )


def _named(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Give runs of one name different ones: by their paths, or by numbers."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [valid_unicode(str(run.folder.path)) for run in runs]
    seen: dict[str, int] = {}
    found = []
    for run, name in zip(runs, names, strict=True):
        seen[name] = seen.get(name, 0) + 1
        own = name if seen[name] == 1 else f"{name} ({seen[name]})"
        found.append(ComparedRun(**{**vars(run), "name": own}))
    return found


def _matched(first: ComparedRun, other: ComparedRun) -> tuple[ComparedRun, list[str]]:
    """Put the samples of a run into the order of the first; refuse others."""
    if other.classes != first.classes:
        raise UserError(
            f"runs must have the same classes, got {', '.join(first.classes)} in {first.name} and "
            f"{', '.join(other.classes)} in {other.name}"
        )
    place = {name: i for i, name in enumerate(other.names)}
    common = sum(name in place for name in first.names)
    if not (common == len(place) == len(other.names) == len(first.names)):
        raise UserError(
            f"runs must be tested on the same samples, got {common} in common of "
            f"{len(first.names)} in {first.name} and {len(other.names)} in {other.name}: measure "
            "them on one root with layline evaluate RUN --root DATA, and compare the evaluations"
        )
    order = np.array([place[name] for name in first.names])
    groups = None if other.groups is None else [other.groups[i] for i in order.tolist()]
    moved = {"names": first.names, "ranks": other.ranks[order], "groups": groups}
    moved |= {"predicted": other.predicted[order], "proba": other.proba[order]}
    matched = ComparedRun(**{**vars(other), **moved})
    changed = np.flatnonzero(matched.ranks != first.ranks)
    if len(changed):
        some = listed(valid_unicode(first.names[i]) for i in changed[:3].tolist())
        raise UserError(
            f"samples must have the same labels in all runs, got {len(changed)} with others in "
            f"{other.name}, such as {some}: they were corrected between, or the data are others"
        )
    return matched, _check_content(first, matched)


def _check_content(first: ComparedRun, other: ComparedRun) -> list[str]:
    """Look whether samples of one name have one content, where they come from two places."""
    places = [(run.config.data.source, run.config.data.root) for run in (first, other)]
    if places[0] == places[1]:
        return []
    contents = [_contents(run) for run in (first, other)]
    if contents[0] is None or contents[1] is None:
        return [
            f"{first.name} and {other.name} were tested on {places[0][1]} and {places[1][1]}: the "
            "samples are taken for the same by their names and labels, their content was not seen."
        ]
    differing = [name for name, digest in contents[0].items() if contents[1][name] != digest]
    if differing:
        raise UserError(
            f"runs must be tested on the same samples, got other content in {places[0][1]} and "
            f"{places[1][1]} for {listed(map(valid_unicode, differing))}: measure them on one root"
        )
    return []


def _contents(run: ComparedRun) -> dict[str, str] | None:
    """Tell the contents of some samples apart; None where they cannot be seen."""
    root = run.config.data.root
    if root is not None and root.is_file() and run.config.data.source in ("table", "npz"):
        return {str(run.config.data.source): digest_file(root)}
    step = max(1, len(run.names) // _LOOKED_AT)
    paths = {name: image_path(run, name) for name in run.names[::step]}
    if any(path is None for path in paths.values()):
        return None
    return {name: digest_file(path) for name, path in paths.items() if path is not None}


def image_path(run: ComparedRun, name: str) -> Path | None:
    """Find the file of a sample, if it is one and still there."""
    options, folder = run.config.data, run.config.data.root
    if folder is None or options.source in ("table", "npz"):
        return None
    if options.source == "csv":
        own = options.options.get("images")
        folder = image_folder([name], folder.parent) if own is None else Path(str(own))
    path = None if folder is None else folder / name
    return path if path is not None and path.is_file() else None


def _right(first: ComparedRun, other: ComparedRun) -> dict[str, Any]:
    """Count who is right, and where both answer alike."""
    one, two = first.predicted == first.ranks, other.predicted == first.ranks
    table = np.zeros((len(first.classes), len(first.classes)), dtype=np.int64)
    np.add.at(table, (first.predicted, other.predicted), 1)
    return {
        "right": {
            "both": int((one & two).sum()),
            "first_only": int((one & ~two).sum()),
            "second_only": int((~one & two).sum()),
            "neither": int((~one & ~two).sum()),
        },
        "agreement": table.tolist(),
    }


def _described(run: ComparedRun, pairs: Sequence[dict[str, Any]], place: int) -> dict[str, Any]:
    values = pairs[max(place - 1, 0)]["metrics"]
    which = "second" if place else "first"
    return {
        "name": run.name,
        "folder": valid_unicode(str(run.folder.path)),
        "method": run.config.head.method,
        "backbone": run.config.backbone.name,
        "part": run.part,
        "decode": run.decode,
        "metrics": {name: values[name][which] for name in COMPARED},
    }


def verdict(metric: str, row: dict[str, Any]) -> str:
    """Say what a difference means: better, worse, the same, or not known for sure."""
    ends = row["interval"]
    if ends is None:
        return "not known"
    if ends[0] <= 0 <= ends[1]:
        return "alike" if ends[0] == ends[1] else "not sure"
    return "better" if (ends[0] > 0) == METRICS[metric].higher_is_better else "worse"


def p_text(p: float | None) -> str:
    """Write a p value."""
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
