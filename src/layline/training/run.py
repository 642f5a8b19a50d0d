"""A run, from its configuration to its test numbers, and measured again from its model file."""

import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Int
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

import layline
from layline.arguments import check_known
from layline.data import Dataset
from layline.data.images.preprocessing import ImagePreprocessing
from layline.data.table import TableEncoding
from layline.devices import Processes, choose_device
from layline.diagnostics import alarms, diagnose
from layline.evaluation import Evaluation, Part, Predictions, measure, predict_part
from layline.files import write_json
from layline.geometry.decoding import DECODINGS
from layline.model import Network
from layline.model_file import load
from layline.training.assembly import (
    Assembly,
    assemble,
    batches_of,
    data_fingerprint,
    parts_of,
    read_data,
)
from layline.training.checkpoint import Checkpoints
from layline.training.config import Config, configuration
from layline.training.display import LiveDisplay, Reporter
from layline.training.distributed import SeveralProcesses, make_accelerator
from layline.training.frozen import body_fingerprint, frozen_parts, trained_network
from layline.training.interruption import Interruption
from layline.training.loop import Hooks, Loop, TrainingState
from layline.training.record import (
    chosen_samples,
    collapse_warning,
    take_snapshot,
    write_mistakes,
    write_proxies,
    write_review,
)
from layline.training.run_folder import RunFolder

_AFTER_EPOCH = 5.0  # seconds: an epoch of a small table takes less time than its checkpoint


def train(config: Config, folder: RunFolder, console: Console) -> dict[str, Any] | None:
    """Train, or go on with training, and test the best epoch.

    Args:
        config: What is wanted, resolved.
        folder: Where everything is written; a new one, or that of the run to go on with.
        console: Where to say what happens.

    Returns:
        The numbers of ``test.json``; of several processes only the main one gets them.
    """
    accelerator = make_accelerator(config, folder.path)
    try:
        numbers = _train(config, folder, console, accelerator)
    except BaseException:
        # what was tracked is kept; taking the process group down while others wait can hang
        for tracker in accelerator.trackers:
            tracker.finish()
        raise
    accelerator.end_training()
    return numbers


def _train(
    config: Config, folder: RunFolder, console: Console, accelerator: Accelerator
) -> dict[str, Any] | None:
    say = Reporter(console, accelerator.is_main_process)
    if accelerator.num_processes > 1:
        _, _, index = config.training.device.partition(":")
        own = f"; each has its own device, so the index {index} is ignored" if index else ""
        say(f"{accelerator.num_processes} processes{own}")
    run = assemble(config, say, accelerator)
    model = run.model
    parts = parts_of(config, run.dataset, model.spec)
    if accelerator.is_main_process:
        folder.open(config, _environment(run))
    accelerator.wait_for_everyone()
    if config.track:  # now that nothing is wrong with the data: it writes into the folder
        accelerator.init_trackers("layline", _flat(config.model_dump(mode="json")))
    if config.features.freeze:
        parts = frozen_parts(run, parts, folder.frozen)

    processes = SeveralProcesses(accelerator)
    options = replace(config.training.options(), workers=config.data.workers)
    train, validation, test = (parts[name] for name in ("train", "validation", "test"))
    with Interruption() as interruption:
        hooks = _RunHooks(run, folder, processes, interruption, validation.ranks)
        hooks.display = LiveDisplay(options.epochs, console, processes.is_main)
        trained = trained_network(run)
        state = Loop(trained, train, validation, options, processes, hooks).run()

    model.load_state_dict(load_file(folder.best))
    return _test(run, trained, test, folder, state.best_epoch)


def _environment(run: Assembly) -> dict[str, Any]:
    """Describe what a run is started with; the fingerprints must be the same when it goes on."""
    dataset = run.dataset
    prints = {"data": data_fingerprint(dataset)}
    if run.config.features.freeze:
        prints["frozen"] = body_fingerprint(run.model.features)
    return {
        **prints,
        "counts": _counts(dataset),
        "command": sys.argv,
        "layline": layline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processes": run.accelerator.num_processes,
        "device": str(run.accelerator.device),
        "threads": torch.get_num_threads(),
    }


def _counts(dataset: Dataset) -> dict[str, list[int]]:
    """Count the samples by part and class."""
    return {
        name: np.bincount(dataset.ranks[part], minlength=len(dataset.classes)).tolist()
        for name, part in dataset.partition.parts().items()
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


class _RunHooks(Hooks):
    """What a run does beside training: it saves, records, and stops when it is told to.

    Args:
        run: What is trained.
        folder: Where everything is written.
        processes: One or several.
        interruption: Notices SIGINT and SIGTERM.
        ranks: The classes of the validation samples.
    """

    advice = "; the last good state is kept"

    def __init__(
        self,
        run: Assembly,
        folder: RunFolder,
        processes: SeveralProcesses,
        interruption: Interruption,
        ranks: Int[Tensor, " n"],
    ) -> None:
        self._run, self._folder, self._processes = run, folder, processes
        self._interruption, self._ranks = interruption, ranks
        config = run.config
        self.drawn = chosen_samples(len(ranks), config.report.drawn, config.training.seed)
        self._checkpoints = Checkpoints(folder.state, processes)
        self._saved = time.monotonic()
        self._warnings: set[str] = set()

    def restore(self) -> TrainingState | None:
        """Go back to the last checkpoint, if there is one."""
        return self._checkpoints.restore(self.average)

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint."""
        self._checkpoints.save(state, self.average)
        self._saved = time.monotonic()

    def save_is_due(self, *, after_epoch: bool = False) -> bool:
        """Tell whether to save within or after an epoch; the main process decides for all."""
        waited = time.monotonic() - self._saved
        wait = 60 * self._run.config.training.checkpoint_minutes
        due = waited >= (min(wait, _AFTER_EPOCH) if after_epoch else wait)
        return self._processes.any(due and self._processes.is_main)

    def stop_is_wanted(self) -> bool:
        """Tell whether SIGINT or SIGTERM came to any process."""
        return self._interruption.requested(self._processes)

    def finish_epoch(
        self, state: TrainingState, is_best: bool, validated: Predictions | None
    ) -> None:
        """Track the epoch, and write the best model, the layout and the history."""
        self._run.accelerator.log(state.history[-1], step=state.epoch)
        if not self._processes.is_main or validated is None:
            return
        model, folder = self._run.model, self._folder
        warning = collapse_warning(model.head)
        if warning is not None and warning not in self._warnings:
            self._warnings.add(warning)
            self._run.say(warning)
        if is_best:
            model.save(folder.best)
        if self._run.config.report.enabled:
            predicted = validated.decisions[self._run.config.training.decoding][self.drawn]
            ranks = self._ranks[self.drawn]
            layout = take_snapshot(validated.features, ranks, predicted, model.head)
            layout.save(folder.layout(state.epoch))
        folder.write_history(state.history)


def _test(
    run: Assembly, model: Network, part: Part, folder: RunFolder, epoch: int
) -> dict[str, Any] | None:
    """Measure the best epoch on the test part, in full precision, and write what came out."""
    options, report = run.config.training, run.config.report
    drawn = chosen_samples(len(part.ranks), report.drawn, options.seed)
    processes = SeveralProcesses(run.accelerator)
    batches = part.batches(processes, options.batch_size, run.config.data.workers)
    found = predict_part(model, part, batches, processes, full_precision=True, keep=drawn)
    if not processes.is_main:
        return None
    dataset = run.dataset
    inputs = dataset.inputs.subset(dataset.partition.test)
    numbers = {"part": "test", "epoch": epoch, **measure(part.ranks, found, options.decoding)}
    numbers |= _diagnosis(run, part, found, folder, numbers)
    tested = Evaluation(numbers, inputs.names, dataset.classes, part.ranks, found)
    if report.enabled:
        predicted = found.decisions[options.decoding][drawn]
        layout = take_snapshot(found.features, part.ranks[drawn], predicted, model.head, drawn)
        layout.save(folder.layout("test"))
        write_proxies(folder.proxies, model.head)
        preparation = run.model.spec.inputs
        at_least = preparation.at_least if isinstance(preparation, ImagePreprocessing) else None
        write_mistakes(folder, tested, inputs, report.mistakes, at_least)
        write_review(folder, tested, inputs, report.review, at_least)
    tested.write_predictions(folder.predictions)
    write_json(folder.test, numbers)
    return numbers


def _diagnosis(
    run: Assembly, part: Part, found: Predictions, folder: RunFolder, numbers: dict[str, Any]
) -> dict[str, Any]:
    """Tell how sure the numbers of the test are, and what is wrong with them in words."""
    dataset, options = run.dataset, run.config.training
    test, groups = dataset.partition.test, dataset.groups
    predicted = found.decisions[options.decoding].numpy()
    diagnosis = diagnose(
        part.ranks.numpy(),
        predicted,
        found.proba,
        dataset.classes,
        groups=None if groups is None else [groups[index] for index in test],
    )
    if options.class_weight == "off":  # with weights it is another mean
        (kept,) = (each for each in folder.read_history() if each["epoch"] == numbers["epoch"])
        samples = len(dataset.partition.validation)
        diagnosis["validation"] = {"mae": kept["validation_mae"], "samples": samples}
    known = numbers | diagnosis
    return diagnosis | {"alarms": alarms(known, _counts(dataset), dataset.classes)}


def evaluate_run(
    folder: RunFolder,
    part: str,
    decode: str | None,
    root: Path | None,
    console: Console,
    changes: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Measure the best model of a run on a part of its data.

    Args:
        folder: The run.
        part: ``train``, ``validation`` or ``test``.
        decode: How a rank is chosen; None as in the run.
        root: Where the data are now, if they were moved.
        console: Where to say what happens.
        changes: Settings to lay over those of the run, such as ``{"data": {"workers": 0}}``.
    """
    config = _changed(folder.read_config(), changes or {}, root)
    check_known("part", part, ("train", "validation", "test"))
    decode = decode or config.training.decoding
    check_known("decode", decode, DECODINGS)
    model = load(folder.path)
    device = choose_device(config.training.device, isinstance(model.spec.inputs, TableEncoding))
    say, processes = Reporter(console), Processes(device)
    dataset = read_data(config, say)
    if dataset.classes != model.classes:
        raise ValueError(
            f"the data must have the classes of the model, {', '.join(model.classes)}, got "
            f"{', '.join(dataset.classes)}"
        )
    _check_same_data(folder, data_fingerprint(dataset), root, say)
    index = dataset.partition.parts()[part]
    inputs, ranks = dataset.inputs.subset(index), torch.from_numpy(dataset.ranks[index])
    samples = Part(batches_of(inputs, model.spec), ranks, torch.ones(len(ranks)))
    batches = samples.batches(processes, config.training.batch_size, config.data.workers)
    found = predict_part(model.to(device), samples, batches, processes)
    numbers = {"part": part, **measure(ranks, found, decode)}
    return Evaluation(numbers, inputs.names, model.classes, ranks, found)


def _changed(before: Config, changes: Mapping[str, Any], root: Path | None) -> Config:
    """Change some settings of the run; those of the model are in its file."""
    after = configuration(before.model_dump(mode="json", exclude_none=True), changes)
    for section in ("recipe", "features", "head"):
        if getattr(after, section) != getattr(before, section):
            raise ValueError(f"{section} must stay as it was: the model was trained with it")
    if root is not None:
        moved = after.data.model_copy(update={"root": root.expanduser().resolve()})
        after = after.model_copy(update={"data": moved})
    return after


def _check_same_data(folder: RunFolder, now: str, root: Path | None, say: Reporter) -> None:
    """Refuse data that changed since training: a random split then mixes the parts."""
    if not folder.environment.exists():
        return  # somebody took the model and its configuration only
    if folder.read_environment()["data"] == now:
        return
    what = "files were added, removed or renamed, so this part may hold what the model learned from"
    if root is None:
        raise ValueError(
            f"the data must be those that {folder.path} was trained on, got others: {what}; "
            "layline predict takes any images, and --root says that other data are meant"
        )
    say(f"These are not the data of training: {what}")
