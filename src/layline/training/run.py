"""A run, from its configuration to its test numbers."""

import platform
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

import layline
from layline import metrics
from layline.data.dataset import Dataset, groups_of
from layline.data.loaders import workers_explained
from layline.evaluation.evaluate import CALIBRATED, compute_metrics, evaluate_split
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import decide
from layline.model.calibration import Calibration, apply_temperature
from layline.model.model import Network, to_probabilities
from layline.model.model_file import read_model_file
from layline.training.assembly import (
    Assembly,
    assemble,
    data_fingerprint,
    parts_of,
)
from layline.training.callbacks import (
    Checkpointing,
    ProgressDisplay,
    Recording,
    Signals,
    Tracking,
)
from layline.training.checkpoint import Checkpoints
from layline.training.config import Config
from layline.training.display import Reporter
from layline.training.distributed import SeveralProcesses, make_accelerator
from layline.training.evaluate import write_pictures, write_results
from layline.training.frozen import body_fingerprint, frozen_parts, trained_network
from layline.training.recipes import used_plugins
from layline.training.record import (
    choose_samples,
    take_snapshot,
)
from layline.training.run_folder import RunFolder
from layline.training.start import keep_start
from layline.training.trainer import Callback, Trainer
from layline.utils.devices import processor_name
from layline.utils.errors import UserError

_LIBRARIES = ("numpy", "torchvision", "timm")  # that compute, beside torch


def train(
    config: Config, folder: RunFolder, console: Console, command: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Train, or go on with training, and test the best epoch.

    Args:
        config: What is wanted, resolved.
        folder: Where everything is written; a new one, or that of the run to go on with.
        console: Where to say what happens.
        command: What the run was started with, if not what this process was.

    Returns:
        The numbers of ``test.json``; of several processes only the main one gets them.
    """
    accelerator = make_accelerator(config, folder.path)
    try:
        with workers_explained(), ExitStack() as locks:
            numbers = _train(config, folder, console, accelerator, command, locks)
    except BaseException:
        # what was tracked is kept; taking the process group down while others wait can hang
        for tracker in accelerator.trackers:
            tracker.finish()
        raise
    accelerator.end_training()
    return numbers


def _train(
    config: Config,
    folder: RunFolder,
    console: Console,
    accelerator: Accelerator,
    command: Sequence[str],
    locks: ExitStack,
) -> dict[str, Any] | None:
    say = Reporter(console, accelerator.is_main_process)
    if accelerator.num_processes > 1:
        _, _, index = config.training.device.partition(":")
        own = f"; each has its own device, so the index {index} is ignored" if index else ""
        say(f"{accelerator.num_processes} processes{own}")
    goes_on = folder.environment.exists()
    if goes_on:
        _lock(folder, accelerator, locks, say)
    # a copy, so that the run goes on without the folder of the run that it came from
    start = folder.start if folder.start.is_file() else None
    run = assemble(config, say, accelerator, start)
    model = run.model
    parts = parts_of(config, run.dataset, model.description)
    if not goes_on:  # a folder is made only now that nothing is wrong with the data
        _lock(folder, accelerator, locks, say)
    if accelerator.is_main_process:
        folder.open(config, environment_of(run, command), goes_on)
        if config.init_from is not None and start is None:
            keep_start(config, folder.start)
    accelerator.wait_for_everyone()
    if config.track:  # now that nothing is wrong with the data: it writes into the folder
        accelerator.init_trackers("layline", _flat(config.model_dump(mode="json")))
    if config.backbone.freeze:
        parts = frozen_parts(run, parts, folder.frozen)

    processes = SeveralProcesses(accelerator)
    options = replace(config.training.options(), workers=config.data.workers)
    train, validation, test = (parts[name] for name in ("train", "validation", "test"))
    trained = trained_network(run)
    report = config.report
    keep = choose_samples(len(validation.ranks), report.drawn, options.seed)
    callbacks: list[Callback] = [
        Signals(),
        Checkpointing(
            Checkpoints(folder.state, processes, say), folder, config.training.checkpoint_minutes
        ),
        Recording(model, folder, say, keep if report.enabled else None),
        Tracking(accelerator),
        ProgressDisplay(options.epochs, console, processes.is_main),
    ]
    state = Trainer(trained, train, validation, options, processes, callbacks).fit()

    model.load_state_dict(read_model_file(folder.best)[1])
    validated = _calibrate(run, trained, parts, folder)
    return _test(run, trained, test, folder, state.best_epoch, validated)


def _lock(folder: RunFolder, accelerator: Accelerator, locks: ExitStack, say: Reporter) -> None:
    """Take the folder for this run alone; of several processes one does, and all are refused."""
    refusal: list[str] = [""]
    if accelerator.is_main_process:
        try:
            locks.enter_context(folder.lock())
        except NotImplementedError:
            say(f"The file system of {folder.path} has no locks: no other process may use it now.")
        except ValueError as error:
            refusal = [str(error)]
    (message,) = broadcast_object_list(refusal)
    if message:
        raise UserError(message)


def _calibrate(
    run: Assembly, trained: Network, parts: dict[str, Split], folder: RunFolder
) -> dict[str, Any]:
    """Calibrate the best epoch, in full precision, and write it anew; measure its validation part.

    The temperature comes from the validation part, which chose the epoch and one number more; the
    scores for ranges from the calibration part, which chose nothing.
    """
    options, model = run.config.training, run.model
    ranks = parts["validation"].ranks
    log_probs = _predicted(run, trained, parts["validation"]).log_probs
    unseen = None
    if "calibration" in parts:
        found = _predicted(run, trained, parts["calibration"])
        unseen = found.log_probs, parts["calibration"].ranks
    calibration = Calibration.fit((log_probs, ranks) if options.calibrate else None, unseen)
    model.description = replace(model.description, calibration=calibration)
    run.accelerator.wait_for_everyone()
    if run.accelerator.is_main_process:
        model.save(folder.best)
    run.accelerator.wait_for_everyone()
    proba = to_probabilities(apply_temperature(log_probs, calibration.temperature))
    decided = decide(torch.from_numpy(proba), options.decoding)
    return {
        "samples": len(ranks),
        "mae": metrics.mean_absolute_error(ranks, decided),
        "accuracy": metrics.accuracy(ranks, decided),
        **compute_metrics(CALIBRATED, ranks, proba),
    }


def _predicted(
    run: Assembly, trained: Network, part: Split, keep: Int[Tensor, " m"] | None = None
) -> Predictions:
    """Go over a part in full precision, as the model is calibrated by now."""
    processes = SeveralProcesses(run.accelerator)
    options = run.config.training
    return predict_split(
        trained,
        part,
        part.batches(processes, options.batch_size, run.config.data.workers),
        processes,
        full_precision=True,
        keep=keep,
        decode=options.decoding,
        temperature=run.model.description.calibration.temperature,
    )


def environment_of(run: Assembly, command: Sequence[str]) -> dict[str, Any]:
    """Describe what a run is started with; the fingerprints must be the same when it goes on."""
    dataset = run.dataset
    prints = {"data": data_fingerprint(dataset), "content": dataset.inputs.digest()}
    if run.config.backbone.freeze:
        prints["frozen"] = body_fingerprint(run.model.backbone)
    used = used_plugins(run.config)
    outside = {
        "plugins": {each.name: each.version for each in used},
    }
    commit = find_commit()
    return {
        **prints,
        **(outside if used else {}),
        "counts": _counts(dataset),
        **(
            {}
            if run.config.init_from is None
            else {"start": run.config.init_from.model_dump(mode="json")}
        ),
        **({} if dataset.duplicates is None else {"duplicates": dataset.duplicates.facts()}),
        "command": list(command or sys.argv),
        "layline": layline.__version__,
        **({} if commit is None else {"commit": commit}),
        **{name: version(name) for name in _LIBRARIES if find_spec(name)},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "processes": run.accelerator.num_processes,
        "device": str(run.accelerator.device),
        "threads": torch.get_num_threads(),
    }


@cache
def find_commit() -> str | None:
    """Find the commit of this code, marked if files have changed; None if git does not know it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(layline.__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # it may be installed inside a checkout
        changed = ", changed" if git("status", "--porcelain", "--", ".") else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return None


def _counts(dataset: Dataset) -> dict[str, list[int]]:
    """Count the samples by part and class."""
    return {
        name: np.bincount(dataset.ranks[part], minlength=len(dataset.classes)).tolist()
        for name, part in dataset.splits.by_name().items()
    }


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name nested values ``section.key``, as trackers want them."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, int | float | str) else str(value)
    return flat


def _test(
    run: Assembly,
    model: Network,
    part: Split,
    folder: RunFolder,
    epoch: int,
    validated: dict[str, Any],
) -> dict[str, Any] | None:
    """Measure the best epoch on the test part, in full precision, and write what came out."""
    options, report = run.config.training, run.config.report
    drawn = choose_samples(len(part.ranks), report.drawn, options.seed)
    found = _predicted(run, model, part, drawn)
    if not run.accelerator.is_main_process:
        return None
    dataset = run.dataset
    inputs = dataset.inputs.subset(dataset.splits.test)
    facts: dict[str, Any] = {"epoch": epoch, "validation": validated}
    if dataset.duplicates is not None:
        facts["duplicates"] = dataset.duplicates.facts()
    tested = evaluate_split(
        "test",
        part.ranks,
        inputs.names,
        found,
        run.model.description,
        options.decoding,
        groups_of(dataset, dataset.splits.test),
        facts,
        _counts(dataset),
    )
    if report.enabled:
        predicted = tested.chosen[drawn]
        layout = take_snapshot(found.features, part.ranks[drawn], predicted, model.head, drawn)
        write_pictures(folder, tested, inputs, layout, run.model, run.config)
    write_results(folder, tested)
    return tested.numbers
