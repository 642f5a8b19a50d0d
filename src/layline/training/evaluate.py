"""Evaluation of the model of a run, on a split of its own data or on other data."""

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
from layline.data.table_encoding import Rows
from layline.evaluation.evaluate import Evaluation, evaluate_split
from layline.evaluation.prediction_file import read_predictions
from layline.geometry.decoding import Decode, check_decode
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.config import Config
from layline.training.display import Reporter
from layline.training.finished_run import (
    change_config,
    find_own_data,
    move_data,
    other_config,
    predict_samples,
    read_other_data,
    read_own_data,
)
from layline.training.record import Snapshot, choose_samples, take_snapshot, write_pictures
from layline.training.run_folder import RunFolder, as_written
from layline.utils.errors import UserError
from layline.utils.files import write_json
from layline.utils.validation import check_known

SPLITS = ("train", "validation", "test", "calibration")
ALL = "all"


@dataclass(frozen=True)
class RunEvaluation:
    """The evaluation of the model of a run.

    Attributes:
        run: The run.
        model: Its best model.
        config: The configuration of the run, with the data that were evaluated.
        is_own: Whether these are the data of the run.
        evaluation: The result.
        inputs: The samples.
        layout: The positions of some samples in the plane of the report.
    """

    run: RunFolder
    model: OrdinalModel
    config: Config
    is_own: bool
    evaluation: Evaluation
    inputs: Images | Rows
    layout: Snapshot


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
) -> RunEvaluation:
    """Evaluate the best model of a run.

    Args:
        folder: The run.
        part: One of ``SPLITS`` or ``all``. By default the test split, or all samples of other data
            without a test split.
        decode: The decoding; that of the run if None.
        root: Other labelled data, or the new place of those of the run.
        console: Where messages are printed.
        changes: Changes of the configuration of the run.
        options: Options of the source of other data, such as the column of the labels.
        skip_unknown: Leave out samples of classes that the model does not know.
        plugins: Plug-in files or modules.
    """
    log = Reporter(console)
    config = change_config(folder.read_config(plugins), changes or {})
    if part is not None:
        check_known("part", part, (*SPLITS, ALL))
    model = load(folder.path)
    decode = check_decode(
        config.training.decoding if decode is None else decode, len(model.classes)
    )
    notes: list[str] = []
    facts: dict[str, Any] = {}
    if root is None:
        dataset: Dataset | None = read_own_data(folder, config, model, log)
    else:
        moved = move_data(config, root)
        dataset = None if options else find_own_data(folder, moved, model)
        config = config if dataset is None else moved
    is_own = dataset is not None
    if dataset is not None:
        part = part or "test"
        if part == ALL:
            notes.append("All samples were evaluated, including those that the model learned from.")
    else:
        assert root is not None
        config = other_config(config, root, log, options)
        dataset = read_other_data(config, model, log, skip_unknown, whole=part not in SPLITS)
        tested = len(dataset.splits.test)
        part = part or ("test" if 0 < tested < len(dataset.inputs) else ALL)
        notes += _find_own_samples(folder, config, dataset)
        facts["run_test"] = _read_own_test(folder)
    index = _select(dataset, part)
    log(f"Evaluated: {len(index)} of {len(dataset.inputs)} samples ({part})")
    for note in notes:
        log(note)
    drawn = choose_samples(len(index), config.report.points, config.training.seed)
    ranks, predicted = predict_samples(model, config, dataset, index, decode, drawn)
    inputs, groups = dataset.inputs.subset(index), groups_of(dataset, index)
    evaluation = evaluate_split(
        part, ranks, inputs.names, predicted, model.description, decode, groups, facts
    )
    evaluation.numbers["alarms"][:0] = notes
    chosen = evaluation.chosen[drawn]
    layout = take_snapshot(predicted.features, ranks[drawn], chosen, model.head, drawn)
    return RunEvaluation(folder, model, config, is_own, evaluation, inputs, layout)


def _select(dataset: Dataset, part: str) -> Indices:
    splits = dataset.splits.by_name()
    if part == ALL:  # other data without splits of their own have none
        every = np.sort(np.concatenate(list(splits.values())))
        return every if len(every) else np.arange(len(dataset.inputs))
    if part not in splits or len(splits[part]) == 0:
        raise UserError(f"These data have no {part} split.")
    return splits[part]


def _find_own_samples(folder: RunFolder, config: Config, dataset: Dataset) -> list[str]:
    """Warn if other data look like those of the run after some files changed."""
    # samples of other sources have no names of their own
    if config.data.source not in ("folder", "csv") or not folder.predictions.is_file():
        return []
    with as_written(folder.predictions, "resume the run to write it again"):
        tested = read_predictions(folder.predictions)
    own = set(zip(tested.names, (tested.classes[rank] for rank in tested.ranks), strict=True))
    labels = (dataset.classes[rank] for rank in dataset.ranks.tolist())
    same = len(own.intersection(zip(dataset.inputs.names, labels, strict=True)))
    if 2 * same < len(own):
        return []
    return [
        f"{same} of the {len(own)} test samples of the run have the same names and labels here. If "
        "these are the data of the run with some changes, they include training samples."
    ]


def _read_own_test(run: RunFolder) -> dict[str, Any] | None:
    """Read the result of a run on its own test split."""
    if not run.test.is_file():
        return None
    numbers = run.read_numbers()
    interval = (numbers.get("intervals") or {}).get("mae")
    return {"mae": numbers.get("mae"), "samples": numbers.get("samples"), "interval": interval}


def write_evaluation(result: RunEvaluation, place: RunFolder, pictures: bool = True) -> None:
    """Write an evaluation to a folder of its own.

    Args:
        result: The evaluation.
        place: The folder; it gets ``test.json``, ``predictions.csv`` and ``evaluation.json``.
        pictures: Whether to write what only the report shows: mistakes, samples to review, layout.
    """
    evaluation, run = result.evaluation, result.run
    numbers, classes = evaluation.numbers, evaluation.classes
    counts = {numbers["part"]: np.bincount(evaluation.ranks, minlength=len(classes)).tolist()}
    if run.environment.is_file():
        counts = {"train": run.read_environment()["counts"]["train"], **counts}
    about = {
        "run": str(run.path.resolve()),
        "model": digest_file(run.best),
        "part": numbers["part"],
        "own_data": result.is_own,
        "counts": counts,
        "config": result.config.model_dump(mode="json", exclude_none=True),
        "command": sys.argv,
        "layline": layline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    place.path.mkdir(parents=True, exist_ok=True)
    write_results(place, evaluation)
    if pictures:
        report = result.config.report
        write_pictures(place, evaluation, result.inputs, result.layout, result.model, report)
    write_json(place.evaluation, about)


def write_results(place: RunFolder, evaluation: Evaluation) -> None:
    """Write ``predictions.csv`` and ``test.json``."""
    evaluation.write_predictions(place.predictions)
    write_json(place.test, evaluation.numbers)
