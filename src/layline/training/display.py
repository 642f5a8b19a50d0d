"""Messages for the user, and the progress of long work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_PROGRESS_LINES = 4  # of a work, in a log


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


def format_time(seconds: float) -> str:
    """Write a time as minutes and seconds, with the hours if there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
