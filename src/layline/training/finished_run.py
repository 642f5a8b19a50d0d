"""A finished run: its own data or other data for its model, predictions and calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from layline import data
from layline.data.dataset import Dataset, Indices
from layline.data.splits import stratified_holdout
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import Decode
from layline.model.calibration import Calibration
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.config import Config, combine, validate
from layline.training.display import Reporter
from layline.training.init_from import known_inputs
from layline.training.prepare import fingerprint_data, make_batches, read_data
from layline.training.run_folder import RunFolder
from layline.utils.devices import Processes, choose_device
from layline.utils.errors import UserError

_OWN_OPTIONS = ("classes", "images")  # options of a source that only fit the data of the run


def calibrate_run(
    folder: RunFolder, root: Path | None, console: Console, plugins: Sequence[str | Path] = ()
) -> Calibration:
    """Calibrate the best model of a run and save it.

    On the run's own data, the validation split gives the temperature and the calibration split the
    ranges. Other data are split into two random halves.

    Args:
        folder: The run.
        root: Labelled data like those that the model will be used on; the run's own if None.
        console: Where messages are printed.
        plugins: Plug-in files or modules.
    """
    log = Reporter(console)
    config = folder.read_config(plugins)
    model = load(folder.path)
    model.description = replace(model.description, calibration=Calibration())
    if root is None:
        dataset = read_own_data(folder, config, model, log)
        splits = dataset.splits
        halves = splits.validation, splits.calibration
        if len(splits.calibration) == 0:
            log("This run has no calibration split, so its model gets no ranges.")
    else:
        dataset = read_other_data(other_config(config, root, log), model, log, whole=True)
        rng = np.random.default_rng(config.data.partition)
        halves = stratified_holdout(dataset.ranks, 0.5, rng, dataset.groups)
    outcomes: list[tuple[Tensor, Tensor] | None] = []
    for index in halves:
        if len(index) == 0:
            outcomes.append(None)
            continue
        ranks, predicted = predict_samples(model, config, dataset, index)
        outcomes.append((predicted.log_probs, ranks))
    calibration = Calibration.fit(*outcomes)
    model.description = replace(model.description, calibration=calibration)
    model.save(folder.best)
    return calibration


def predict_samples(
    model: OrdinalModel,
    config: Config,
    dataset: Dataset,
    index: Indices,
    decode: Decode = "mode",
    keep: Int[Tensor, " m"] | None = None,
) -> tuple[Int[Tensor, " n"], Predictions]:
    """Return the ranks of some samples, and the predictions of a model for them.

    Args:
        model: Calibrated or not.
        config: Its device, batch size and workers are used.
        dataset: The data set of the samples.
        index: The samples.
        decode: See :func:`predict_split`.
        keep: Positions in ``index`` whose features are returned.
    """
    device = choose_device(config.training.device, model.is_table)
    processes = Processes(device)
    inputs, ranks = dataset.inputs.subset(index), torch.from_numpy(dataset.ranks[index])
    split = Split(make_batches(inputs, model.description), ranks, torch.ones(len(ranks)))
    batches = split.batches(processes, config.training.batch_size, config.data.workers)
    temperature = model.description.calibration.temperature
    options: dict[str, Any] = {"keep": keep, "decode": decode, "temperature": temperature}
    return ranks, predict_split(model.to(device), split, batches, processes, **options)


def change_config(before: Config, changes: Mapping[str, Any]) -> Config:
    """Change settings of a finished run; those of the model must stay."""
    after = validate(Config, combine(before.model_dump(mode="json", exclude_none=True), changes))
    for section in ("recipe", "backbone", "head"):
        if getattr(after, section) != getattr(before, section):
            raise UserError(f"{section} cannot change, because the model was trained with it.")
    return after


def read_own_data(folder: RunFolder, config: Config, model: OrdinalModel, log: Reporter) -> Dataset:
    """Read the data that a run was trained on; raise an error if they changed."""
    known = None if config.init_from is None else known_inputs(config, model.description)
    dataset = read_data(config, log, known=known)
    if dataset.classes != model.classes:
        raise UserError(
            f"The classes of the data, {', '.join(dataset.classes)}, are not those of the model, "
            f"{', '.join(model.classes)}."
        )
    if not folder.environment.exists():  # only the model and its configuration were copied
        return dataset
    before = folder.read_environment()
    if before["data"] != fingerprint_data(dataset):
        change = "files were added, removed or renamed"
    elif before.get("content") != dataset.inputs.digest():
        change = "files with the same names have different content"
    else:
        return dataset
    raise UserError(
        f"The data changed since {folder.path} was trained: {change}. A split of them would mix "
        "training and test samples. Give the path of the data to evaluate them as other data."
    )


def find_own_data(folder: RunFolder, config: Config, model: OrdinalModel) -> Dataset | None:
    """Read the data of a run from a new place; None if other data are there."""
    if not folder.environment.exists():
        return None
    try:
        return read_own_data(folder, config, model, Reporter(Console(quiet=True)))
    except (UserError, OSError):
        return None


def move_data(config: Config, root: Path, **changes: Any) -> Config:
    """Change the path of the data, and perhaps other settings of the data."""
    changes["root"] = root.expanduser().resolve()
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


def other_config(
    config: Config, root: Path, log: Reporter, options: Mapping[str, Any] | None = None
) -> Config:
    """Point the configuration of a run to other data, whose kind is detected.

    Data of the same kind are read with the options of the run, such as the column of the labels.

    Args:
        config: The configuration of the run.
        root: The other data.
        log: Told how the data are read.
        options: Options of the source; they take precedence over those of the run.
    """
    own, root = config.data, root.expanduser().resolve()
    if not root.exists():
        raise FileNotFoundError(f"There is no {root}.")
    source, place = own.source, root
    # a published data set or a plug-in can only be read by its own source
    if source in data.SOURCES.builtin and not data.SOURCES[source].origin:
        source, place, why = _detect(config, root)
        log(f"{root} is read as {source}: {why}")
    kept = own.options if source == own.source else {}
    kept = {name: value for name, value in kept.items() if name not in _OWN_OPTIONS}
    for name, value in (options or {}).items():
        if name not in data.options_of(source):
            raise UserError(f"{source} data have no option {name}, got {value}.")
    return move_data(config, place, source=source, options={**kept, **(options or {})})


def _detect(config: Config, root: Path) -> tuple[str, Path, str]:
    """Detect the kind of other data; in doubt it is that of the run."""
    images = config.data.options.get("images")
    for place in (None,) if images is None else (None, Path(str(images))):
        try:
            found = data.detect(root, place)
        except UserError as error:
            problem = error
        else:
            return found.source, found.root, found.why
    # a folder with one folder of images may hold a single class
    if config.data.source == "folder" and root.is_dir() and any(root.glob("*/*")):
        return "folder", root, "like the data of the run"
    raise problem


def read_other_data(
    config: Config,
    model: OrdinalModel,
    log: Reporter,
    skip_unknown: bool = False,
    whole: bool = False,
) -> Dataset:
    """Read other data for a model: with its classes, columns and categories.

    Args:
        config: The result of :func:`other_config`.
        model: The model.
        log: Told what is read.
        skip_unknown: Leave out samples of classes that the model does not know.
        whole: Draw no splits.
    """
    known = replace(known_inputs(config, model.description), skip_unknown=skip_unknown)
    return read_data(config, log, known=known, whole=whole)
