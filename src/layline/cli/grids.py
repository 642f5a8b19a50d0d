"""What the commands that run grids have in common."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from layline.amounts import amount
from layline.cli.options import INTERRUPTED
from layline.optional import require

_EDGES, _BETWEEN = 3, 3  # characters around a table, and around each of its columns

if TYPE_CHECKING:
    from rich.console import Console

    from layline.experiments.cells import Cell
    from layline.experiments.engines import Executor
    from layline.experiments.store import Store
    from layline.experiments.tables import Table


def require_libraries(command: str) -> None:
    """Say before the first run, not after the last, what tables and figures need."""
    for library in ("pandas", "matplotlib", "plotly", "jinja2"):
        require(library, extra="report", needed_by=command)


def run_cells(
    cells: "Sequence[Cell]",
    out: Path,
    place: "Executor",
    console: "Console",
    *,
    any_version: bool = False,
    keep_models: bool = False,
) -> "tuple[Store, list[Cell]]":
    """Run the cells that have no result yet, show how it goes, and say what failed.

    Args:
        cells: Of the grid.
        out: Folder of the results.
        place: Where to run.
        console: Where to show it.
        any_version: Keep results of other versions of the code.
        keep_models: Keep the weights of every run.

    Returns:
        The store with the results, and the cells that failed.
    """
    from layline.experiments.progress import GridProgress
    from layline.experiments.runner import run_grid
    from layline.experiments.store import Store
    from layline.training.reporter import Reporter

    store, say = Store(out, any_version), Reporter(console)
    try:
        failed = run_grid(cells, store, GridProgress(console), place, keep_models=keep_models)
    except KeyboardInterrupt:
        done = sum(store.is_done(cell) for cell in cells)
        are = "is" if len(cells) == 1 else "are"
        runs = amount(len(cells), "run")
        say(f"Stopped; {done} of {runs} {are} done. The same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    if failed:
        them = "it" if len(failed) == 1 else "them"
        say(f"{amount(len(failed), 'run')} failed; the same command tries {them} again:")
    for cell in failed:
        outcome = store.find(cell)
        say(f"  {cell.name}: {outcome.error if outcome else 'not run'}")
    return store, failed


def show(table: "Table", console: "Console") -> None:
    """Print a table; the last columns are left out where the terminal is too narrow for them."""
    from rich import box
    from rich.table import Table as Shown
    from rich.text import Text

    from layline.experiments.tables import entry_remark, entry_text

    texts = [
        [
            f"{entry_text(e, c)} {entry_remark(e, c, table.reference)}".rstrip()
            for e, c in zip(entries, table.columns, strict=True)
        ]
        for entries in table.entries
    ]
    left = console.width - max(map(len, [table.corner, *table.rows])) - _EDGES
    shown = Shown(box=box.SIMPLE_HEAD, title=table.caption, title_justify="left", pad_edge=False)
    shown.add_column(table.corner, no_wrap=True)
    fits = 0
    for column, *fields in zip(table.columns, *texts, strict=True):
        width = max(map(len, [*fields, *column.title.split()]))
        left -= width + _BETWEEN
        if left < 0:
            break
        shown.add_column(column.title, justify="right", min_width=width)
        fits += 1
    for label, fields, entries in zip(table.rows, texts, table.entries, strict=True):
        marked = [
            Text(text, style="bold" if entry.is_best else "")
            for text, entry in zip(fields, entries, strict=True)
        ]
        shown.add_row(Text(label), *marked[:fits])
    console.print(shown)
