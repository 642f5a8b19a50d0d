"""A finished run: evaluate or calibrate its model, on its own data or on other labelled data."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from layline import data
from layline.data.dataset import Dataset, Indices, groups_of
from layline.data.splits import stratified_holdout
from layline.evaluation.evaluate import evaluate_split
from layline.evaluation.prediction_file import check_format, read_predictions
from layline.evaluation.predictions import Predictions, Split
from layline.geometry.decoding import Decode, check_decode
from layline.model.calibration import Calibration
from layline.model.model import OrdinalModel, make_batches
from layline.model.model_file import load
from layline.training.callbacks import Reporter
from layline.training.config import Config, combine, tree_of, validate
from layline.training.prepare import known_inputs, read_data
from layline.training.recipes import fewest_for_splits
from layline.training.report_data import choose_samples, write_report_data
from layline.training.run import predict, write_report
from layline.training.run_folder import RunFolder, describe_software, fingerprint_data, new_folder
from layline.utils.devices import Processes, choose_device
from layline.utils.files import check_output, digest_file, write_json
from layline.utils.validation import UserError, check_known

SPLITS = ("train", "validation", "test", "calibration")
ALL = "all"
_OWN_OPTIONS = ("classes", "images")  # options of a source that only fit the data of the run


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation."""

    metrics: dict[str, Any] = field(repr=False)  # the numbers, as in test.json
    folder: Path | None = None  # with all results, if they were written
    predictions: Path | None = None  # the file with a line for each sample, if it was written
    report: Path | None = None  # if it was written


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
    root = None if root is None else Path(root).expanduser().resolve()
    place = None if out is None else RunFolder(out)
    # check the arguments before the work
    if place is not None:
        place.check_new()
    if predictions is not None:
        check_format(Path(predictions))
        check_output(predictions, [*folder.inputs(), *([] if root is None else [root])])
    options = {k: v for k, v in (("label", label), ("group", group)) if v is not None}
    if options and root is None:
        raise UserError("label and group are for other data: the run knows its own columns.")
    if part is not None:
        check_known("part", part, (*SPLITS, ALL))
    before = folder.read_config(plugins)
    tree = before.model_dump(mode="json", exclude_none=True)
    config = validate(Config, combine(tree, settings or {}, tree_of({"decode": decode})))
    for section in ("recipe", "backbone", "head"):
        if getattr(config, section) != getattr(before, section):
            raise UserError(f"{section} cannot change, because the model was trained with it.")
    model = load(folder.path)
    decode = check_decode(config.training.decoding, len(model.classes))

    # read the data: those of the run, perhaps moved, or others
    notes: list[str] = []
    facts: dict[str, Any] = {}
    moved = None if root is None or options else _read_moved_data(folder, config, model, root)
    is_own = root is None or moved is not None
    if root is None:
        dataset = _read_own_data(folder, config, model, log)
    elif moved is not None:
        config, dataset = moved
    else:
        whole = part not in SPLITS
        config, dataset = _read_other_data(config, model, root, log, options, skip_unknown, whole)
        notes += _find_own_samples(folder, config, dataset)
        if folder.test.is_file():
            own = folder.read_numbers()
            interval = own.get("intervals", {}).get("mae")
            facts["run_test"] = {k: own[k] for k in ("mae", "samples")} | {"interval": interval}
    splits = dataset.splits.by_name()
    has_test = 0 < len(dataset.splits.test) < len(dataset.inputs)
    part = part or ("test" if is_own or has_test else ALL)
    if part == ALL:  # other data without splits of their own have none
        every = np.sort(np.concatenate(list(splits.values())))
        index = every if len(every) else np.arange(len(dataset.inputs))
        if is_own:
            notes.append("All samples were evaluated, including those that the model learned from.")
    elif part in splits and len(splits[part]):
        index = splits[part]
    else:
        raise UserError(f"These data have no {part} split.")
    for note in (f"Evaluated: {len(index)} of {len(dataset.inputs)} samples ({part})", *notes):
        log(note)

    # predict and evaluate
    drawn = choose_samples(len(index), config.report.points, config.training.seed)
    ranks, predicted = _predict(model, config, dataset, index, drawn)
    inputs, groups = dataset.inputs.subset(index), groups_of(dataset, index)
    evaluation = evaluate_split(
        part, ranks, inputs.names, predicted, model.description, decode, groups, facts
    )
    evaluation.numbers["alarms"][:0] = notes

    # write
    if predictions is not None:
        evaluation.write_predictions(Path(predictions))
    if place is None and root is not None:
        place = RunFolder(new_folder(root.stem, folder.path / "evaluations"))
    if place is None:
        return Evaluated(evaluation.numbers)
    place.path.mkdir(parents=True, exist_ok=True)
    evaluation.write_predictions(place.predictions)
    if report:
        write_report_data(place, evaluation, inputs, drawn, model, config.report)
    counts = {part: np.bincount(ranks, minlength=len(model.classes)).tolist()}
    if folder.environment.is_file():
        counts = {"train": folder.read_environment()["counts"]["train"], **counts}
    about = {
        "run": str(folder.path.resolve()),
        "model": digest_file(folder.best),
        "part": part,
        "own_data": is_own,
        "counts": counts,
        "config": config.model_dump(mode="json", exclude_none=True),
        "command": sys.argv,
        **describe_software(),
    }
    write_json(place.evaluation, about)
    write_json(place.test, evaluation.numbers)
    if report:
        write_report(place, console)
    log(f"The results are in {place.path}")
    page = place.report if place.report.is_file() else None
    return Evaluated(evaluation.numbers, place.path, place.predictions, page)


def calibrate_run(
    folder: RunFolder, root: Path | None, console: Console, plugins: Sequence[str | Path] = ()
) -> Calibration:
    """Calibrate the best model of a run and save it.

    On the run's own data, the validation split gives the temperature and the calibration split the
    ranges. Other data at ``root`` are split into two random halves.
    """
    log, config, model = Reporter(console), folder.read_config(plugins), load(folder.path)
    model.description = replace(model.description, calibration=Calibration())
    if root is None and config.training.folds:
        raise UserError(
            "Predictions of left-out labels calibrated this run. Give the path of other labelled "
            "data to calibrate it with them."
        )
    if root is None:
        dataset = _read_own_data(folder, config, model, log)
        halves = dataset.splits.validation, dataset.splits.calibration
        if len(halves[1]) == 0:
            log("This run has no calibration split, so its model gets no ranges.")
    else:
        config, dataset = _read_other_data(config, model, root.expanduser().resolve(), log)
        rng = np.random.default_rng(config.data.partition)
        halves = stratified_holdout(dataset.ranks, 0.5, rng, dataset.groups)
    outcomes: list[tuple[Tensor, Tensor] | None] = [None, None]
    for place, index in enumerate(halves):
        if len(index):
            ranks, predicted = _predict(model, config, dataset, index)
            outcomes[place] = predicted.log_probs, ranks
    calibration = Calibration.fit(*outcomes)
    model.description = replace(model.description, calibration=calibration)
    model.save(folder.best)
    return calibration


def _predict(
    model: OrdinalModel,
    config: Config,
    dataset: Dataset,
    index: Indices,
    keep: Int[Tensor, " m"] | None = None,
) -> tuple[Int[Tensor, " n"], Predictions]:
    """Return the ranks of some samples, and the predictions of a model for them."""
    device, description = choose_device(config.training.device, model.is_table), model.description
    inputs, ranks = dataset.inputs.subset(index), torch.from_numpy(dataset.ranks[index])
    split = Split(make_batches(inputs, description), ranks, torch.ones(len(ranks)))
    temperature = description.calibration.temperature
    return ranks, predict(model.to(device), split, config, Processes(device), temperature, keep)


# The data


def _change_data(config: Config, **changes: Any) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


def _read_own_data(
    folder: RunFolder, config: Config, model: OrdinalModel, log: Reporter
) -> Dataset:
    """Read the data that a run was trained on; raise an error if they changed."""
    known = None if config.init_from is None else known_inputs(config, model.description)
    dataset = read_data(config, log, known=known, fewest=fewest_for_splits(config))
    if dataset.classes != model.classes:
        raise UserError(
            f"The classes of the data, {', '.join(dataset.classes)}, are not those of the model, "
            f"{', '.join(model.classes)}."
        )
    # without an environment, only the model and its configuration were copied
    if folder.environment.exists() and (change := folder.find_change(fingerprint_data(dataset))):
        raise UserError(
            f"{change} A split of them would mix training and test samples. Give the path of the "
            "data to evaluate them as other data."
        )
    return dataset


def _read_moved_data(
    folder: RunFolder, config: Config, model: OrdinalModel, root: Path
) -> tuple[Config, Dataset] | None:
    """Read the data of a run at another path; None if there are other data."""
    if not folder.environment.exists():
        return None
    moved = _change_data(config, root=root)
    try:
        return moved, _read_own_data(folder, moved, model, Reporter(Console(quiet=True)))
    except (UserError, OSError):
        return None


def _read_other_data(
    config: Config,
    model: OrdinalModel,
    root: Path,
    log: Reporter,
    options: Mapping[str, Any] | None = None,
    skip_unknown: bool = False,
    whole: bool = True,
) -> tuple[Config, Dataset]:
    """Read other data, whose kind is detected, and return the configuration that reads them.

    Data of the same kind are read with the options of the run, such as the column of the labels.
    """
    if not root.exists():
        raise FileNotFoundError(f"There is no {root}.")
    own, source, place = config.data, config.data.source, root
    # a published data set or a plug-in can only be read by its own source
    if source in data.SOURCES.builtin and not data.SOURCES[source].origin:
        try:
            found = data.detect(root)
            source, place = found.source, found.root
            log(f"{root} is read as {source}: {found.why}")
        except UserError:  # images of a single class look like any folder
            if source != "folder" or not any(root.glob("*/*")):
                raise
    kept = own.options if source == own.source else {}
    kept = {k: v for k, v in kept.items() if k not in _OWN_OPTIONS} | dict(options or {})
    whole_data: dict[str, Any] = {"per_class": None, "stress": "none"}
    config = _change_data(config, root=place, source=source, options=kept, **whole_data)
    known = replace(known_inputs(config, model.description), skip_unknown=skip_unknown)
    return config, read_data(config, log, known=known, whole=whole)


def _find_own_samples(folder: RunFolder, config: Config, dataset: Dataset) -> list[str]:
    """Warn if other data look like those of the run after some files changed."""
    # samples of other sources have no names of their own
    if config.data.source not in ("folder", "csv") or not folder.predictions.is_file():
        return []
    own = set(read_predictions(folder.predictions).names)
    same = len(own.intersection(dataset.inputs.names))
    warning = (
        f"{same} of the {len(own)} test samples of the run have the same names here. If these are "
        "the data of the run with some changes, they include training samples."
    )
    return [warning] if 2 * same >= len(own) else []
