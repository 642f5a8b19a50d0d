"""What the commands that run grids have in common."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from layline.cli.errors import INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from layline.experiments.cells import Cell
    from layline.experiments.runner import Place
    from layline.experiments.store import Store


def run_cells(
    cells: "Sequence[Cell]",
    out: Path,
    place: "Place",
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
    from layline.experiments.runner import run
    from layline.experiments.store import Store

    store = Store(out, any_version)
    try:
        failed = run(cells, store, GridProgress(console), place, keep_models=keep_models)
    except KeyboardInterrupt:
        done = sum(store.is_done(cell) for cell in cells)
        _say(console, f"Stopped; {done} of {len(cells)} runs are done. The same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    if failed:
        _say(console, f"{len(failed)} runs failed; the same command tries them again:")
    for cell in failed:
        outcome = store.find(cell)
        name = " ".join(value for value in cell.labels.values() if value)
        _say(console, f"  {name}: {outcome.error if outcome else 'not run'}")
    return store, failed


def _say(console: "Console", text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
