"""The report of a run: one HTML file that needs no other files and no network."""

import json
import shlex
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layline.evaluation.diagnostics import referral
from layline.evaluation.prediction_file import PredictedSamples, read_predictions
from layline.metrics import METRICS
from layline.reports import HOVER, format_number, plot_text, render_page, valid_unicode
from layline.reports import figures as draw
from layline.reports.layout_frames import layout_frames
from layline.training.config import Config, to_toml, validate
from layline.training.report_data import Snapshot
from layline.training.run_folder import RunFolder, as_written
from layline.training.trainer import EpochRecord
from layline.utils.files import check_output, write_text
from layline.utils.validation import UserError

_TILES = ("accuracy", "mae", "within_one", "qwk", "rps", "ece", "unimodality_rate")
_DECODED = ("accuracy", "mae", "within_one", "qwk")
_REFERRAL_POINTS = 1000  # enough for an exact number of cases on the page
_NAMED_BY_PATH = ("folder", "csv", "table", "npz")  # other sources are known by their own name
_MOST_BUTTONS = 9  # more thresholds are chosen from a list
# The rates of a threshold: name, and the words before a number out of 100.
_RATES = {
    "sensitivity": ("Sensitivity", "Cases at or above that the model finds"),
    "specificity": ("Specificity", "Cases below that the model recognizes as such"),
    "ppv": ("Positive predictive value", "Reported cases that are at or above"),
    "npv": ("Negative predictive value", "Unreported cases that are below"),
    "auc": ("AUC", "Pairs of a case at or above and one below in the right order"),
}


@dataclass(frozen=True, kw_only=True)
class RunRecord(PredictedSamples):
    """A finished run, or the evaluation of a model, with the predictions of its test samples."""

    folder: Path
    name: str
    config: Config
    environment: dict[str, Any]  # versions, the command, samples per class
    history: list[EpochRecord]  # a record per epoch; empty for an evaluation
    numbers: dict[str, Any]  # the content of test.json
    layouts: dict[int, Snapshot]  # the validation samples by epoch, if recorded
    test_layout: Snapshot | None  # the test samples at the selected epoch, if recorded
    similarities: dict[str, NDArray[np.float32]]  # proxies, Q and U, if the head has them
    mistakes: list[dict[str, Any]] | None  # the worst mistakes, if recorded
    review: list[dict[str, Any]] | None  # the samples that a person should check, if recorded
    is_evaluation: bool  # whether it is an evaluation of a model that was trained before

    @property
    def data_name(self) -> str:
        """Name the data: by their folder or file, or by their source."""
        source, root = self.config.data.source, self.config.data.root
        if root is None or source not in _NAMED_BY_PATH:
            return str(source)
        return root.name if source == "folder" else root.stem

    @property
    def by_direction(self) -> bool:
        """Whether proxies have length one and are compared by cosine: only directions matter."""
        proxies = self.similarities.get("proxies")
        if proxies is None or self.config.head.options.get("similarity", "cosine") != "cosine":
            return False
        return bool(np.allclose(np.linalg.norm(proxies, axis=1), 1, atol=1e-3))


def read_run(path: Path) -> RunRecord:
    """Read the folder of a finished run or evaluation."""
    folder = RunFolder(path)
    is_evaluation = folder.evaluation.is_file()
    if is_evaluation:
        with as_written(folder.evaluation, "run the evaluation again"):
            environment = json.loads(folder.evaluation.read_text(encoding="utf-8"))
            config, history = validate(Config, environment["config"]), []
    else:
        config = folder.read_record()
    if not folder.test.is_file() or not folder.predictions.is_file():
        raise UserError(f"The run in {path} is not finished: it has no test results. Resume it.")
    if not is_evaluation:
        environment, history = folder.read_environment(), folder.read_history()
    with as_written(path, "resume the run to test it again"):
        samples = read_predictions(folder.predictions)
        test, epochs = folder.layout("test"), sorted(folder.layouts.glob("epoch-*.npz"))
        similarities = {}
        if folder.proxies.is_file():
            with np.load(folder.proxies, allow_pickle=False) as arrays:
                similarities = dict(arrays)
        return RunRecord(
            **vars(samples),
            folder=path,
            name=valid_unicode(Path(environment["run"] if is_evaluation else path.resolve()).name),
            config=config,
            environment=environment,
            history=history,
            numbers=folder.read_numbers(),
            layouts={int(file.stem.removeprefix("epoch-")): Snapshot.load(file) for file in epochs},
            test_layout=Snapshot.load(test) if test.is_file() else None,
            similarities=similarities,
            mistakes=_read_samples(folder, folder.mistakes, samples.classes),
            review=_read_samples(folder, folder.review, samples.classes),
            is_evaluation=is_evaluation,
        )


def _read_samples(
    folder: RunFolder, path: Path, classes: Sequence[str]
) -> list[dict[str, Any]] | None:
    """Read mistakes or samples to review, with ranks for classes and their thumbnails."""
    if not path.is_file():
        return None
    samples = []
    for record in json.loads(path.read_text(encoding="utf-8")):
        image, picture = folder.thumbnails / record.get("image", ""), None
        if image.is_file():
            picture = "data:image/jpeg;base64," + b64encode(image.read_bytes()).decode("ascii")
        cells = record.get("values", {}).items()
        samples.append(
            {
                "name": record["name"],
                "true": classes.index(record["true"]),
                "predicted": classes.index(record["predicted"]),
                "probabilities": record["probabilities"],
                "picture": picture,
                "values": {column: "–" if cell is None else str(cell) for column, cell in cells},
                "reason": record.get("reason", ""),
                "ends": [classes.index(record[end]) for end in ("low", "high") if end in record],
            }
        )
    return samples


def write_run_report(run: Path, out: Path) -> None:
    """Write the report of a run."""
    check_output(out, RunFolder(run).inputs())
    write_text(out, render_run(read_run(run)))


def render_run(run: RunRecord) -> str:
    """Make the page of a run."""
    numbers = run.numbers
    curve = referral(run.ranks, run.predicted, run.proba, points=_REFERRAL_POINTS)["curve"]
    curves = {key: draw.referral_figure(curve, key) for key in ("error", "mae")}
    thresholds = [draw.roc_figure(row) for row in numbers["thresholds"]]
    first = len(run.classes) // 2
    figures = _figures(run) | {"referral": curves["error"]}
    if thresholds[first - 1] is not None:
        figures["roc"] = thresholds[first - 1]
    cases = {"curves": curves, "coverage": curve["coverage"], "samples": len(run.ranks)}
    return render_page(
        "run.html",
        ["layout.js", "decisions.js"],
        {"figures": figures, "layout": _layout(run), "thresholds": thresholds, "referral": cases},
        run=run,
        numbers=numbers,
        settings=to_toml(run.config),
        samples=len(run.ranks),
        tiles=tiles(run),
        thresholds=threshold_tables(run),
        first_threshold=first,
        most_buttons=_MOST_BUTTONS,
        format_interval=format_interval,
        trained=not run.config.training.closed_form,  # epoch by epoch
        selection=_selection(run),
        facts=_facts(run),
        decoded=[METRICS[key] for key in _DECODED],
        figures=figures,
    )


def tiles(run: RunRecord) -> list[dict[str, str]]:
    """Give the main numbers, with those of always predicting one class for comparison."""
    constant = constant_baselines(run)
    shown = []
    for key in _TILES:
        metric, baseline = METRICS[key], ""
        if key in constant:
            label, reached = constant[key]
            baseline = f"always “{label}”: {format_number(reached, metric.format)}"
        ends = run.numbers["intervals"].get(key)
        shown.append(
            {
                "name": metric.label,
                "value": format_number(run.numbers.get(key), metric.format),
                "interval": format_interval(ends, metric.format),
                "meaning": metric.description,
                "baseline": baseline,
            }
        )
    return shown


def constant_baselines(run: RunRecord) -> dict[str, tuple[str, float]]:
    """Measure always predicting the most frequent or the median class of the training samples."""
    counts = np.array(run.environment.get("counts", {}).get("train", []))
    if len(counts) != len(run.classes) or counts.sum() == 0:
        return {}
    frequent = int(counts.argmax())
    median = int(np.searchsorted(counts.cumsum(), counts.sum() / 2))
    return {
        key: (run.classes[rank], METRICS[key].function(run.ranks, np.full(len(run.ranks), rank)))
        for key, rank in {"accuracy": frequent, "mae": median, "within_one": median}.items()
    }


def format_interval(ends: Sequence[float] | None, spec: str) -> str:
    """Write an interval; nothing if there is none."""
    if ends is None:
        return ""
    between = " to " if min(ends) < 0 else "–"
    return between.join(format(end, spec) for end in ends)


def threshold_tables(run: RunRecord) -> list[dict[str, Any]]:
    """Give the rates of each threshold, out of 100 cases."""
    tables = []
    for name, row in zip(run.classes[1:], run.numbers["thresholds"], strict=True):
        rates = []
        for key, (title, words) in _RATES.items():
            ends = row.get(f"{key}_interval")
            interval = "" if ends is None else format_interval([100 * end for end in ends], ".0f")
            value = "–" if row[key] is None else f"{100 * row[key]:.0f}"
            rates.append({"name": title, "words": words, "value": value, "interval": interval})
        tables.append({"from": name, "positives": row["positives"], "rates": rates})
    return tables


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    """Describe what was trained on which data."""
    config, environment = run.config, run.environment
    counts = environment.get("counts", {})
    splits = [run.numbers["part"]] if run.is_evaluation else counts
    samples = ", ".join(f"{sum(counts[split]):,} {split}" for split in splits)
    data, source = run.data_name, config.data.source
    weights, dim = config.backbone.weights, config.head.dim
    backbone = str(config.backbone.name)
    backbone += "" if weights in (None, "none") else f" · weights {weights}"
    backbone += ", frozen" if config.backbone.freeze else ""
    facts = {
        "Data": data + ("" if data == source else f" ({source})") + f" · {samples}",
        "Method": f"{config.head.method} · {dim} dimension{'s' if dim > 1 else ''}",
        "Backbone": backbone,
    }
    if config.init_from is not None:
        facts["Initialized from"] = str(config.init_from.model)
    if run.is_evaluation:
        own = "trained on" if environment["own_data"] else "not trained on"
        facts["Model"] = f"best of {environment['run']}, {own} these data"
    else:
        training = run.config.training
        folds = f"cross-validation with {training.folds} folds"
        if training.closed_form:
            facts["Training"] = "the last layer was fitted in closed form"
            folds = "predictions of each label without it"
        else:
            selected = f"epoch {run.numbers['epoch']} selected, {_selection(run)}"
            facts["Epochs"] = f"{len(run.history)} trained, {selected}"
        if training.folds:
            facts["Calibration"] = folds
    facts["Decoding"] = str(run.numbers["decode"])
    versions = ("layline", "torch", "python")
    facts["Versions"] = " · ".join(f"{k} {environment[k]}" for k in versions if k in environment)
    if "device" in environment:
        facts["Device"] = f"{environment['device']} · {environment.get('platform', '')}"
    if environment.get("command"):
        facts["Command"] = shlex.join(["layline", *environment["command"][1:]])
    return [(name, value) for name, value in facts.items() if value]


def _selection(run: RunRecord) -> str:
    """Describe by which criterion the epoch was selected."""
    training = run.config.training
    if training.folds:
        return "the last one"
    metric = METRICS[training.metric]
    best = "highest" if metric.higher_is_better else "lowest"
    label = metric.label if metric.label.isupper() else metric.label.lower()
    ties = "the first of equal ones" if training.ties == "first" else "then the lowest loss"
    return f"the one with the {best} validation {label} ({ties})"


def _figures(run: RunRecord) -> dict[str, Any]:
    numbers, classes = run.numbers, run.classes
    confusion = np.array(numbers["confusion"])
    temperature = (numbers.get("calibration") or {}).get("temperature", 1.0)
    figures = {
        "confusion": draw.confusion_figure(confusion, classes),
        "class-errors": draw.class_errors_figure(confusion, classes),
        "error-sizes": draw.error_sizes_figure(confusion),
        "class-rates": draw.class_rates_figure(numbers["by_class"], classes),
        "reliability": draw.reliability_figure(run.ranks, run.proba, temperature),
    }
    if "q" in run.similarities:
        figures |= draw.similarity_figures(
            run.similarities["q"], run.similarities.get("u"), classes
        )
    if not run.is_evaluation and not run.config.training.closed_form:
        curves = {
            "loss": ("Loss", {"validation_loss": "validation", "train_loss": "training"}),
            "mae": ("Validation MAE", {"validation_mae": "MAE"}),
            "accuracy": ("Validation accuracy", {"validation_accuracy": "accuracy"}),
        }
        recorded = run.history[-1].keys()
        for name, (title, wanted) in curves.items():
            keys = {key: label for key, label in wanted.items() if key in recorded}
            if keys:
                figures[name] = draw.learning_curves(run.history, keys, numbers["epoch"], title)
    return figures


def _layout(run: RunRecord) -> dict[str, Any]:
    best = run.numbers.get("epoch", 0)  # an evaluation has none
    frames = layout_frames(run.layouts, run.test_layout, best, len(run.classes), run.by_direction)
    measured = {record["epoch"]: record for record in run.history}
    for frame in frames["validation"]:
        record = measured.get(frame["epoch"], {})
        frame |= {name: record.get(f"validation_{name}") for name in ("mae", "accuracy")}
    if frames["test"] is not None and run.test_layout is not None:
        names = [plot_text(run.names[index], HOVER) for index in run.test_layout.index]
        frames["test"] |= {"names": names, "mae": run.numbers["mae"]}
        frames["test"]["accuracy"] = run.numbers["accuracy"]
    frames["classes"] = [plot_text(name, HOVER) for name in run.classes]
    frames["ticks"] = [plot_text(name) for name in run.classes]
    frames["last"] = len(run.history)
    return frames
