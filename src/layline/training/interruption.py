"""Signals that stop a run: finish the step, save, and say how to go on.

They are SIGINT (Ctrl-C), SIGTERM, which schedulers send before they kill, and SIGUSR1, which some
of them can be told to send earlier.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Self

from layline.utils.devices import Processes

_Handler = Callable[[int, FrameType | None], object] | int | None
# Those that ask politely; Windows has no SIGUSR1.
POLITE = (signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))
# Stops runs that get no signals: those in a thread of a worker that is one of many.
_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class Interrupted(KeyboardInterrupt):
    """A run was stopped from outside, and its state is saved.

    Args:
        epoch: The epoch to go on with.
        step: Steps that are done in it.

    Attributes:
        signal: The signal that stopped it, if it was one.
    """

    signal: int | None = None

    def __init__(self, epoch: int, step: int) -> None:
        super().__init__(
            f"stopped in epoch {epoch} after {step} step{'s' if step > 1 else ''}"
            if step
            else f"stopped after epoch {epoch - 1}"
        )


class Interruption:
    """Notice what stops a run while it is training; a second SIGINT stops at once."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._stop = _STOP.get()
        self._before: dict[int, _Handler] = {}

    def requested(self, processes: Processes) -> bool:
        """Tell whether to stop; all processes get the same answer."""
        told = self._stop is not None and self._stop.is_set()
        return processes.any(told or self._signal is not None)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or number

    def __enter__(self) -> Self:
        # elsewhere than in the main thread signals are somebody else's
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *POLITE):
                if signal.getsignal(number) != signal.SIG_IGN:  # as a shell does in the background
                    self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, Interrupted):
            error.signal = self._signal


@contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """Stop runs of this thread, as a signal would, when an event is set."""
    before = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(before)


@contextmanager
def polite_signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 raise ``KeyboardInterrupt``, as SIGINT does; once, as they repeat."""
    seen = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise KeyboardInterrupt

    before: dict[int, _Handler] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, interrupt) for number in POLITE}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
