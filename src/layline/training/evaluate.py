"""The model of a run, measured on a part of its own data or on data of another origin."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

import layline
from layline.data.dataset import Dataset, Images, Indices, groups_of
from layline.data.index import digest_file
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import Rows
from layline.evaluation.alarms import find_alarms
from layline.evaluation.evaluate import Evaluation, evaluate_split
from layline.geometry.decoding import Decode, checked_decode
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.assembly import data_fingerprint, read_data
from layline.training.config import Config
from layline.training.display import Reporter, amount
from layline.training.finished_run import changed_config, own_data, predict_samples
from layline.training.other_data import other_config, read_other
from layline.training.record import (
    Snapshot,
    choose_samples,
    take_snapshot,
    write_mistakes,
    write_proxies,
    write_review,
)
from layline.training.run_folder import RunFolder, as_written
from layline.training.start import known_inputs
from layline.utils.errors import UserError
from layline.utils.files import write_json
from layline.utils.validation import check_known

PARTS = ("train", "validation", "test", "calibration")
ALL = "all"


@dataclass(frozen=True)
class Measured:
    """A model measured on samples.

    Attributes:
        run: The run that the model is of.
        model: The best one of the run.
        config: Of the run, with the data that were measured.
        is_own: Whether the data are those of the run.
        found: What came out.
        inputs: The samples.
        layout: Where they lie, as far as they are drawn.
        notes: What a reader of the numbers must know of the data.
    """

    run: RunFolder
    model: OrdinalModel
    config: Config
    is_own: bool
    found: Evaluation
    inputs: Images | Rows
    layout: Snapshot
    notes: tuple[str, ...] = ()


def evaluate_run(
    folder: RunFolder,
    part: str | None,
    decode: Decode | None,
    root: Path | None,
    console: Console,
    changes: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    skip_unknown: bool = False,
    plugins: Sequence[str | Path] = (),
) -> Measured:
    """Measure the best model of a run.

    Args:
        folder: The run.
        part: One of ``PARTS`` or ``all``; None for the test part of the run's own data. Of other
            data None takes the test part where they have a split of their own, and else all.
        decode: How a rank is chosen; None as in the run.
        root: Other labelled data, or where those of the run are now.
        console: Where to say what happens.
        changes: Settings to lay over those of the run, such as ``{"data": {"workers": 0}}``.
        options: Options of the source for other data, such as the column of the labels.
        skip_unknown: Leave out samples of classes that the model does not know.
        plugins: Files, packages or modules that the caller names.
    """
    say = Reporter(console)
    config = changed_config(folder.read_config(plugins), changes or {}, root)
    if part is not None:
        check_known("part", part, (*PARTS, ALL))
    model = load(folder.path)
    decode = config.training.decoding if decode is None else decode
    decode = checked_decode(decode, len(model.classes))
    is_own = root is None or (not options and _is_own(folder, config, model))
    notes: list[str] = []
    if root is None or is_own:
        dataset = own_data(folder, config, model, root, say)
        part = part or "test"
        if part == ALL:
            notes.append("All samples of the run were measured, those that it learned from too.")
    else:
        config = other_config(config, root, say, dict(options or {}))
        dataset = read_other(config, model.description, say, skip_unknown, whole=part not in PARTS)
        part = part or _part_of_other(dataset, say)
        if config.data.source in ("folder", "csv"):  # rows and arrays are called by their place
            notes += _seen_before(folder, dataset)
    for note in notes:
        say(note)
    index = _samples_of(dataset, part)
    drawn = choose_samples(len(index), config.report.points, config.training.seed)
    ranks, predicted = predict_samples(model, config, dataset, index, decode, drawn)
    inputs, groups = dataset.inputs.subset(index), groups_of(dataset, index)
    found = evaluate_split(part, ranks, inputs.names, predicted, model.description, decode, groups)
    layout = take_snapshot(predicted.features, ranks[drawn], found.chosen[drawn], model.head, drawn)
    return Measured(folder, model, config, is_own, found, inputs, layout, tuple(notes))


def _is_own(folder: RunFolder, config: Config, model: OrdinalModel) -> bool:
    """Tell whether a root has the data of the run, which were moved."""
    if not folder.environment.exists():
        return False
    known = None if config.init_from is None else known_inputs(config, model.description)
    try:
        dataset = read_data(config, Reporter(Console(quiet=True)), known=known)
    except (ValueError, OSError):
        return False
    before = folder.read_environment()
    if before.get("content") not in (None, dataset.inputs.digest()):  # older runs have none
        return False
    return bool(before.get("data") == data_fingerprint(dataset))


def _part_of_other(dataset: Dataset, say: Reporter) -> str:
    """Choose what of other data is measured: their own test part, or all of them."""
    parts = dataset.splits
    count = len(dataset.inputs)
    if len(parts.test) and len(parts.test) < count:
        say(
            f"The data have a split of their own: its test part is measured, {len(parts.test)} of "
            f"{amount(count, 'sample')} (--part all measures all)"
        )
        return "test"
    say(f"The data have no split of their own: all {count} samples are measured (--part)")
    return ALL


def _samples_of(dataset: Dataset, part: str) -> Indices:
    parts = dataset.splits.by_name()
    if part == ALL:
        return np.sort(np.concatenate(list(parts.values())))
    if part not in parts:
        raise UserError(
            f"part must be there, got {part}: the run kept no samples apart for calibration"
        )
    if len(parts[part]) == 0:
        raise UserError(f"the {part} part must have samples, got none: --part all measures all")
    return parts[part]


def _seen_before(folder: RunFolder, dataset: Dataset) -> list[str]:
    """Say so where other data may be those of the run after all."""
    from layline.evaluation.prediction_file import read_predictions

    if not folder.predictions.is_file():
        return []
    with as_written(folder.predictions, "layline train --resume tests the run again"):
        tested = read_predictions(folder.predictions)
    truth = dict(zip(tested.names, (tested.classes[rank] for rank in tested.ranks), strict=True))
    here = zip(dataset.inputs.names, dataset.ranks.tolist(), strict=True)
    same = sum(truth.get(name) == dataset.classes[rank] for name, rank in here)
    if 2 * same < len(truth):
        return []
    return [
        f"{same} of the run's {amount(len(truth), 'test sample')} have the same names and labels "
        "here: if these are its own data with some files changed, the numbers hold what it learned "
        "from."
    ]


def write_evaluation(measured: Measured, place: RunFolder, pictures: bool = True) -> dict[str, Any]:
    """Write what was measured into a folder of its own.

    Args:
        measured: What came out.
        place: The folder; it gets ``test.json``, ``predictions.csv`` and ``evaluation.json``.
        pictures: Also write what only the report shows: mistakes, samples to review, the layout.

    Returns:
        The numbers of ``test.json``.
    """
    found, run = measured.found, measured.run
    numbers = dict(found.numbers)
    environment = run.read_environment() if run.environment.is_file() else {}
    before = _own_test(run)
    if before and not measured.is_own:
        numbers["run_test"] = before
    numbers["alarms"] = [*measured.notes, *find_alarms(numbers, {}, found.classes)]
    counts = np.bincount(found.ranks.numpy(), minlength=len(found.classes)).tolist()
    trained = environment.get("counts", {}).get("train")
    about = {
        "run": str(run.path.resolve()),
        "model": digest_file(run.best),
        "part": numbers["part"],
        "own_data": measured.is_own,
        "counts": {**({"train": trained} if trained else {}), numbers["part"]: counts},
        "config": measured.config.model_dump(mode="json", exclude_none=True),
        "command": sys.argv,
        "layline": layline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    place.path.mkdir(parents=True, exist_ok=True)
    if pictures:
        preparation, report = measured.model.description.inputs, measured.config.report
        at_least = preparation.at_least if isinstance(preparation, ImagePreprocessing) else None
        write_mistakes(place, found, measured.inputs, report.mistakes, at_least)
        write_review(place, found, measured.inputs, report.review, at_least)
        measured.layout.save(place.layout("test"))
        write_proxies(place.proxies, measured.model.head)
    found.write_predictions(place.predictions)
    write_json(place.evaluation, about)
    write_json(place.test, numbers)
    return numbers


def _own_test(run: RunFolder) -> dict[str, Any]:
    """Give what a run reached on its own test part, if it was tested."""
    if not run.test.is_file():
        return {}
    numbers = run.read_numbers()
    interval = (numbers.get("intervals") or {}).get("mae")
    return {"mae": numbers.get("mae"), "samples": numbers.get("samples"), "interval": interval}
