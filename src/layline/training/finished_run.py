"""A finished run, taken up again: its data, what its model predicts, and its calibration anew."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from layline.data.dataset import Dataset, Indices
from layline.data.splits import stratified_holdout
from layline.data.table_encoding import TableEncoding
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import Decode
from layline.model.calibration import Calibration
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.training.assembly import batches_of, data_fingerprint, read_data
from layline.training.config import Config, combine, validate
from layline.training.display import Reporter
from layline.training.other_data import other_config, read_other
from layline.training.run_folder import RunFolder
from layline.training.start import known_inputs
from layline.utils.devices import Processes, choose_device
from layline.utils.errors import UserError


def calibrate_run(
    folder: RunFolder, root: Path | None, console: Console, plugins: Sequence[str | Path] = ()
) -> Calibration:
    """Calibrate the best model of a run anew, and write it.

    On the data of the run its validation part gives the temperature, and the part that was kept
    apart the ranges. Of other data, all of which the model has not seen, a random half each.

    Args:
        folder: The run.
        root: Labelled data of the kind that the model will be used on; None for those of the run.
        console: Where to say what happens.
        plugins: Files, packages or modules that the caller names.
    """
    say = Reporter(console)
    config = changed_config(folder.read_config(plugins), {}, root)
    model = load(folder.path)
    model.description = replace(model.description, calibration=Calibration())
    if root is None:
        dataset = own_data(folder, config, model, root, say)
        parts = dataset.splits
        halves = parts.validation, parts.calibration
        if len(parts.calibration) == 0:
            say(
                "The run kept no samples apart, so there are no ranges: train with --calibration "
                "0.1, or give labelled data that it has not seen with --root"
            )
    else:
        dataset = read_other(other_config(config, root, say), model.description, say, whole=True)
        rng = np.random.default_rng(config.data.partition)
        halves = stratified_holdout(dataset.ranks, 0.5, rng, dataset.groups)
    held_out, unseen = (_outcome(model, config, dataset, index) for index in halves)
    calibration = Calibration.fit(held_out, unseen)
    model.description = replace(model.description, calibration=calibration)
    model.save(folder.best)
    return calibration


def _outcome(
    model: OrdinalModel, config: Config, dataset: Dataset, index: Indices
) -> tuple[Tensor, Tensor] | None:
    """Give the log probabilities and the ranks of some samples, if there are any."""
    if len(index) == 0:
        return None
    ranks, found = predict_samples(model, config, dataset, index)
    return found.log_probs, ranks


def predict_samples(
    model: OrdinalModel,
    config: Config,
    dataset: Dataset,
    index: Indices,
    decode: Decode = "mode",
    keep: Int[Tensor, " m"] | None = None,
) -> tuple[Int[Tensor, " n"], Predictions]:
    """Give the ranks of some samples, and what a model predicts for them.

    Args:
        model: Calibrated or not.
        config: Says on which device, and how many samples at a time.
        dataset: Where the samples are.
        index: Which ones.
        decode: Costs are decided by as well.
        keep: The places among them whose features are wanted.
    """
    device = choose_device(
        config.training.device, isinstance(model.description.inputs, TableEncoding)
    )
    processes = Processes(device)
    inputs, ranks = dataset.inputs.subset(index), torch.from_numpy(dataset.ranks[index])
    samples = Split(batches_of(inputs, model.description), ranks, torch.ones(len(ranks)))
    batches = samples.batches(processes, config.training.batch_size, config.data.workers)
    temperature = model.description.calibration.temperature
    return ranks, predict_split(
        model.to(device),
        samples,
        batches,
        processes,
        keep=keep,
        decode=decode,
        temperature=temperature,
    )


def _readable(config: Config, model: OrdinalModel, say: Reporter) -> Dataset:
    """Read data that a model can be measured on."""
    known = None if config.init_from is None else known_inputs(config, model.description)
    dataset = read_data(config, say, known=known)
    if dataset.classes != model.classes:
        raise UserError(
            f"the data must have the classes of the model, {', '.join(model.classes)}, got "
            f"{', '.join(dataset.classes)}"
        )
    return dataset


def own_data(
    folder: RunFolder, config: Config, model: OrdinalModel, root: Path | None, say: Reporter
) -> Dataset:
    """Read the data of a run; others only if a root says so."""
    dataset = _readable(config, model, say)
    _check_same_data(folder, dataset, root, say)
    return dataset


def changed_config(before: Config, changes: Mapping[str, Any], root: Path | None) -> Config:
    """Change some settings of the run; those of the model are in its file."""
    after = validate(Config, combine(before.model_dump(mode="json", exclude_none=True), changes))
    for section in ("recipe", "backbone", "head"):
        if getattr(after, section) != getattr(before, section):
            raise UserError(f"{section} must stay as it was: the model was trained with it")
    if root is not None:
        moved = after.data.model_copy(update={"root": root.expanduser().resolve()})
        after = after.model_copy(update={"data": moved})
    return after


def _check_same_data(folder: RunFolder, dataset: Dataset, root: Path | None, say: Reporter) -> None:
    """Refuse data that changed since training: a random split then mixes the parts."""
    if not folder.environment.exists():
        return  # somebody took the model and its configuration only
    before = folder.read_environment()
    if before["data"] != data_fingerprint(dataset):
        what = "files were added, removed or renamed, so this part may hold what the model "
        what += "learned from"
    elif before.get("content") not in (None, dataset.inputs.digest()):  # older runs have none
        what = "under the same names there is other content"
    else:
        return
    if root is None:
        raise UserError(
            f"the data must be those that {folder.path} was trained on, got others: {what}; "
            "layline predict takes any images, and --root says that other data are meant"
        )
    say(f"These are not the data of training: {what}")
