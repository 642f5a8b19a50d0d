"""Callbacks of the trainer: display, signals, checkpoints, best model, snapshots, tracking."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from accelerate import Accelerator
from jaxtyping import Int
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from layline.evaluation.predictions import Predictions
from layline.geometry.decoding import decode_name
from layline.model.model import OrdinalModel
from layline.model.model_file import read_model_file
from layline.training.checkpoint import Checkpoints
from layline.training.display import Reporter, format_time
from layline.training.record import describe_collapse, take_snapshot
from layline.training.run_folder import RunFolder
from layline.training.trainer import Callback, Trainer, describe_epoch, describe_validation

_Handler = Callable[[int, FrameType | None], object] | int | None
# Sent by schedulers before they kill a job; Windows has no SIGUSR1.
SHUTDOWN_SIGNALS = (signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))
# Stops runs in threads, which get no signals.
_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)
_AFTER_EPOCH = 5.0  # seconds: an epoch of a small table takes less time than its checkpoint
_LIVE = "epoch {task.fields[epoch]}", "{task.fields[now]}", "{task.fields[last]}"
_WIDE = 110  # columns that the whole line needs; on narrower terminals it is shortened


class Signals(Callback):
    """Stop after the current step on SIGINT (Ctrl-C), SIGTERM or SIGUSR1; again SIGINT aborts."""

    def __init__(self) -> None:
        self._event = _STOP.get()
        self._before: dict[int, _Handler] = {}

    def on_start(self, trainer: Trainer) -> None:
        """Install the handlers. Only the main thread of a program can handle signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *SHUTDOWN_SIGNALS):
                if signal.getsignal(number) != signal.SIG_IGN:  # ignored in background jobs
                    self._before[number] = signal.signal(number, self._receive)

    def stop_requested(self) -> bool:
        """Tell whether a signal or the event of :func:`stopped_by` arrived."""
        return self.signal is not None or (self._event is not None and self._event.is_set())

    def on_end(self, trainer: Trainer) -> None:
        """Restore the handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or number


@contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """Stop runs of this thread, as a signal would, when an event is set."""
    before = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(before)


@contextmanager
def interrupt_on_shutdown() -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 raise ``KeyboardInterrupt``, as SIGINT does, but only once."""
    seen = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise KeyboardInterrupt

    before: dict[int, _Handler] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, interrupt) for number in SHUTDOWN_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Checkpointing(Callback):
    """Restore the last checkpoint at the start, and save the state regularly.

    Args:
        checkpoints: Where they are.
        folder: Of the run.
        minutes: Time between checkpoints within an epoch.
    """

    def __init__(self, checkpoints: Checkpoints, folder: RunFolder, minutes: float) -> None:
        self._checkpoints, self._folder, self._wait = checkpoints, folder, 60 * minutes
        self._saved = time.monotonic()

    def on_start(self, trainer: Trainer) -> None:
        """Restore the newest checkpoint that is intact, if there is one."""
        state = self._checkpoints.restore(trainer.average)
        if state is None:
            return
        if state.best_epoch > 0:
            read_model_file(self._folder.best)  # raises an error if it is damaged
        trainer.state = state
        if trainer.processes.is_main:
            self._folder.write_history(state.history)

    def checkpoint_due(self, after_epoch: bool) -> bool:
        """Tell whether enough time has passed."""
        wait = min(self._wait, _AFTER_EPOCH) if after_epoch else self._wait
        return time.monotonic() - self._saved >= wait

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Write a checkpoint."""
        self._checkpoints.save(trainer.state, trainer.average)
        self._saved = time.monotonic()


class Recording(Callback):
    """Write the best model, a layout snapshot and the history after each epoch.

    Args:
        model: The model that is trained, in whole or in part.
        folder: Of the run.
        log: Shows warnings.
        keep: The validation samples to draw; None draws no layouts.
    """

    def __init__(
        self,
        model: OrdinalModel,
        folder: RunFolder,
        log: Callable[[str], None],
        keep: Int[Tensor, " m"] | None,
    ) -> None:
        self._model, self._folder, self._log, self.keep = model, folder, log, keep
        self._warned = False

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Write the files of the epoch."""
        if not trainer.processes.is_main or validation is None or trainer.validation is None:
            return
        if not self._warned and (warning := describe_collapse(self._model.head)):
            self._log(warning)
            self._warned = True
        if is_best:
            self._model.save(self._folder.best)
        if self.keep is not None:
            predicted = validation.decisions[decode_name(trainer.options.decode)][self.keep]
            ranks = trainer.validation.ranks[self.keep]
            layout = take_snapshot(validation.features, ranks, predicted, self._model.head)
            layout.save(self._folder.layout(trainer.state.epoch))
        self._folder.write_history(trainer.state.history)


class Tracking(Callback):
    """Send the record of each epoch to the experiment trackers of an accelerator."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Send the newest record."""
        self._accelerator.log(trainer.state.history[-1], step=trainer.state.epoch)


class ProgressDisplay(Callback):
    """Show the epoch, the speed, the losses, the validation error and the time left.

    A terminal shows one live line with a bar; a log gets a plain line per epoch.

    Args:
        epochs: Number of planned epochs.
        console: Where to show it.
        shown: Whether this process shows anything.
    """

    def __init__(self, epochs: int, console: Console, shown: bool = True) -> None:
        self._epochs, self._console, self._log = epochs, console, Reporter(console, shown)
        texts = [TextColumn(text) for text in _LIVE]
        self._live = Progress(texts[0], BarColumn(20), *texts[1:], console=console, transient=True)
        self._line = self._live.add_task("", epoch="", now="", last="")
        self._is_live = shown and console.is_terminal
        self._last = ""
        self._steps_made, self._samples = 0, 0
        self._begin = self._epoch_begin = time.monotonic()

    def on_start(self, trainer: Trainer) -> None:
        """Start the live line."""
        self._begin = time.monotonic()
        if self._is_live:
            self._live.start()

    def on_end(self, trainer: Trainer) -> None:
        """Stop the live line."""
        if self._is_live:
            self._live.stop()

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Reset the bar."""
        self._samples, self._epoch_begin = 0, time.monotonic()
        state, steps = trainer.state, trainer.batches.steps
        self._live.reset(
            self._line,
            total=steps,
            completed=state.step,
            epoch=f"{state.epoch:{len(str(self._epochs))}}/{self._epochs}",
            now="",
            last=self._last,
        )

    def on_step(self, trainer: Trainer) -> None:
        """Move the bar."""
        state = trainer.state
        self._samples += trainer.batches.sizes[state.step - 1]
        self._steps_made += 1
        if self._is_live:
            now = (
                f"{self._speed()}  loss {state.loss_sum / state.weight_sum:.4f}  "
                f"{self._time_left(trainer)} left"
            )
            self._live.update(self._line, completed=state.step, now=now, last=self._last)

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Show the results of the epoch."""
        record = trainer.state.history[-1]
        if "validation_mae" in record:
            short = f"MAE {record['validation_mae']:.3f}  acc {record['validation_accuracy']:.3f}"
            wide = self._console.width >= _WIDE
            self._last = f"[dim]{describe_validation(trainer) if wide else short}[/dim]"
        if not self._is_live:
            self._log(
                f"{describe_epoch(trainer)}  {self._speed()}  {self._time_left(trainer)} left"
            )

    def _speed(self) -> str:
        per_second = self._samples / max(time.monotonic() - self._epoch_begin, 1e-9)
        return f"{per_second:.0f} samples/s"

    def _time_left(self, trainer: Trainer) -> str:
        """Estimate the time left from the steps made since the start."""
        state = trainer.state
        steps = (self._epochs - state.epoch + 1) * trainer.batches.steps - state.step
        return format_time((time.monotonic() - self._begin) / max(self._steps_made, 1) * steps)
