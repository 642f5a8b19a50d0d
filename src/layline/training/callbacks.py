"""Callbacks of the trainer: display, signals, checkpoints, best model, snapshots, tracking."""

import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
from accelerate import Accelerator
from natsort import natsorted
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError

from layline.evaluation.predictions import Predictions
from layline.geometry.decoding import decode_name
from layline.model.model import OrdinalModel
from layline.model.model_file import Tensors, copy_tensors, read_model_file, save_model
from layline.training.config import ReportConfig
from layline.training.distributed import SeveralProcesses
from layline.training.optim import WeightAverage
from layline.training.report_data import choose_samples, take_snapshot
from layline.training.run_folder import RunFolder
from layline.training.trainer import Callback, Trainer, TrainingState, describe_epoch
from layline.utils.files import publish_folder, write_error
from layline.utils.validation import UserError

Log = Callable[[str], None]
# Sent by schedulers before they kill a job; Windows has no SIGUSR1.
SHUTDOWN_SIGNALS = (signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))
_PROGRESS = "progress.bin"  # in a checkpoint
_AFTER_EPOCH = 5.0  # seconds: an epoch of a small table takes less time than its checkpoint
_BETWEEN_WRITES = 1.0  # seconds
_PROGRESS_LINES = 4  # of long work, in a log


class Signals(Callback):
    """Stop after the current step on SIGINT (Ctrl-C), SIGTERM or SIGUSR1; again SIGINT aborts."""

    def __init__(self, event: threading.Event | None = None) -> None:
        self._event, self._received = event, False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def on_start(self, trainer: Trainer) -> None:
        """Install the handlers. Only the main thread of a program can handle signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *SHUTDOWN_SIGNALS):
                if signal.getsignal(number) != signal.SIG_IGN:  # ignored in background jobs
                    self._before[number] = signal.signal(number, self._receive)

    def stop_requested(self) -> bool:
        """Tell whether a signal arrived, or the event is set."""
        return self._received or (self._event is not None and self._event.is_set())

    def on_end(self, trainer: Trainer) -> None:
        """Restore the handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = True


class Checkpoints(Callback):
    """Restore the last checkpoint at the start, and save the state every few minutes.

    ``state/`` contains the last two checkpoints, each in a folder named by its epoch and step. A
    new one is written under another name and renamed when it is complete. A run resumes from the
    newest checkpoint that can be read. All processes call the methods together. The state at the
    end is saved only if ``keep_last`` is set, to train for more epochs later.
    """

    def __init__(
        self,
        folder: RunFolder,
        processes: SeveralProcesses,
        log: Log,
        minutes: float,
        keep_last: bool = True,
    ) -> None:
        self._run, self._folder, self._processes = folder, folder.state, processes
        self._log, self._wait, self._keep_last = log, 60 * minutes, keep_last
        self._last: Path | None = None  # the one that was written or read last
        self._saved = time.monotonic()

    def on_start(self, trainer: Trainer) -> None:
        """Restore the newest checkpoint that is intact, if there is one."""
        if (state := self.restore(trainer.average)) is not None:
            if state.best_epoch > 0:
                read_model_file(self._run.best)  # raises an error if it is damaged
            trainer.state = state
            if trainer.processes.is_main:
                self._run.write_history(state.history)

    def checkpoint_due(self, after_epoch: bool) -> bool:
        """Tell whether enough time has passed."""
        wait = min(self._wait, _AFTER_EPOCH) if after_epoch else self._wait
        return time.monotonic() - self._saved >= wait

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Write a checkpoint, and keep the one before it."""
        if not self._keep_last and trainer.state.is_finished(trainer.options):
            return
        state, average, accelerator = trainer.state, trainer.average, self._processes.accelerator
        place = self._folder / f"epoch-{state.epoch:05}-step-{state.step:07}"
        part = self._folder / ".saving"
        if accelerator.is_main_process:
            shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while saving
            part.mkdir(parents=True)
        accelerator.wait_for_everyone()
        try:
            accelerator.save_state(str(part))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                tensors = {} if average is None else average.state_dict()
                torch.save({"state": asdict(state), "average": tensors}, part / _PROGRESS)
                if place.exists():  # it was damaged, since training had to come here again
                    shutil.rmtree(place)
                publish_folder(part, place)
                for old in self._list():
                    if old not in (place, self._last):
                        shutil.rmtree(old)
        except (OSError, SafetensorError, RuntimeError) as error:
            shutil.rmtree(part, ignore_errors=True)
            if not isinstance(error, OSError):  # what torch and safetensors raise on a full disk
                why = str(error).partition("\n")[0]
                error = OSError(f"could not be written, the disk may be full ({why})")
            raise write_error(error, place) from error
        self._last, self._saved = place, time.monotonic()
        accelerator.wait_for_everyone()

    def restore(self, average: WeightAverage | None = None) -> TrainingState | None:
        """Load the newest checkpoint that can be read; None if there is no checkpoint at all."""
        damaged: list[str] = []
        for place in reversed(self._list()):
            try:
                saved = torch.load(place / _PROGRESS, map_location="cpu", weights_only=True)
                state, problem = TrainingState(**saved["state"]), ""
                self._processes.accelerator.load_state(str(place))
                if average is not None:
                    average.load_state_dict(saved["average"])
            except Exception as error:  # the content of a damaged file can be anything
                problem = str(error).partition("\n")[0] or type(error).__name__
            if not self._processes.any(bool(problem)):
                if damaged:
                    self._log(f"{'; '.join(damaged)}. Resuming from the one before, {place}.")
                self._last = place
                return state
            damaged.append(f"{place} is damaged ({problem or 'in another process'})")
        if not damaged:
            return None
        raise UserError(
            f"No checkpoint in {self._folder} can be read: {'; '.join(damaged)}. Remove this "
            "folder to train from the beginning."
        )

    def _list(self) -> list[Path]:
        """List the checkpoints, the oldest first."""
        return natsorted(self._folder.glob("epoch-*-step-*"), key=lambda place: place.name)


class Recording(Callback):
    """Write the best model, layout snapshots and the history after epochs, and track it.

    If epochs are short, the best model and the history are written once per second and before each
    checkpoint. Until then the best model is in memory.
    """

    def __init__(
        self, model: OrdinalModel, folder: RunFolder, tracker: Accelerator, report: ReportConfig
    ) -> None:
        self._model, self._folder, self._tracker, self._report = model, folder, tracker, report
        self._best: Tensors | None = None  # of the best model, if it is not on disk yet
        self._written = -math.inf  # when the last files were written

    def on_start(self, trainer: Trainer) -> None:
        """Choose the validation samples that the layouts show."""
        if self._report.enabled and trainer.validation is not None:
            count, seed = len(trainer.validation.ranks), trainer.options.seed
            self.keep = choose_samples(count, self._report.points, seed)

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Write the files of the epoch."""
        if not trainer.processes.is_main:
            return
        self._tracker.log(trainer.state.history[-1], step=trainer.state.epoch)
        if is_best:
            self._best = copy_tensors(self._model)
        if validation is not None and trainer.validation is not None and self.keep is not None:
            predicted = validation.decisions[decode_name(trainer.options.decode)]
            features, ranks = validation.features, trainer.validation.ranks
            layout = take_snapshot(features, self.keep, ranks, predicted, self._model.head)
            layout.save(self._folder.layout(trainer.state.epoch))
        if time.monotonic() - self._written >= _BETWEEN_WRITES:
            self._write(trainer)

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Write what the checkpoint refers to."""
        if trainer.processes.is_main:
            self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        if self._best is not None:
            save_model(self._model, self._folder.best, self._best)
            self._best = None
        self._folder.write_history(trainer.state.history)
        self._written = time.monotonic()


class Reporter:
    """Print messages and the progress of long work, on one of several processes only."""

    def __init__(self, console: Console, shown: bool = True) -> None:
        self._console, self._shown = console, shown

    def __call__(self, text: str) -> None:
        """Print a line."""
        if self._shown:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show the progress of some work: a bar on a terminal, a few lines in a log."""
        lines, shown = 0, self._shown and self._console.is_terminal
        columns = TextColumn(what), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=self._console, transient=True, disable=not shown) as bar:
            task = bar.add_task(what, total=total)

            def count(done: int) -> None:
                nonlocal lines
                bar.update(task, completed=done)
                if not shown and (due := _PROGRESS_LINES * done // max(total, 1)) > lines:
                    lines = due
                    self(f"{what}: {done} of {total}")

            yield count


class ProgressDisplay(Callback):
    """Print a line per epoch; a terminal also shows a bar with the loss and the time left."""

    def __init__(self, console: Console, shown: bool = True) -> None:
        self._log = Reporter(console, shown)
        columns = TextColumn("{task.description}"), BarColumn(20), TimeRemainingColumn()
        hidden = not (shown and console.is_terminal)
        self._bar = Progress(*columns, console=console, transient=True, disable=hidden)
        self._bar.add_task("")

    def on_start(self, trainer: Trainer) -> None:
        """Start the bar."""
        self._bar.start()

    def on_end(self, trainer: Trainer) -> None:
        """Stop the bar."""
        self._bar.stop()

    def on_step(self, trainer: Trainer) -> None:
        """Move the bar."""
        state, steps, epochs = trainer.state, trainer.batches.steps, trainer.options.epochs
        done, loss = (state.epoch - 1) * steps + state.step, state.loss_sum / state.weight_sum
        text = f"epoch {state.epoch}/{epochs}  loss {loss:.4f}"
        task = self._bar.tasks[0].id
        self._bar.update(task, total=epochs * steps, completed=done, description=text)

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Print the results of the epoch, or of every tenth of many short ones."""
        epoch, epochs = trainer.state.epoch, trainer.options.epochs
        if validation is None and epoch % max(1, epochs // 10) and epoch < epochs:
            return
        (task,) = self._bar.tasks
        speed = (task.speed or 0) * trainer.options.batch_size
        left = timedelta(seconds=round(task.time_remaining or 0))
        self._log(f"{describe_epoch(trainer)}  {speed:.0f} samples/s  {left} left")


def amount(count: int, noun: str) -> str:
    """Write a number with its noun, as in ``1 run`` and ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
