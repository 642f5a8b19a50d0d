"""The training loop, on one process or many.

A run is a function of its configuration: the order of the samples, their augmentation and every
random number of a step follow from the seed, the epoch and the step. So a run that was stopped goes
on from its last saved moment and ends where it would have ended.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from jaxtyping import Int
from torch import Tensor

from layline import metrics
from layline.data.loading import Batch, loader, mixed_seed, to_device
from layline.geometry.decoding import DECODINGS
from layline.model import OrdinalModel
from layline.training.agreement import anywhere
from layline.training.batches import EpochBatches
from layline.training.checkpoint import Checkpoints, Progress, Record
from layline.training.config import Training
from layline.training.display import Display
from layline.training.interruption import Interrupted, Interruption
from layline.training.optimisation import optimiser as make_optimiser
from layline.training.optimisation import set_rates
from layline.training.outcomes import Outcomes, Task, batches_of, outcomes_of
from layline.training.sums import summed


class Loop:
    """Train a model until the last epoch, or until patience ends.

    Args:
        model: What is trained.
        train: What to learn from.
        validation: What to choose the epoch by.
        options: The user's choices.
        accelerator: One process or many.
        checkpoints: Where to save the state.
        on_epoch: Called after each epoch on the main process with the progress, whether this
            epoch is the best so far, and what came out of validation; it writes all of that.
        display: Shows how it goes.
        workers: Processes that fetch batches.
        keep: The validation samples whose features ``on_epoch`` wants.
    """

    def __init__(
        self,
        model: OrdinalModel,
        train: Task,
        validation: Task,
        options: Training,
        accelerator: Accelerator,
        *,
        checkpoints: Checkpoints,
        on_epoch: Callable[[Progress, bool, Outcomes], None],
        display: Display,
        workers: int | None = None,
        keep: Int[Tensor, " m"] | None = None,
    ) -> None:
        self._model, self._train, self._validation = model, train, validation
        self._options, self._accelerator = options, accelerator
        self._keep = keep
        self._checkpoints, self._on_epoch, self._display = checkpoints, on_epoch, display
        self._usual_weight = train.weight.double().mean().item()
        self._batches = EpochBatches(
            len(train.ranks), options, accelerator.process_index, accelerator.num_processes
        )
        on_gpu = accelerator.device.type == "cuda"
        self._fetch = loader(train.samples, self._batches, workers, pin_memory=on_gpu)
        self._started: Iterable[Batch] | None = None
        self._fetch_validation = batches_of(validation, accelerator, options.batch_size, workers)
        optimiser = make_optimiser(model.features, model.head, options)
        self._wrapped, self._optimiser = accelerator.prepare(model, optimiser)

    def run(self) -> Progress:
        """Train, from the last saved moment on if there is one."""
        progress = self._checkpoints.restore() or Progress()
        if not is_finished(progress, self._options):
            # workers are copies of this process: they start while it is small, which is quicker
            self._started = iter(self._fetch_validation)
        self._saved = time.monotonic()
        with Interruption() as interruption, self._display:
            while not is_finished(progress, self._options):
                self._batches.start(progress.epoch, progress.step)
                self._train_epoch(progress, iter(self._fetch), interruption)
                self._finish_epoch(progress)
                if interruption.wanted(self._accelerator):
                    raise Interrupted(progress.epoch, progress.step)
        return progress

    def _train_epoch(
        self, progress: Progress, parts: Iterator[tuple[Tensor, Tensor]], stop: Interruption
    ) -> None:
        """Make the steps of an epoch that are not done yet."""
        self._wrapped.train()
        steps = self._batches.steps
        self._display.start_epoch(progress, steps)
        while progress.step < steps:
            self._step(progress, parts)
            progress.step += 1
            self._display.show_step(progress, self._batches.sizes[progress.step - 1])
            if progress.step == steps:
                break  # the end of the epoch is saved with its validation
            if stop.wanted(self._accelerator):
                self._save(progress)
                raise Interrupted(progress.epoch, progress.step)
            if self._save_is_due():
                self._save(progress)

    def _step(self, progress: Progress, parts: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Make one step of the optimiser, over all processes and accumulated parts."""
        accelerator, options = self._accelerator, self._options
        epoch, step = progress.epoch, progress.step
        # torch.manual_seed also formats a stack trace for a GPU that is not in use
        on_cpu = accelerator.device.type == "cpu"
        seed_with = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed_with(mixed_seed(options.seed, epoch, step, accelerator.process_index))
        set_rates(self._optimiser, options, epoch - 1 + step / self._batches.steps)
        loss_sum = 0.0
        for part in range(options.accumulation):
            x, index = next(parts)
            ranks, weight = self._train.ranks[index], self._train.weight[index]
            is_last = part == options.accumulation - 1
            with nullcontext() if is_last else accelerator.no_sync(self._wrapped):
                given = (to_device(each, accelerator.device) for each in (x, ranks, weight))
                loss = self._wrapped(*given)
                # the head divides by the weight of its part, and processes are averaged
                share = weight.sum().item() / (self._usual_weight * self._batches.sizes[step])
                accelerator.backward(loss * (share * accelerator.num_processes))
            loss_sum += loss.item() * weight.sum().item()
            progress.weight_sum += weight.sum().item()
        self._check_finite(loss_sum, epoch, step + 1)
        progress.loss_sum += loss_sum
        self._optimiser.step()
        self._optimiser.zero_grad()

    def _finish_epoch(self, progress: Progress) -> None:
        """Validate, remember the best epoch, and save."""
        accelerator = self._accelerator
        loss_sum, weight_sum = summed([progress.loss_sum, progress.weight_sum], accelerator)
        record: Record = {"epoch": progress.epoch, "train_loss": loss_sum / weight_sum}
        found = self._validate()
        record |= self._measured(found)
        self._check_finite(record["validation_loss"], progress.epoch, progress.step)
        self._check_weights(progress)  # an infinite one need not show in the loss
        is_best = record["validation_mae"] < progress.best_mae
        if is_best:
            progress.best_epoch, progress.best_mae = progress.epoch, record["validation_mae"]
        progress.history.append(record)
        self._display.show_epoch(progress)
        accelerator.log(record, step=progress.epoch)
        if accelerator.is_main_process:
            self._on_epoch(progress, is_best, found)
        progress.epoch, progress.step = progress.epoch + 1, 0
        progress.loss_sum = progress.weight_sum = 0.0
        self._save(progress)

    def _validate(self) -> Outcomes:
        batches = self._fetch_validation if self._started is None else self._started
        self._started = None
        task, accelerator = self._validation, self._accelerator
        return outcomes_of(self._model, task, batches, accelerator, keep=self._keep)

    def _measured(self, found: Outcomes) -> Record:
        task = self._validation
        outcome = task.ranks, DECODINGS[self._options.decode](found.log_probs.exp())
        return {
            "validation_loss": found.loss,
            "validation_mae": metrics.mean_absolute_error(*outcome, sample_weight=task.weight),
            "validation_accuracy": metrics.accuracy(*outcome, sample_weight=task.weight),
        }

    def _save_is_due(self) -> bool:
        """Tell whether to save within the epoch; the main process decides for all."""
        waited = time.monotonic() - self._saved
        due = waited >= 60 * self._options.checkpoint_minutes
        return anywhere(due and self._accelerator.is_main_process, self._accelerator)

    def _save(self, progress: Progress) -> None:
        self._check_weights(progress)
        self._checkpoints.save(progress)
        self._saved = time.monotonic()

    def _check_weights(self, progress: Progress) -> None:
        finite = all(weight.isfinite().all() for weight in self._model.parameters())
        self._check_finite(0.0 if finite else math.inf, progress.epoch, progress.step)

    def _check_finite(self, value: float, epoch: int, step: int) -> None:
        """Stop all processes together if what one of them has is not finite."""
        if anywhere(not math.isfinite(value), self._accelerator):
            got = math.nan if math.isfinite(value) else value
            raise FloatingPointError(
                f"training must stay finite, got {got} at step {step} of epoch {epoch}: lower "
                f"learning_rate ({self._options.learning_rate}) and head_learning_rate "
                f"({self._options.head_learning_rate}); the last good state is kept"
            )


def is_finished(progress: Progress, options: Training) -> bool:
    """Tell whether the last epoch was trained, or patience ended."""
    waited = progress.epoch - 1 - progress.best_epoch
    impatient = options.patience is not None and waited >= options.patience
    return progress.epoch > options.epochs or (progress.best_epoch > 0 and impatient)
