"""The training loop of runs and of the estimator, on one process or several.

Training is a function of its options: the sample order, the augmentation and every random number of
a step follow from the seed, the epoch and the step. A run that was stopped therefore resumes from
its last checkpoint and ends with the same weights.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from layline.data.loaders import Batch, Key, loader, mixed_seed, to_device
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import decode_name
from layline.metrics import CRITERIA
from layline.model.model import Network
from layline.training.optim import Options, WeightAverage, make_optimizer, set_learning_rates
from layline.utils.devices import Processes, widest_float
from layline.utils.validation import UserError

EpochRecord = dict[str, int | float]


class Interrupted(KeyboardInterrupt):
    """Training was stopped from outside, and its state is saved."""


@dataclass
class TrainingState:
    """The progress of training, and one record per finished epoch."""

    epoch: int = 1  # the current one
    step: int = 0  # steps done in it
    loss_sum: float = 0.0  # of these steps, weighted, over all processes
    weight_sum: float = 0.0
    best_epoch: int = 0  # 0 if there is none
    best_score: float | None = None  # its metric
    best_loss: float = math.inf  # its validation loss
    history: list[EpochRecord] = field(default_factory=list)

    def is_finished(self, options: Options) -> bool:
        """Tell whether the last epoch is done, or the patience is used up."""
        waited = self.epoch - 1 - self.best_epoch
        impatient = options.patience is not None and waited >= options.patience
        return self.epoch > options.epochs or (self.best_score is not None and impatient)


class Callback:
    """Called by the trainer at certain moments; here without effect."""

    keep: Int[Tensor, " m"] | None = None  # samples whose features ``on_epoch_end`` needs

    def on_start(self, trainer: "Trainer") -> None:
        """Training begins; a callback may restore the state of the trainer."""

    def on_step(self, trainer: "Trainer") -> None:
        """A step was made."""

    def on_epoch_end(
        self, trainer: "Trainer", validation: Predictions | None, is_best: bool
    ) -> None:
        """An epoch was validated; the network has the averaged weights, if there is an average."""

    def on_end(self, trainer: "Trainer") -> None:
        """Training ended, possibly by an exception."""

    def stop_requested(self) -> bool:
        """Tell whether to save the state and stop; one process is enough."""
        return False

    def checkpoint_due(self, after_epoch: bool) -> bool:
        """Tell whether to save the state now; the main process decides."""
        return False

    def save_checkpoint(self, trainer: "Trainer") -> None:
        """Save the state of the trainer; all processes call it together."""


class Trainer:
    """Train a network until the last epoch, or until the patience is used up.

    The validation samples select the best epoch; without them it is the last one.
    """

    def __init__(
        self,
        network: Network,
        train: Split,
        validation: Split | None,
        options: Options,
        processes: Processes,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.network, self.options, self.processes = network, options, processes
        self.train, self.validation, self.callbacks = train, validation, callbacks
        self.state = TrainingState()
        self.batches = EpochBatches(len(train.ranks), options, processes.index, processes.count)
        self._mean_weight = train.weight.double().mean().item()
        network.head.set_num_data(len(train.ranks))
        device = processes.device.type
        self._loader = loader(train.samples, self.batches, options.workers, device == "cuda")
        if validation is not None:
            size, workers = options.batch_size, options.workers
            self._validation_loader = validation.batches(processes, size, workers)
        fused = device in ("cpu", "cuda")
        optimizer = make_optimizer(network.backbone, network.head, options, fused=fused)
        groups = [group for group in optimizer.param_groups if group["body"]]
        self._body = [weight for group in groups for weight in group["params"]]
        self._parameters = list(network.parameters())
        self._wrapped, self._optimizer = processes.prepare(network, optimizer)
        self.average = WeightAverage(network, options.ema) if options.ema else None

    def fit(self) -> TrainingState:
        """Train, and return the final state."""
        try:
            for callback in self.callbacks:
                callback.on_start(self)
            while not self.state.is_finished(self.options):
                self._train_epoch()
                self._finish_epoch()
        finally:
            for callback in self.callbacks:
                callback.on_end(self)
        return self.state

    def _train_epoch(self) -> None:
        state = self.state
        self.batches.epoch, self.batches.first_step = state.epoch, state.step
        batches = iter(self._loader)
        self._wrapped.train()
        while state.step < self.batches.steps:
            stop, save = self._step(batches)
            for callback in self.callbacks:
                callback.on_step(self)
            if state.step < self.batches.steps and (stop or save):
                self._save(stop)

    def _step(self, batches: Iterator[Batch]) -> tuple[bool, bool]:
        """Make one optimizer step; return whether to stop, and whether to save the state."""
        state, processes, options = self.state, self.processes, self.options
        if options.generator is None:
            # manual_seed also seeds every accelerator, which takes as long as a small step
            is_cpu = processes.device.type == "cpu"
            set_seed = torch.default_generator.manual_seed if is_cpu else torch.manual_seed
            set_seed(mixed_seed(options.seed, state.epoch, state.step, processes.index))
        passed = state.epoch - 1 + state.step / self.batches.steps
        if options.schedule_unit == "sample":  # an epoch counts as one sample
            passed = (state.epoch - 1) / len(self.train.ranks)
        set_learning_rates(self._optimizer, options, passed)
        head_only = passed < options.head_epochs
        # several processes must agree on what has a gradient
        if options.head_epochs and processes.count == 1:
            for parameter in self._body:
                parameter.requires_grad_(not head_only)
        losses, weight_sum = [], 0.0
        for part in range(options.accumulation):
            x, index = next(batches)
            ranks, weight = self.train.ranks[index], self.train.weight[index]
            total = weight.sum().item()
            is_last = part == options.accumulation - 1
            with nullcontext() if is_last else processes.no_sync(self._wrapped):
                loss = self._wrapped(*(to_device(t, processes.device) for t in (x, ranks, weight)))
                # the head divides by the weight of its part, and processes are averaged
                share = total / (self._mean_weight * self.batches.sizes[state.step])
                processes.backward(loss * (share * processes.count))
            losses.append(loss.detach().to(widest_float(loss.device)) * total)
            weight_sum += total
        sums = [torch.stack(losses).sum().item(), weight_sum, *self._flags()]
        loss_sum, weight_sum, stop, save = processes.sum(sums)
        state.step += 1
        self._check_finite(loss_sum)
        state.loss_sum += loss_sum
        state.weight_sum += weight_sum
        if head_only:
            for parameter in self._body:
                parameter.grad = None  # the optimizer then skips it
        if options.clip:
            processes.clip_gradients(self._parameters, options.clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self.average is not None:
            self.average.update()
        return stop > 0, save > 0

    def _flags(self, after_epoch: bool = False) -> tuple[float, float]:
        """Tell whether this process wants to stop, and whether it wants a checkpoint."""
        stop = any(callback.stop_requested() for callback in self.callbacks)
        due = any(callback.checkpoint_due(after_epoch) for callback in self.callbacks)
        return float(stop), float(due and self.processes.is_main)

    def _save(self, stop: bool) -> None:
        self._check_weights()
        for callback in self.callbacks:
            callback.save_checkpoint(self)
        if stop:
            raise Interrupted(f"Stopped in epoch {self.state.epoch} at step {self.state.step}")

    def _finish_epoch(self) -> None:
        """Validate, remember the best epoch, and save."""
        state = self.state
        loss = state.loss_sum / state.weight_sum
        record: EpochRecord = {"epoch": state.epoch, "train_loss": loss}
        self._check_weights()  # an infinite one need not show in the loss
        with nullcontext() if self.average is None else self.average.applied():
            predictions, is_best = None, state.epoch == self.options.epochs
            if self.validation is not None:
                predictions = self._validate(self.validation, record)
                if is_best := self._is_best(record):
                    state.best_loss = record["validation_loss"]
                    state.best_score = record[f"validation_{self.options.metric}"]
            if is_best:
                state.best_epoch = state.epoch
            state.history.append(record)
            for callback in self.callbacks:
                callback.on_epoch_end(self, predictions, is_best)
        state.epoch, state.step = state.epoch + 1, 0
        state.loss_sum = state.weight_sum = 0.0
        stop, save = self.processes.sum([*self._flags(after_epoch=True)])
        if state.is_finished(self.options) or save or stop:
            self._save(stop > 0)

    def _validate(self, split: Split, record: EpochRecord) -> Predictions:
        """Predict the validation split, and record its loss and metrics."""
        keep = next((each.keep for each in self.callbacks if each.keep is not None), None)
        batches, decode = self._validation_loader, self.options.decode
        try:
            predictions = predict_split(
                self.network, split, batches, self.processes, keep=keep, decode=decode
            )
        except FloatingPointError:  # a network may overflow only here
            self._check_finite(math.inf)
            raise
        self._check_finite(predictions.loss)
        record["validation_loss"] = predictions.loss
        predicted = predictions.decisions[decode_name(decode)]
        for name, metric in CRITERIA.items():
            value = metric.function(split.ranks, predicted, sample_weight=split.weight)
            # the kappa is undefined where nothing varies: no better than chance
            record[f"validation_{name}"] = 0.0 if math.isnan(value) else value
        return predictions

    def _is_best(self, record: EpochRecord) -> bool:
        options, state = self.options, self.state
        score, best = record[f"validation_{options.metric}"], state.best_score
        if best is None:
            return True
        if score == best:
            return options.ties == "loss" and record["validation_loss"] < state.best_loss
        return (score > best) == CRITERIA[options.metric].higher_is_better

    def _check_weights(self) -> None:
        finite = all(weight.isfinite().all() for weight in self._parameters)
        self._check_finite(0.0 if finite else math.inf)

    def _check_finite(self, value: float) -> None:
        """Stop if the loss or a weight is not finite; all processes have the same value."""
        if not math.isfinite(value):
            raise FloatingPointError(
                f"Training diverged: the loss or a weight is not finite at step {self.state.step} "
                f"of epoch {self.state.epoch}. Lower the learning rates, or standardize the inputs."
            )


def describe_epoch(trainer: Trainer) -> str:
    """Describe the results of the epoch that just ended in one line."""
    state, epochs = trainer.state, trainer.options.epochs
    record = state.history[-1]
    line = f"epoch {state.epoch:{len(str(epochs))}}/{epochs}  loss {record['train_loss']:.4f}"
    if "validation_loss" not in record:
        return line
    return (
        f"{line}  val loss {record['validation_loss']:.4f}  val MAE {record['validation_mae']:.4f}"
        f"  accuracy {record['validation_accuracy']:.4f}  best "
        f"{CRITERIA[trainer.options.metric].label} {state.best_score:.4f} "
        f"at epoch {state.best_epoch}"
    )


class EpochBatches:
    """Which samples make a step, epoch by epoch, for one process.

    Every step takes ``batch_size`` samples over all processes. Each process takes its share of them
    in ``accumulation`` parts. Batches have nearly equal sizes, because BatchNorm fails on a single
    sample.
    """

    def __init__(self, count: int, options: Options, process: int = 0, processes: int = 1) -> None:
        self._count, self._seed, self._generator = count, options.seed, options.generator
        self._parts = processes * options.accumulation
        self._mine = range(process * options.accumulation, (process + 1) * options.accumulation)
        size = options.batch_size
        if options.drop_last and count < size:
            raise UserError(
                f"drop_last must be false for {count} training samples and a batch_size of {size}: "
                "no sample would be left."
            )
        self._used = count // size * size if options.drop_last else count
        self.steps = math.ceil(self._used / size)
        if size > 1:  # an odd number of samples in pairs ends with three together
            self.steps = max(1, min(self.steps, self._used // 2))
        # samples in each step, over all processes
        self.sizes = [len(part) for part in torch.arange(self._used).tensor_split(self.steps)]
        if min(self.sizes) < self._parts:
            raise UserError(
                f"Each of the {self._parts} processes and accumulated parts needs a sample, but a "
                f"batch has only {min(self.sizes)}. Use larger batches, or fewer processes."
            )
        self.epoch, self.first_step = 1, 0  # the trainer sets them; earlier steps are skipped

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
