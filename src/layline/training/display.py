"""Messages for the user, and the progress of long work and of training."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from layline.training.loop import Display, TrainingState

_PROGRESS_LINES = 4  # of a work, in a log
_LIVE = "epoch {task.fields[epoch]}", "{task.fields[now]}", "{task.fields[last]}"
_WIDE = 110  # columns for all of it; where there are fewer, time left must not be what is cut


def amount(count: int, noun: str) -> str:
    """Write a number with its noun, as in ``1 run`` and ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Reporter:
    """Tell a user things, on one of several processes only.

    Args:
        console: Where to.
        shown: Whether this process is the one.
    """

    def __init__(self, console: Console, shown: bool = True) -> None:
        self._console, self._shown = console, shown

    def __call__(self, text: str) -> None:
        """Say something, in a line of its own."""
        if self._shown:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show the progress of some work: a bar on a terminal, a few lines in a log.

        Args:
            what: What is done to each of them.
            total: How many there are.

        Yields:
            A function that is told how many are done.
        """
        if not self._shown:
            yield lambda done: None
        elif self._console.is_terminal:
            columns = TextColumn(what), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()
            with Progress(*columns, console=self._console, transient=True) as bar:
                task = bar.add_task(what, total=total)
                yield lambda done: bar.update(task, completed=done)
        else:
            lines = 0

            def count(done: int) -> None:
                nonlocal lines
                due = _PROGRESS_LINES * done // max(total, 1)
                if due > lines:
                    lines = due
                    self(f"{what}: {done} of {total}")

            yield count


class LiveDisplay(Display):
    """Show the epoch, the speed, the losses, the validation error and the time left.

    A terminal gets one live line with a bar, a log a plain line per epoch.

    Args:
        epochs: How many epochs are planned.
        console: Where to show it.
        shown: Only one of several processes shows anything.
    """

    def __init__(self, epochs: int, console: Console, shown: bool = True) -> None:
        self._epochs, self._console, self._say = epochs, console, Reporter(console, shown)
        texts = [TextColumn(text) for text in _LIVE]
        self._live = Progress(texts[0], BarColumn(20), *texts[1:], console=console, transient=True)
        self._line = self._live.add_task("", epoch="", now="", last="")
        self._is_live = shown and console.is_terminal
        self._last = ""
        self._steps, self._steps_made, self._samples = 1, 0, 0
        self._begin = self._epoch_begin = time.monotonic()

    def start_epoch(self, state: TrainingState, steps: int) -> None:
        """Begin an epoch of so many steps, or go on with it."""
        self._steps, self._samples, self._epoch_begin = steps, 0, time.monotonic()
        self._live.reset(
            self._line,
            total=steps,
            completed=state.step,
            epoch=state.epoch_of(self._epochs),
            now="",
            last=self._last,
        )

    def show_step(self, state: TrainingState, samples: int) -> None:
        """Show a step with so many samples."""
        self._samples += samples
        self._steps_made += 1
        now = (
            f"{self._speed()}  loss {state.loss_sum / state.weight_sum:.4f}  "
            f"{self._time_left(state)} left"
        )
        self._live.update(self._line, completed=state.step, now=now, last=self._last)

    def show_epoch(self, state: TrainingState) -> None:
        """Show a finished epoch, the last one of the history."""
        record = state.history[-1]
        if "validation_mae" in record:
            short = f"MAE {record['validation_mae']:.3f}  acc {record['validation_accuracy']:.3f}"
            result = state.describe_validation() if self._console.width >= _WIDE else short
            self._last = f"[dim]{result}[/dim]"
        if not self._is_live:
            self._say(
                f"{state.describe(self._epochs)}  {self._speed()}  {self._time_left(state)} left"
            )

    def _speed(self) -> str:
        per_second = self._samples / max(time.monotonic() - self._epoch_begin, 1e-9)
        return f"{per_second:.0f} samples/s"

    def _time_left(self, state: TrainingState) -> str:
        """Estimate the time that is left, from the steps made since the start."""
        steps = (self._epochs - state.epoch + 1) * self._steps - state.step
        return format_time((time.monotonic() - self._begin) / max(self._steps_made, 1) * steps)

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()


def format_time(seconds: float) -> str:
    """Write a time as minutes and seconds, with the hours if there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
