"""What a user is told beside the progress of training: notes, and how far a long wait is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_PLAIN_STEPS = 4  # lines in a log for one wait


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
    def counted(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show how far something is: a bar on a terminal, a few lines in a log.

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
            said = [0]

            def count(done: int) -> None:
                part = _PLAIN_STEPS * done // max(total, 1)
                if part > said[0]:
                    said[0] = part
                    self(f"{what}: {done} of {total}")

            yield count
