"""The test of a run: the best epoch, measured once, and what a report shows of it."""

from typing import Any

import torch
from accelerate import Accelerator
from jaxtyping import Int
from torch import Tensor

from layline.data.base import Dataset
from layline.evaluation import measure, normalised, write_json, write_predictions
from layline.geometry.decoding import DECODINGS
from layline.model import OrdinalModel
from layline.training.config import Config
from layline.training.mistakes import write_mistakes
from layline.training.outcomes import Outcomes, Task, batches_of, outcomes_of
from layline.training.proxies_file import write_proxies
from layline.training.run_folder import RunFolder
from layline.training.snapshot import chosen_samples, take_snapshot


def measure_best(
    config: Config,
    dataset: Dataset,
    model: OrdinalModel,
    task: Task,
    folder: RunFolder,
    accelerator: Accelerator,
    epoch: int,
) -> dict[str, Any]:
    """Measure the best epoch on the test part, in full precision, and write what came out.

    Args:
        config: What was wanted.
        dataset: The data.
        model: As it was in the best epoch.
        task: The test part.
        folder: Where to write.
        accelerator: One process or many; all call this together.
        epoch: The best one.

    Returns:
        The numbers of ``test.json``.
    """
    options = config.training
    keep = chosen_samples(len(task.ranks), config.report.drawn, options.seed)
    batches = batches_of(task, accelerator, options.batch_size, config.data.workers)
    found = outcomes_of(model, task, batches, accelerator, full_precision=True, keep=keep)
    numbers = {
        "part": "test",
        "epoch": epoch,
        **measure(task.ranks, found.log_probs, options.decode),
    }
    if accelerator.is_main_process:
        if config.report.enabled:
            _write_what_is_shown(config, dataset, model, task, folder, found, keep)
        names = dataset.inputs.subset(dataset.partition.test).names
        write_predictions(
            folder.predictions, names, dataset.classes, found.log_probs, options.decode, task.ranks
        )
        write_json(folder.test, numbers)
    return numbers


def _write_what_is_shown(
    config: Config,
    dataset: Dataset,
    model: OrdinalModel,
    task: Task,
    folder: RunFolder,
    found: Outcomes,
    keep: Int[Tensor, " m"],
) -> None:
    """Write the layout, the proxies and the worst mistakes."""
    proba = normalised(found.log_probs)
    predicted = DECODINGS[config.training.decode](torch.from_numpy(proba))
    layout = take_snapshot(found.features, task.ranks[keep], predicted[keep], model.head, keep)
    layout.save(folder.layout("test"))
    write_proxies(folder.proxies, model.head)
    write_mistakes(
        folder.mistakes,
        folder.thumbnails,
        dataset,
        predicted.numpy(),
        proba,
        config.report.mistakes,
        getattr(model.spec.inputs, "at_least", None),
    )
