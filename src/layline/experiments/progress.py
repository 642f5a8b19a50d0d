"""How a grid looks while it goes: one live line with a bar, or a plain line per cell."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from layline.amounts import amount
from layline.experiments.cells import Cell, Outcome
from layline.training.progress import clock
from layline.training.reporter import Reporter


class GridProgress:
    """Show how many cells are done, the last one, and the time left.

    Args:
        console: Where to; a terminal gets the live line.
    """

    def __init__(self, console: Console) -> None:
        self._say, self._is_live = Reporter(console), console.is_terminal
        columns = BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}")
        self._live = Progress(*columns, console=console, transient=True)
        self._line = self._live.add_task("")
        self._total = self._done = self._failed = 0
        self._seconds: list[float] = []

    def start(self, total: int, done: int) -> None:
        """Say what there is to do.

        Args:
            total: Cells of the grid.
            done: Those that are finished already.
        """
        self._total, self._done = total, done
        before = f", {done} of them finished before" if done else ""
        if total == done == 1:
            before = ", finished before"
        self._say(amount(total, "run") + before)
        self._live.update(self._line, total=total, completed=done)

    def show(self, cell: Cell, outcome: Outcome, jobs: int) -> None:
        """Show a cell that has ended.

        Args:
            cell: Which.
            outcome: How.
            jobs: How many run at once.
        """
        self._done += 1
        self._seconds.append(outcome.seconds)
        if outcome.error:
            self._failed += 1
            self._say(f"{cell.name} failed: {outcome.error}")
        left = sum(self._seconds) / len(self._seconds) * (self._total - self._done) / jobs
        failed = f"  {self._failed} failed" if self._failed else ""
        result = self._result(cell, outcome)
        self._live.update(
            self._line, completed=self._done, description=f"{clock(left)} left{failed}  {result}"
        )
        if not self._is_live and not outcome.error:
            self._say(f"{self._done}/{self._total}  {cell.name}  {result}  {clock(left)} left")

    @staticmethod
    def _result(cell: Cell, outcome: Outcome) -> str:
        if outcome.error:
            return ""
        decoding = cell.config.training.decode
        return f"MAE {outcome.numbers[decoding]['mae']:.3f}  {outcome.seconds:.1f} s"

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()
