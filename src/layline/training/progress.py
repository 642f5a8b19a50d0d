"""A quiet display of training: one line that is rewritten, or one plain line per epoch."""

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Self, TextIO

from layline.training.selection import BestEpoch

_BAR = 10


class Progress:
    """Show how training goes, on stderr.

    On a terminal one line is rewritten after each epoch. Elsewhere, in a log file or a notebook,
    each epoch is a line of its own.

    Args:
        epochs: How many epochs are planned.
        verbose: Nothing is shown at zero.
        stream: Where to write, if not on stderr.
    """

    def __init__(self, epochs: int, verbose: int = 1, stream: TextIO | None = None) -> None:
        self._epochs = epochs
        self._stream = (sys.stderr if stream is None else stream) if verbose else None
        self._rewrites = self._stream is not None and self._stream.isatty()
        self._start = time.monotonic()
        self._width = 0

    def show(self, record: Mapping[str, float], best: BestEpoch) -> None:
        """Show one epoch.

        Args:
            record: The epoch's entry of the history.
            best: The best epoch so far.
        """
        if self._stream is None:
            return
        epoch = int(record["epoch"])
        parts = [
            f"epoch {epoch:{len(str(self._epochs))}}/{self._epochs}",
            f"loss {record['train_loss']:.4f}",
        ]
        if "validation_mae" in record:
            parts.append(f"val MAE {record['validation_mae']:.4f}")
            parts.append(f"best {best.mae:.4f} at {best.epoch}")
        if not self._rewrites:
            self._write("  ".join(parts) + "\n")
            return
        full = _BAR * epoch // self._epochs
        left = (time.monotonic() - self._start) / epoch * (self._epochs - epoch)
        line = "  ".join([f"[{'=' * full}{' ' * (_BAR - full)}]", *parts, f"{clock(left)} left"])
        # a line longer than the window would wrap, and \r only goes back to the last row of it
        line = line[: shutil.get_terminal_size().columns - 1]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("\n")


def clock(seconds: float) -> str:
    """Write a time as minutes and seconds, with the hours if there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
