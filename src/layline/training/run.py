"""A run, from top to bottom: read → group → split → plan → build → fit → calibrate → test.

Training is a function of the configuration and the data, so a run that was stopped resumes from its
last checkpoint and ends with the same numbers.
"""

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor

import layline
from layline.backbones import BACKBONES
from layline.data import SOURCES
from layline.data.dataset import Dataset, groups_of
from layline.data.loaders import RowBatches
from layline.evaluation.evaluate import CALIBRATED, compute_metrics, evaluate_split
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import decide, decode_name
from layline.heads import HEADS
from layline.metrics import METRICS
from layline.model.calibration import Calibration, apply_temperature
from layline.model.model import Network, OrdinalModel, to_probabilities
from layline.model.model_file import read_model_file
from layline.training import prepare
from layline.training.callbacks import Checkpoints, ProgressDisplay, Recording, Reporter, Signals
from layline.training.config import Config, Tree, combine, flatten
from layline.training.distributed import (
    SeveralProcesses,
    end_together,
    make_accelerator,
    run_on_main,
)
from layline.training.feature_cache import extract_features, feature_key, fingerprint_body
from layline.training.planner import choose_network, plan_run
from layline.training.recipes import draft_config, is_for_tables, resolve_config
from layline.training.run_folder import RunFolder, choose_samples, take_snapshot, write_pictures
from layline.training.trainer import Trainer
from layline.utils.devices import processor_name
from layline.utils.files import write_json
from layline.utils.registry import load_plugins

_LIBRARIES = ("numpy", "torchvision", "timm")  # besides torch, they change results


@dataclass(frozen=True)
class PreparedRun:
    """A run before training."""

    config: Config  # complete
    dataset: Dataset  # with splits
    model: OrdinalModel  # with its initial weights
    processes: SeveralProcesses
    log: Reporter


def train(
    settings: Config | Mapping[str, Any],
    folder: RunFolder,
    console: Console,
    command: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Train, or resume training, and test the best epoch.

    ``settings`` are complete, or the recipe and the planner choose what is not set. Returns the
    numbers of ``test.json`` in the main process, None in others.
    """
    draft = settings if isinstance(settings, Config) else draft_config(settings)
    if draft.plugins:
        load_plugins(draft.plugins)
    accelerator = make_accelerator(draft, is_for_tables(draft), folder.path)
    log = Reporter(console, accelerator.is_main_process)
    if accelerator.num_processes > 1:
        log(f"{accelerator.num_processes} processes")
    with end_together(accelerator), ExitStack() as locks:
        run = prepare_run(settings, accelerator, log, folder.initial)
        splits = prepare.make_splits(run.config, run.dataset, run.model.description)
        if run.config.backbone.freeze:
            rows, index = frozen_features(run), run.dataset.splits.by_name()
            for name, split in splits.items():
                splits[name] = replace(split, samples=RowBatches(rows, index[name]))
        network = prepare.select_trained(run.model, run.config)
        trainer = _make_trainer(run, network, splits, folder, console)
        # the folder is made only now that data and settings are known to be valid
        run_on_main(accelerator, lambda: _open_folder(run, folder, command, locks))
        if run.config.track:
            flat = flatten(run.config.model_dump(mode="json"))
            plain = {k: v if isinstance(v, int | float | str) else str(v) for k, v in flat.items()}
            accelerator.init_trackers("layline", plain)
        best_epoch = trainer.fit().best_epoch
        run.model.load_state_dict(read_model_file(folder.best)[1])
        validation = _calibrate(run, network, splits, folder)
        facts = {"epoch": best_epoch, "validation": validation}
        return _test(run, network, splits["test"], folder, facts)


def prepare_run(
    settings: Config | Mapping[str, Any],
    accelerator: Accelerator,
    log: Reporter,
    initial: Path | None = None,
) -> PreparedRun:
    """Read the data, plan the run unless its configuration is complete, and build the model."""
    device = accelerator.device
    if isinstance(settings, Config):
        draft = settings
    else:
        first = draft_config(settings)
        choice = run_on_main(accelerator, lambda: choose_network(first, device, log))
        draft = draft_config(combine(choice, settings))
    model = prepare.load_initial_model(draft, initial)
    known = None if model is None else prepare.known_inputs(draft, model.description)
    dataset = prepare.read_data(draft, log, accelerator, known)
    backbone = None if model is None else model.backbone
    if isinstance(settings, Config):
        config = settings
    elif draft.recipe != "modern":
        config = resolve_config(choice, settings)
    else:
        network = backbone = backbone or prepare.build_backbone(draft, dataset)
        plan = run_on_main(
            accelerator, lambda: plan_run(draft, settings, dataset, network, device, log)
        )
        config = resolve_config(choice, plan, settings)
    if model is None:
        backbone = backbone or prepare.build_backbone(config, dataset)
        model = prepare.build_model(config, dataset, backbone, log)
    method, decode = config.head.method, decode_name(config.training.decoding)
    log(
        f"Method: {method}, {HEADS[method].summary}. The best epoch is selected by "
        f"{METRICS[config.training.metric].label}; ranks are decoded by the {decode}."
    )
    if config.data.cache and not config.backbone.freeze:
        dataset = prepare.cache_pixels(dataset, model.description, log, accelerator)
    return PreparedRun(config, dataset, model, SeveralProcesses(accelerator), log)


def frozen_features(run: PreparedRun) -> Float[np.ndarray, "n width"]:
    """Return the output of the frozen body for all samples, from the cache if it is there."""
    config, model, inputs = run.config, run.model, run.dataset.inputs
    with run.log.progress("Extracting features", len(inputs)) as count:
        return extract_features(
            model.backbone,
            prepare.make_batches(inputs, model.description),
            feature_key(model.backbone, inputs, model.description.inputs),
            config.data.root,
            run.processes,
            batch_size=config.training.batch_size,
            workers=config.data.workers,
            progress=count,
            log=run.log,
        )


def _make_trainer(
    run: PreparedRun,
    network: Network,
    splits: dict[str, Split],
    folder: RunFolder,
    console: Console,
) -> Trainer:
    config, processes, validation = run.config, run.processes, splits["validation"]
    options = replace(config.training.options(), workers=config.data.workers)
    keep = None
    if config.report.enabled:
        keep = choose_samples(len(validation.ranks), config.report.points, options.seed)
    callbacks = [
        Signals(),
        Checkpoints(folder, processes, run.log, config.training.checkpoint_minutes),
        Recording(run.model, folder, processes.accelerator, run.log, keep),
        ProgressDisplay(options.epochs, console, processes.is_main),
    ]
    return Trainer(network, splits["train"], validation, options, processes, callbacks)


def _open_folder(
    run: PreparedRun, folder: RunFolder, command: Sequence[str], locks: ExitStack
) -> None:
    try:
        locks.enter_context(folder.lock())
    except NotImplementedError:
        run.log(f"The file system of {folder.path} has no locks; do not use it in another process.")
    folder.open(run.config, describe_environment(run, command))
    prepare.copy_initial_model(run.config, folder.initial)


def _calibrate(
    run: PreparedRun, network: Network, splits: dict[str, Split], folder: RunFolder
) -> dict[str, Any]:
    """Calibrate the best epoch, save it, and measure it on the validation split.

    The temperature is fitted on the validation split, which already selected the epoch; the scores
    of ranges are computed on the calibration split, which selected nothing.
    """
    options, model, accelerator = run.config.training, run.model, run.processes.accelerator
    ranks = splits["validation"].ranks
    log_probs = _predict(run, network, splits["validation"]).log_probs
    held_out = None
    if (split := splits.get("calibration")) is not None:
        held_out = _predict(run, network, split).log_probs, split.ranks
    calibration = Calibration.fit((log_probs, ranks) if options.calibrate else None, held_out)
    model.description = replace(model.description, calibration=calibration)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        model.save(folder.best)
    accelerator.wait_for_everyone()
    proba = to_probabilities(apply_temperature(log_probs, calibration.temperature))
    predicted = decide(torch.from_numpy(proba), options.decoding)
    return {
        "samples": len(ranks),
        **compute_metrics(("mae", "accuracy"), ranks, predicted),
        **compute_metrics(CALIBRATED, ranks, proba),
    }


def _test(
    run: PreparedRun, network: Network, split: Split, folder: RunFolder, facts: dict[str, Any]
) -> dict[str, Any] | None:
    """Evaluate the best epoch on the test split, and write the results."""
    config, dataset = run.config, run.dataset
    points = config.report.points if config.report.enabled else 0
    drawn = choose_samples(len(split.ranks), points, config.training.seed)
    predictions = _predict(run, network, split, drawn)
    if not run.processes.is_main:
        return None
    if dataset.duplicates is not None and dataset.duplicates.duplicates:
        facts["duplicates"] = dataset.duplicates.facts()
    index = dataset.splits.test
    inputs = dataset.inputs.subset(index)
    evaluation = evaluate_split(
        "test",
        split.ranks,
        inputs.names,
        predictions,
        run.model.description,
        config.training.decoding,
        groups_of(dataset, index),
        facts,
        _count_classes(dataset),
    )
    evaluation.write_predictions(folder.predictions)
    write_json(folder.test, evaluation.numbers)
    if config.report.enabled:
        chosen, ranks = evaluation.chosen[drawn], split.ranks[drawn]
        snapshot = take_snapshot(predictions.features, ranks, chosen, network.head, drawn)
        try:
            write_pictures(folder, evaluation, inputs, snapshot, run.model, config.report)
        except OSError as error:
            run.log(f"The figures of the report were not written: {error}")
    return evaluation.numbers


def _predict(
    run: PreparedRun, network: Network, split: Split, keep: Int[Tensor, " m"] | None = None
) -> Predictions:
    """Predict a split in full precision."""
    options, processes = run.config.training, run.processes
    batches = split.batches(processes, options.batch_size, run.config.data.workers)
    temperature = run.model.description.calibration.temperature
    choices: Tree = {"keep": keep, "decode": options.decoding, "temperature": temperature}
    return predict_split(network, split, batches, processes, full_precision=True, **choices)


def describe_environment(run: PreparedRun, command: Sequence[str] = ()) -> dict[str, Any]:
    """Describe data, software and machine; a resumed run must have the same fingerprints."""
    config, dataset, accelerator = run.config, run.dataset, run.processes.accelerator
    initial, duplicates, frozen = config.init_from, dataset.duplicates, config.backbone.freeze
    plugins = (
        HEADS.plugin_of(config.head.method),
        BACKBONES.plugin_of(str(config.backbone.name)),
        SOURCES.plugin_of(config.data.source),
    )
    about = {
        "data": prepare.fingerprint_data(dataset),
        "content": dataset.inputs.digest(),
        "weights": fingerprint_body(run.model.backbone) if frozen else None,
        "plugins": {each.name: each.version for each in plugins if each is not None} or None,
        "init_from": initial and initial.model_dump(mode="json"),
        "duplicates": duplicates and duplicates.facts(),
        "commit": find_commit(),
        "counts": _count_classes(dataset),
        "command": list(command or sys.argv),
        **describe_software(),
        "processor": processor_name(),
        "processes": accelerator.num_processes,
        "device": str(accelerator.device),
        "threads": torch.get_num_threads(),
    }
    return {key: value for key, value in about.items() if value is not None}


def describe_software() -> dict[str, str]:
    """List the versions of this package and of what it computes with."""
    return {
        "layline": layline.__version__,
        **{name: version(name) for name in _LIBRARIES if find_spec(name)},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


@cache
def find_commit() -> str | None:
    """Return the commit of this code, if it is a checkout; ``-dirty`` if files have changed."""
    root = Path(layline.__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _count_classes(dataset: Dataset) -> dict[str, list[int]]:
    """Count the samples of each class by split."""
    return {
        name: np.bincount(dataset.ranks[index], minlength=len(dataset.classes)).tolist()
        for name, index in dataset.splits.by_name().items()
    }
