"""The training loop, of a run and of the estimator, on one process or several.

A run is a function of its configuration: the order of the samples, their augmentation and every
random number of a step follow from the seed, the epoch and the step. So a run that was stopped goes
on from its last checkpoint and ends where it would have ended.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Self

import torch
from jaxtyping import Int
from torch import Tensor, nn

from layline import metrics
from layline.data.loaders import Batch, Key, loader, mixed_seed, to_device
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import decode_name
from layline.metrics import CRITERIA
from layline.model.model import Network
from layline.training.interruption import Interrupted
from layline.training.optim import Options, WeightAverage, make_optimiser, set_rates
from layline.utils.devices import Processes
from layline.utils.errors import UserError

EpochRecord = dict[str, float]


@dataclass
class TrainingState:
    """How far training is.

    Attributes:
        epoch: The epoch being trained, counted from 1.
        step: Steps done in it.
        loss_sum: Weighted sum of the losses in it, of this process.
        weight_sum: Sum of those weights.
        best_epoch: The best epoch so far by the metric, 0 before there is one.
        best_score: Its value of the metric.
        best_loss: Its validation loss.
        history: One record per finished epoch.
    """

    epoch: int = 1
    step: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    best_epoch: int = 0
    best_score: float | None = None
    best_loss: float = math.inf
    history: list[EpochRecord] = field(default_factory=list)

    def is_finished(self, options: Options) -> bool:
        """Tell whether the last epoch was trained, or patience ended."""
        waited = self.epoch - 1 - self.best_epoch
        impatient = options.patience is not None and waited >= options.patience
        return self.epoch > options.epochs or (self.best_epoch > 0 and impatient)

    def epoch_of(self, epochs: int) -> str:
        """Write the epoch and how many are planned, in a fixed width."""
        return f"{self.epoch:{len(str(epochs))}}/{epochs}"

    def describe(self, epochs: int) -> str:
        """Write what came out of the epoch that is just finished."""
        record = self.history[-1]
        parts = [f"epoch {self.epoch_of(epochs)}", f"loss {record['train_loss']:.4f}"]
        if "validation_loss" in record:
            parts += [f"val loss {record['validation_loss']:.4f}", self.describe_validation()]
        return "  ".join(parts)

    def describe_validation(self) -> str:
        """Write the validation error of the epoch that is just finished, beside the best one."""
        record = self.history[-1]
        return (
            f"val MAE {record['validation_mae']:.4f}  "
            f"accuracy {record['validation_accuracy']:.4f}  "
            f"best {self.best_score:.4f} at {self.best_epoch}"
        )


class Display:
    """The display of training that shows nothing. ``display.LiveDisplay`` shows it."""

    def start_epoch(self, state: TrainingState, steps: int) -> None:
        """Begin an epoch of so many steps, or go on with it."""

    def show_step(self, state: TrainingState, samples: int) -> None:
        """Show a step with so many samples."""

    def show_epoch(self, state: TrainingState) -> None:
        """Show a finished epoch, the last one of the history."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Hooks:
    """Callbacks of the loop, here without effect. A run saves and records, and may be stopped.

    Attributes:
        display: Shows how it goes.
        drawn: The validation samples whose features ``finish_epoch`` wants, in ascending order.
        advice: Ends the sentence that is said when training does not stay finite.
        average: The average of the weights, which belongs to the state, if one is kept.
    """

    display = Display()
    drawn: Int[Tensor, " m"] | None = None
    advice = ""
    average: WeightAverage | None = None

    def restore(self) -> TrainingState | None:
        """Go back to the last checkpoint, if there is one."""
        return None

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint."""

    def save_is_due(self, *, after_epoch: bool = False) -> bool:
        """Tell whether to save within or after an epoch; all processes get the same answer."""
        return False

    def stop_is_wanted(self) -> bool:
        """Tell whether to save and stop; all processes get the same answer."""
        return False

    def finish_epoch(
        self, state: TrainingState, is_best: bool, validated: Predictions | None
    ) -> None:
        """Handle the end of an epoch, the last one of the history."""


class Loop:
    """Train a model until the last epoch, or until patience ends.

    Args:
        model: What is trained.
        train: What to learn from.
        validation: What to choose the epoch by, if there is anything.
        options: Epochs, batches, optimiser and rates.
        processes: One or several.
        hooks: Callbacks: saving, recording, stopping.
    """

    def __init__(
        self,
        model: Network,
        train: Split,
        validation: Split | None,
        options: Options,
        processes: Processes,
        hooks: Hooks,
    ) -> None:
        self._model, self._train, self._validation = model, train, validation
        self._options, self._processes, self._hooks = options, processes, hooks
        self._mean_weight = train.weight.double().mean().item()
        self._batches = EpochBatches(len(train.ranks), options, processes.index, processes.count)
        on_gpu = processes.device.type == "cuda"
        self._fetch = loader(train.samples, self._batches, options.workers, on_gpu)
        self._fetch_validation: Iterable[Batch] = (
            validation.batches(processes, options.batch_size, options.workers) if validation else ()
        )
        self._first_validation: Iterable[Batch] | None = None
        has_fused = processes.device.type in ("cpu", "cuda")
        optimiser = make_optimiser(model.backbone, model.head, options, fused=has_fused)
        of_body = [group["params"] for group in optimiser.param_groups if group["body"]]
        self._body: list[nn.Parameter] = [weight for weights in of_body for weight in weights]
        self._wrapped, self._optimiser = processes.prepare(model, optimiser)
        self._average = WeightAverage(model, options.ema) if options.ema else None
        hooks.average = self._average

    def run(self) -> TrainingState:
        """Train, from the last checkpoint on if there is one."""
        state = self._hooks.restore() or TrainingState()
        if not state.is_finished(self._options):
            # workers are copies of this process: they start while it is small, which is quicker
            self._first_validation = iter(self._fetch_validation)
        with self._hooks.display:
            while not state.is_finished(self._options):
                self._batches.start(state.epoch, state.step)
                self._train_epoch(state, iter(self._fetch))
                self._finish_epoch(state)
                if self._hooks.stop_is_wanted():
                    self._hooks.save(state)
                    raise Interrupted(state.epoch, state.step)
        return state

    def _train_epoch(self, state: TrainingState, batches: Iterator[Batch]) -> None:
        """Make the steps of an epoch that are not done yet."""
        self._wrapped.train()
        self._hooks.display.start_epoch(state, self._batches.steps)
        while state.step < self._batches.steps:
            self._step(state, batches)
            state.step += 1
            self._hooks.display.show_step(state, self._batches.sizes[state.step - 1])
            if state.step == self._batches.steps:
                break  # the end of the epoch is saved with its validation
            stop = self._hooks.stop_is_wanted()
            if stop or self._hooks.save_is_due():
                self._check_weights(state)
                self._hooks.save(state)
            if stop:
                raise Interrupted(state.epoch, state.step)

    def _step(self, state: TrainingState, batches: Iterator[Batch]) -> None:
        """Make one step of the optimiser, over all processes and accumulated parts."""
        processes, options = self._processes, self._options
        if options.generator is None:
            self._seed_step(state)
        passed = self._passed(state)
        set_rates(self._optimiser, options, passed)
        body_waits = passed < options.head_epochs
        if processes.count == 1:  # several processes must agree on what has a gradient
            for parameter in self._body:
                parameter.requires_grad_(not body_waits)
        loss_sum = 0.0
        for part in range(options.accumulation):
            x, index = next(batches)
            ranks, weight = self._train.ranks[index], self._train.weight[index]
            is_last = part == options.accumulation - 1
            with nullcontext() if is_last else processes.no_sync(self._wrapped):
                given = (to_device(each, processes.device) for each in (x, ranks, weight))
                loss = self._wrapped(*given)
                # the head divides by the weight of its part, and processes are averaged
                share = weight.sum().item() / (self._mean_weight * self._batches.sizes[state.step])
                processes.backward(loss * (share * processes.count))
            loss_sum += loss.item() * weight.sum().item()
            state.weight_sum += weight.sum().item()
        self._check_finite(loss_sum, state.epoch, state.step + 1)
        state.loss_sum += loss_sum
        if body_waits:
            for parameter in self._body:
                parameter.grad = None  # the optimiser then leaves it, and what it remembers, alone
        if options.clip:
            processes.clip_gradients(self._model.parameters(), options.clip)
        self._optimiser.step()
        self._optimiser.zero_grad()
        if self._average is not None:
            self._average.update_parameters(self._model)

    def _passed(self, state: TrainingState) -> float:
        """Tell how many epochs are over, as the schedule counts them."""
        if self._options.schedule_unit == "sample":  # an epoch counts as one sample
            return (state.epoch - 1) / len(self._train.ranks)
        return state.epoch - 1 + state.step / self._batches.steps

    def _seed_step(self, state: TrainingState) -> None:
        # torch.manual_seed also formats a stack trace for a GPU that is not in use
        on_cpu = self._processes.device.type == "cpu"
        seed_with = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed_with(mixed_seed(self._options.seed, state.epoch, state.step, self._processes.index))

    def _finish_epoch(self, state: TrainingState) -> None:
        """Validate, remember the best epoch, and save."""
        loss_sum, weight_sum = self._processes.sum([state.loss_sum, state.weight_sum])
        record: EpochRecord = {"epoch": state.epoch, "train_loss": loss_sum / weight_sum}
        self._check_weights(state)  # an infinite one need not show in the loss
        average = self._average
        with nullcontext() if average is None else average.in_place_of(self._model):
            validated, is_best = None, False
            if self._validation is not None:
                validated = self._validate(self._validation)
                record |= self._measured(self._validation, validated)
                self._check_finite(validated.loss, state.epoch, state.step)
                is_best = self._is_best(state, record)
            if is_best:
                state.best_epoch, state.best_loss = state.epoch, record["validation_loss"]
                state.best_score = record[f"validation_{self._options.metric}"]
            state.history.append(record)
            self._hooks.display.show_epoch(state)
            self._hooks.finish_epoch(state, is_best, validated)
        state.epoch, state.step = state.epoch + 1, 0
        state.loss_sum = state.weight_sum = 0.0
        if state.is_finished(self._options) or self._hooks.save_is_due(after_epoch=True):
            self._hooks.save(state)

    def _is_best(self, state: TrainingState, record: EpochRecord) -> bool:
        """Compare an epoch with the best one so far: by the metric, then perhaps by the loss."""
        options = self._options
        score, best = record[f"validation_{options.metric}"], state.best_score
        if best is None:
            return True
        if score == best:
            return options.ties == "loss" and record["validation_loss"] < state.best_loss
        return CRITERIA[options.metric].sign * (score - best) < 0

    def _validate(self, part: Split) -> Predictions:
        first, self._first_validation = self._first_validation, None
        batches = self._fetch_validation if first is None else first
        return predict_split(
            self._model,
            part,
            batches,
            self._processes,
            keep=self._hooks.drawn,
            decode=self._options.decode,
        )

    def _measured(self, part: Split, found: Predictions) -> EpochRecord:
        outcome = part.ranks, found.decisions[decode_name(self._options.decode)]
        kappa = metrics.quadratic_weighted_kappa(*outcome, sample_weight=part.weight)
        return {
            "validation_loss": found.loss,
            "validation_mae": metrics.mean_absolute_error(*outcome, sample_weight=part.weight),
            "validation_accuracy": metrics.accuracy(*outcome, sample_weight=part.weight),
            # where nothing varies it is no number: no better than chance
            "validation_qwk": 0.0 if math.isnan(kappa) else kappa,
        }

    def _check_weights(self, state: TrainingState) -> None:
        finite = all(weight.isfinite().all() for weight in self._model.parameters())
        self._check_finite(0.0 if finite else math.inf, state.epoch, state.step)

    def _check_finite(self, value: float, epoch: int, step: int) -> None:
        """Stop all processes together if what one of them has is not finite."""
        if self._processes.any(not math.isfinite(value)):
            got = math.nan if math.isfinite(value) else value
            raise FloatingPointError(
                f"training must stay finite, got {got} at step {step} of epoch {epoch}: lower "
                f"learning_rate ({self._options.learning_rate}) and head_learning_rate "
                f"({self._options.head_learning_rate}){self._hooks.advice}"
            )


class EpochBatches:
    """Which samples make a step, epoch by epoch, for one process.

    Every step takes ``batch_size`` samples over all processes. Each process takes its share of them
    in ``accumulation`` parts. Batches are nearly equal: a rest of one would stop a BatchNorm.

    Attributes:
        steps: Steps in an epoch.
        sizes: Samples in each step, over all processes.

    Args:
        count: Number of training samples.
        options: Sizes, and what the order follows from.
        process: Which process this is.
        processes: How many there are.
    """

    def __init__(self, count: int, options: Options, process: int = 0, processes: int = 1) -> None:
        self._count = count
        self._seed, self._generator = options.seed, options.generator
        self._parts = processes * options.accumulation
        self._mine = range(process * options.accumulation, (process + 1) * options.accumulation)
        size = options.batch_size
        if size < self._parts:
            raise UserError(
                f"batch_size must be at least processes × accumulation = {self._parts}, got "
                f"{size}: every part of a batch needs a sample"
            )
        if options.drop_last and count < size:
            raise UserError(
                f"drop_last must be false for {count} training samples, got true: with a "
                f"batch_size of {size} none would be left"
            )
        self._used = count // size * size if options.drop_last else count
        self.steps = math.ceil(self._used / size)
        if size > 1:  # an odd number of samples in pairs ends with three together
            self.steps = max(1, min(self.steps, self._used // 2))
        self.sizes = [len(part) for part in torch.arange(self._used).tensor_split(self.steps)]
        if min(self.sizes) < self._parts:
            raise UserError(
                f"a batch must have at least {self._parts} samples, got {min(self.sizes)}: every "
                "process and accumulated part needs one, so give more samples or fewer parts"
            )
        self.epoch, self.first_step = 1, 0

    def start(self, epoch: int, first_step: int = 0) -> None:
        """Choose the epoch, counted from 1, and how many of its steps to leave out."""
        self.epoch, self.first_step = epoch, first_step

    def __len__(self) -> int:
        return (self.steps - self.first_step) * len(self._mine)

    def __iter__(self) -> Iterator[list[Key]]:
        """Give the samples of each part, in the order of the steps."""
        generator = self._generator
        if generator is None:
            generator = torch.Generator().manual_seed(mixed_seed(self._seed, self.epoch))
        order = torch.randperm(self._count, generator=generator)[: self._used]
        for batch in order.tensor_split(self.steps)[self.first_step :]:
            parts = batch.tensor_split(self._parts)
            for mine in self._mine:
                yield [(index, self.epoch) for index in parts[mine].tolist()]
