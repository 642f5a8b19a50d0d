"""How a run looks while it goes: one live line with a bar, or a plain line per epoch."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Live

from layline.training.checkpoint import Progress
from layline.training.progress import clock
from layline.training.reporter import Reporter

_LIVE = "epoch {task.fields[epoch]}", "{task.fields[now]}", "{task.fields[last]}"

_WIDE = 110  # columns for all of it; where there are fewer, time left must not be what is cut


class Display:
    """Show the epoch, the speed, the losses, the validation error and the time left.

    Args:
        epochs: How many epochs are planned.
        console: Where to show it; a terminal gets the live line.
        shown: Only one of several processes shows anything.
    """

    def __init__(self, epochs: int, console: Console, shown: bool = True) -> None:
        self._epochs, self._console, self._say = epochs, console, Reporter(console, shown)
        texts = [TextColumn(text) for text in _LIVE]
        self._live = Live(texts[0], BarColumn(20), *texts[1:], console=console, transient=True)
        self._line = self._live.add_task("", epoch="", now="", last="")
        self._is_live = shown and console.is_terminal
        self._last = ""
        self._steps, self._steps_here, self._images, self._start = 1, 0, 0, time.monotonic()
        self._begin = self._start

    def start_epoch(self, progress: Progress, steps: int) -> None:
        """Begin an epoch, or go on with it.

        Args:
            progress: How far the run is.
            steps: Steps of an epoch.
        """
        self._steps, self._images, self._start = steps, 0, time.monotonic()
        self._live.reset(
            self._line,
            total=steps,
            completed=progress.step,
            epoch=self._number(progress.epoch),
            now="",
            last=self._last,
        )

    def show_step(self, progress: Progress, images: int) -> None:
        """Show a step.

        Args:
            progress: How far the run is.
            images: Samples of the step.
        """
        self._images += images
        self._steps_here += 1
        now = (
            f"{self._speed():.0f} images/s  loss {progress.loss_sum / progress.weight_sum:.4f}  "
            f"{clock(self._left(progress))} left"
        )
        self._live.update(self._line, completed=progress.step, now=now, last=self._last)

    def show_epoch(self, progress: Progress) -> None:
        """Show a finished epoch, the last one of the history."""
        record = progress.history[-1]
        result = (
            f"val MAE {record['validation_mae']:.4f}  "
            f"accuracy {record['validation_accuracy']:.4f}  "
            f"best {progress.best_mae:.4f} at {progress.best_epoch}"
        )
        short = f"MAE {record['validation_mae']:.3f}  acc {record['validation_accuracy']:.3f}"
        self._last = f"[dim]{result if self._console.width >= _WIDE else short}[/dim]"
        if not self._is_live:
            self._say(
                f"epoch {self._number(progress.epoch)}  loss {record['train_loss']:.4f}  "
                f"val loss {record['validation_loss']:.4f}  {result}  "
                f"{self._speed():.0f} images/s  {clock(self._left(progress))} left"
            )

    def _number(self, epoch: int) -> str:
        return f"{epoch:{len(str(self._epochs))}}/{self._epochs}"

    def _speed(self) -> float:
        return self._images / max(time.monotonic() - self._start, 1e-9)

    def _left(self, progress: Progress) -> float:
        """Estimate the seconds that are left, from the steps made since the start."""
        steps = (self._epochs - progress.epoch + 1) * self._steps - progress.step
        spent = time.monotonic() - self._begin
        return spent / max(self._steps_here, 1) * steps

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()
