"""A run, from its configuration to its test numbers."""

from dataclasses import replace
from typing import Any

from accelerate import Accelerator
from rich.console import Console
from safetensors.torch import load_file

from layline.data.base import Dataset
from layline.data.loading import RowBatches
from layline.features.weights import load_weights
from layline.geometry.decoding import DECODINGS
from layline.model import OrdinalModel
from layline.training import assembly
from layline.training.acceleration import make_accelerator
from layline.training.checkpoint import Checkpoints, Progress
from layline.training.config import Config
from layline.training.display import Display
from layline.training.frozen import shared_folder
from layline.training.health import worry
from layline.training.loop import Loop
from layline.training.opening import open_folder
from layline.training.outcomes import Outcomes, Task
from layline.training.preparation import frozen_rows
from layline.training.reporter import Reporter
from layline.training.run_folder import RunFolder
from layline.training.snapshot import chosen_samples, take_snapshot
from layline.training.testing import measure_best


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
    shown = accelerator.is_main_process
    say = Reporter(console, shown)
    if accelerator.num_processes > 1:
        say(f"{accelerator.num_processes} processes")
    dataset = assembly.read_data(config, say, accelerator)
    assembly.check_fits(config, dataset, accelerator.num_processes)
    model = assembly.build(config, dataset)
    for note in load_weights(model.features, str(config.features.weights)):
        say(note)
    dataset = assembly.with_cache(config, dataset, model, say, accelerator)
    tasks = assembly.tasks(config, dataset, model)
    if shown:
        open_folder(folder, config, dataset, model, accelerator)
    accelerator.wait_for_everyone()
    if config.track:  # now that nothing is wrong with the data: it writes into the folder
        accelerator.init_trackers("layline", _flat(config.model_dump(mode="json")))

    trained, said = model, list[str]()
    if config.features.freeze:
        tasks = _frozen_tasks(config, dataset, model, tasks, folder, say, accelerator)
        trained = OrdinalModel(model.spec, model.features.last, model.head)

    shown_ranks = tasks["validation"].ranks
    keep = chosen_samples(len(shown_ranks), config.report.drawn, config.training.seed)

    def finish_epoch(progress: Progress, is_best: bool, found: Outcomes) -> None:
        warning = worry(model.head)
        if warning and warning not in said:
            said.append(warning)
            say(warning)
        if is_best:
            folder.write_best(model)
        if config.report.enabled:
            predicted = DECODINGS[config.training.decode](found.log_probs[keep].exp())
            layout = take_snapshot(found.features, shown_ranks[keep], predicted, model.head)
            layout.save(folder.layout(progress.epoch))
        folder.write_history(progress.history)

    progress = Loop(
        trained,
        tasks["train"],
        tasks["validation"],
        config.training,
        accelerator,
        checkpoints=Checkpoints(folder.state, accelerator),
        on_epoch=finish_epoch,
        display=Display(config.training.epochs, console, shown),
        workers=config.data.workers,
        keep=keep,
    ).run()

    model.load_state_dict(load_file(folder.best))
    numbers = measure_best(
        config, dataset, trained, tasks["test"], folder, accelerator, progress.best_epoch
    )
    return numbers if shown else None


def _frozen_tasks(
    config: Config,
    dataset: Dataset,
    model: OrdinalModel,
    tasks: dict[str, Task],
    folder: RunFolder,
    say: Reporter,
    accelerator: Accelerator,
) -> dict[str, Task]:
    """Put the features of the frozen body in the place of the images."""
    model.features.requires_grad_(False)
    model.features.last.requires_grad_(True)
    shared = shared_folder(model.features, dataset.inputs, model.spec.inputs, config.data.cache)
    place = shared or folder.frozen
    rows = frozen_rows(config, dataset, model, place, say, accelerator)
    parts = dataset.partition.parts()
    return {
        name: replace(task, samples=RowBatches(rows[parts[name]])) for name, task in tasks.items()
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
