"""Runs on the same test samples, side by side: paired differences, and a page that shows them.

The first run is what the others are compared with. A run is the folder of one that was trained, or
what ``layline evaluate`` wrote.
"""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.data.base import listed
from layline.data.file_digests import digest_file
from layline.data.recognition import image_folder
from layline.diagnostics import COMPARED, paired_differences
from layline.files import write_text
from layline.prediction_file import read_predictions
from layline.reports.html import plot_text, render_page, valid_unicode
from layline.reports.run_figures import confusion_figure
from layline.training.config import Config
from layline.training.recipes import recorded
from layline.training.record import LONGER_SIDE
from layline.training.run_folder import RunFolder

# By the metric: its name, and whether a lower value is better.
METRICS = {
    "accuracy": ("Accuracy", False),
    "mae": ("MAE", True),
    "macro_mae": ("Macro MAE", True),
    "qwk": ("QWK", False),
    "rps": ("RPS", True),
    "nll": ("NLL", True),
}
_SHOWN = 12  # samples that only one of two runs gets right
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
        raise ValueError(
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
        about = json.loads(folder.evaluation.read_text(encoding="utf-8"))
        config, name = recorded(about["config"]), Path(about["run"]).name
    elif folder.config.is_file():
        config, name = folder.read_record(), path.resolve().name
    else:
        raise FileNotFoundError(
            f"runs must be folders of runs or evaluations, got {path}: it has neither config.toml "
            "nor evaluation.json"
        )
    if not folder.predictions.is_file() or not folder.test.is_file():
        raise ValueError(
            f"runs must have predictions, got {path} without: finish it with layline train "
            f"--resume {path}"
        )
    found, numbers = read_predictions(folder.predictions), folder.read_numbers()
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
        raise ValueError(
            f"runs must have the same classes, got {', '.join(first.classes)} in {first.name} and "
            f"{', '.join(other.classes)} in {other.name}"
        )
    place = {name: i for i, name in enumerate(other.names)}
    common = sum(name in place for name in first.names)
    if not (common == len(place) == len(other.names) == len(first.names)):
        raise ValueError(
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
        raise ValueError(
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
        raise ValueError(
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
    paths = {name: _image_path(run, name) for name in run.names[::step]}
    if any(path is None for path in paths.values()):
        return None
    return {name: digest_file(path) for name, path in paths.items() if path is not None}


def _image_path(run: ComparedRun, name: str) -> Path | None:
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
        "features": run.config.features.name,
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
    return "better" if (ends[1] < 0) == METRICS[metric][1] else "worse"


# --- the page


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
        metrics=METRICS,
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
                "name": METRICS[metric][0],
                "first": _number(row["first"]),
                "second": _number(row["second"]),
                "difference": _number(row["difference"], "+.3f"),
                "interval": "–" if ends is None else f"{ends[0]:+.3f} to {ends[1]:+.3f}",
                "p": p_text(row["p"]),
                "verdict": verdict(metric, row),
            }
        )
    return rows


def p_text(p: float | None) -> str:
    """Write a p value."""
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def differences_figure(numbers: dict[str, Any], metric: str) -> dict[str, Any]:
    """Draw how much the other runs differ from the first by a metric, with intervals.

    Args:
        numbers: Of a comparison.
        metric: One of ``COMPARED``.
    """
    title, lower_is_better = METRICS[metric]
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
            "title": {"text": f"{title}: {'lower' if lower_is_better else 'higher'} is better"},
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
    path = _image_path(run, name)
    if path is None:
        return None
    from layline.data.images.decoding import Image, decode

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
