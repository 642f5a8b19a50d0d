"""Evaluation of the model of a run, on a split of its own data or on other data."""

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

import layline
from layline.data.dataset import Dataset, Indices, groups_of
from layline.data.index import digest_file
from layline.evaluation.evaluate import Evaluation, evaluate_split
from layline.evaluation.prediction_file import check_format, read_predictions
from layline.geometry.decoding import Decode, check_decode
from layline.model.model_file import load
from layline.training.api import write_report
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
from layline.training.record import choose_samples, take_snapshot, write_pictures
from layline.training.run_folder import RunFolder, as_written, new_folder
from layline.utils.errors import UserError
from layline.utils.files import check_output, write_json
from layline.utils.validation import check_known

SPLITS = ("train", "validation", "test", "calibration")
ALL = "all"


class Evaluated:
    """The result of an evaluation.

    Args:
        metrics: The numbers, as in ``test.json``.
        folder: The folder with all results, if one was written.
    """

    def __init__(self, metrics: dict[str, Any], folder: Path | None) -> None:
        self.metrics, self.folder = metrics, folder

    @property
    def predictions(self) -> Path | None:
        """The file with a line for each sample, if one was written."""
        return None if self.folder is None else RunFolder(self.folder).predictions

    @property
    def report(self) -> Path | None:
        """The report, if one was written."""
        page = None if self.folder is None else RunFolder(self.folder).report
        return page if page is not None and page.is_file() else None

    def __repr__(self) -> str:
        return f"Evaluated({str(self.folder)!r})"


def evaluate(
    run: str | Path,
    *,
    root: str | Path | None = None,
    part: str | None = None,
    out: str | Path | None = None,
    label: str | None = None,
    group: str | None = None,
    decode: Decode | None = None,
    skip_unknown: bool = False,
    predictions: str | Path | None = None,
    report: bool = True,
    plugins: Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    verbose: bool = True,
) -> Evaluated:
    """Evaluate the best model of a run, on a split of its own data or on other labelled data.

    Other data may be a folder per class, a CSV file of images, a table or an npz file; their kind
    is detected, and their classes are matched by name with those of the model.

    Args:
        run: Folder of a trained run.
        root: Other labelled data, or the new path of the run's own data.
        part: ``train``, ``validation``, ``test``, ``calibration`` or ``all``. By default the test
            split, or all samples of other data without a test split.
        out: New folder for the results. By default a folder in ``evaluations`` of the run if there
            is a root, else none.
        label: Column of the labels in other data; by default that of the run.
        group: Column of groups in other data, such as a patient ID.
        decode: The decoding; by default that of the run.
        skip_unknown: Leave out samples of classes that the model does not know.
        predictions: A ``.csv`` or ``.jsonl`` file for the predictions.
        report: Whether to write ``report.html`` into the folder.
        plugins: Plug-in files or modules that the run needs and that are not installed.
        settings: Changes of the settings of the run, such as ``{"data": {"workers": 0}}``.
        verbose: Whether to print progress on stderr.
    """
    console = Console(stderr=True, quiet=not verbose)
    log, folder = Reporter(console), RunFolder(run)
    root = None if root is None else Path(root)
    place = None if out is None else RunFolder(out)
    if place is not None:
        place.check_new()
    if predictions is not None:  # before the work, not after it
        check_format(Path(predictions))
        check_output(predictions, [*folder.inputs(), *([] if root is None else [root])])
    options = {k: v for k, v in (("label", label), ("group", group)) if v is not None}
    if options and root is None:
        raise UserError("label and group are for other data: the run knows its own columns.")
    if part is not None:
        check_known("part", part, (*SPLITS, ALL))
    config = change_config(folder.read_config(plugins), settings or {})
    model = load(folder.path)
    decode = config.training.decoding if decode is None else decode
    decode = check_decode(decode, len(model.classes))

    notes: list[str] = []
    facts: dict[str, Any] = {}
    dataset = None
    if root is None:
        dataset = read_own_data(folder, config, model, log)
    elif not options:
        dataset = find_own_data(folder, moved := move_data(config, root), model)
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
    for note in (f"Evaluated: {len(index)} of {len(dataset.inputs)} samples ({part})", *notes):
        log(note)

    drawn = choose_samples(len(index), config.report.points, config.training.seed)
    ranks, predicted = predict_samples(model, config, dataset, index, decode, drawn)
    inputs, groups = dataset.inputs.subset(index), groups_of(dataset, index)
    evaluation = evaluate_split(
        part, ranks, inputs.names, predicted, model.description, decode, groups, facts
    )
    evaluation.numbers["alarms"][:0] = notes
    if predictions is not None:
        evaluation.write_predictions(Path(predictions))
    if place is None and root is not None:
        place = RunFolder(new_folder(root.resolve().stem, folder.path / "evaluations"))
    if place is None:
        return Evaluated(evaluation.numbers, None)
    place.path.mkdir(parents=True, exist_ok=True)
    evaluation.write_predictions(place.predictions)
    if report:
        chosen = evaluation.chosen[drawn]
        layout = take_snapshot(predicted.features, ranks[drawn], chosen, model.head, drawn)
        write_pictures(place, evaluation, inputs, layout, model, config.report)
    write_json(place.evaluation, _describe(folder, config, evaluation, is_own))
    write_json(place.test, evaluation.numbers)
    if report:
        write_report(place, console)
    log(f"The results are in {place.path}")
    return Evaluated(evaluation.numbers, place.path)


def _describe(
    run: RunFolder, config: Config, evaluation: Evaluation, is_own: bool
) -> dict[str, Any]:
    """Describe an evaluation for ``evaluation.json``."""
    part, size = evaluation.numbers["part"], len(evaluation.classes)
    counts = {part: np.bincount(evaluation.ranks, minlength=size).tolist()}
    if run.environment.is_file():
        counts = {"train": run.read_environment()["counts"]["train"], **counts}
    return {
        "run": str(run.path.resolve()),
        "model": digest_file(run.best),
        "part": part,
        "own_data": is_own,
        "counts": counts,
        "config": config.model_dump(mode="json", exclude_none=True),
        "command": sys.argv,
        "layline": layline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


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
