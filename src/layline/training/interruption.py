"""SIGINT (Ctrl-C) and SIGTERM: finish the step, save, and say how to go on."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

from layline.devices import Processes


class Interrupted(KeyboardInterrupt):
    """A run was stopped from outside, and its state is saved.

    Args:
        epoch: The epoch to go on with.
        step: Steps that are done in it.
    """

    def __init__(self, epoch: int, step: int) -> None:
        super().__init__(
            f"stopped in epoch {epoch} after {step} step{'s' if step > 1 else ''}"
            if step
            else f"stopped after epoch {epoch - 1}"
        )


class Interruption:
    """Notice SIGINT and SIGTERM while training; a second SIGINT stops at once."""

    def __init__(self) -> None:
        self._seen = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def requested(self, processes: Processes) -> bool:
        """Tell whether to stop; all processes get the same answer."""
        return processes.any(self._seen)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self._seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._seen = True

    def __enter__(self) -> Self:
        # elsewhere than in the main thread signals are somebody else's
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
