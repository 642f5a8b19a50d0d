"""How a grid looks while it goes: one live line with a bar, or a plain line per cell."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from layline.experiments.cells import Cell, Outcome
from layline.training.display import Reporter, amount, clock


class GridProgress:
    """Show how many cells are done, the last one, and the time left.

    Args:
        console: Where to; a terminal gets the live line.
    """

    def __init__(self, console: Console) -> None:
        self._say, self._is_live = Reporter(console), console.is_terminal
        columns = BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}")
        self._bar = Progress(*columns, console=console, transient=True, disable=not self._is_live)
        self._task = self._bar.add_task("")
        self._total = self._done = 0
        self._outcomes: list[Outcome] = []

    def start(self, total: int, done: int) -> None:
        """Say how many cells the grid has, and how many are finished already."""
        self._total, self._done = total, done
        before = f", {done} of them finished before" if done else ""
        if total == done == 1:
            before = ", finished before"
        self._say(amount(total, "run") + before)
        self._bar.update(self._task, total=total, completed=done)

    def show(self, cell: Cell, outcome: Outcome, jobs: int) -> None:
        """Show how a cell ended, of a grid that runs so many jobs at once."""
        self._done += 1
        self._outcomes.append(outcome)
        spent = sum(each.seconds for each in self._outcomes)
        left = clock(spent / len(self._outcomes) * (self._total - self._done) / jobs)
        result = ""
        if outcome.error:
            self._say(f"{cell.name} failed: {outcome.error}")
        else:
            mae = outcome.numbers[cell.config.training.decode]["mae"]
            result = f"MAE {mae:.3f}  {outcome.seconds:.1f} s"
            if not self._is_live:
                self._say(f"{self._done}/{self._total}  {cell.name}  {result}  {left} left")
        failed = sum(bool(each.error) for each in self._outcomes)
        failures = f"  {failed} failed" if failed else ""
        line = f"{left} left{failures}  {result}"
        self._bar.update(self._task, completed=self._done, description=line)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
