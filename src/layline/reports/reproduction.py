"""The files of a reproduction: tables in three formats, figures, and the runs."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from layline.bench.cells import Cell
from layline.bench.paper import Reproduction
from layline.bench.paper.figures import LayoutGrid, Sweep, read_snapshots
from layline.bench.paper.presets import Preset
from layline.bench.results import write_tables
from layline.reports.paper_figures import (
    draw_curves,
    draw_layouts,
    interactive_curves,
    interactive_layouts,
)
from layline.reports.printed_figures import PRINT_FORMATS, save_figure
from layline.training.run_folder import RunFolder
from layline.utils.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
</head>
<body style="margin: 0 auto; max-width: 1200px; font-family: system-ui, sans-serif">
{figure}
<p style="margin: 1em; color: #333">{notes}</p>
</body>
</html>
"""


def write_reproduction(
    reproduction: Reproduction,
    preset: Preset,
    cells: Sequence[Cell],
    frame: pd.DataFrame,
    run_folder: Callable[[Cell], RunFolder],
    folder: Path,
) -> list[Path]:
    """Write the table, the figure if it is one, and the long frame of its cells.

    Args:
        reproduction: What was repeated.
        preset: What its cells were made from.
        cells: Those that were run.
        frame: One row per cell and decoding, with the labels of the cells as columns.
        run_folder: Finds the folder of a cell's run.
        folder: Where the files go.

    Returns:
        The files.
    """
    table = reproduction.table(frame, preset)
    files = write_tables(folder, {"table": table})
    files.append(folder / "cells.csv")
    write_text(files[-1], frame.to_csv(index=False, lineterminator="\n"))
    printed: dict[str, Figure] = {}
    page: Any = None
    if isinstance(reproduction, Sweep):
        curves = reproduction.curves(frame)
        drawn = (curves, reproduction.symbol, reproduction.title, reproduction.drawn)
        printed["figure"], page = draw_curves(*drawn), interactive_curves(*drawn)
    elif isinstance(reproduction, LayoutGrid):
        failed = set(frame.loc[frame["error"].fillna("") != "", "row"])
        recorded = {
            cell.labels["row"]: read_snapshots(run_folder(cell))
            for cell in cells
            if cell.labels["row"] not in failed
        }
        if recorded:
            title = reproduction.title
            printed["figure"] = draw_layouts(recorded, f"{title}\ncorrect ones only", False)
            printed["figure-all"] = draw_layouts(recorded, f"{title}\nall samples", True)
            page = interactive_layouts(recorded, title)
    for name, figure in printed.items():
        files += [save_figure(figure, folder / f"{name}{ending}") for ending in PRINT_FORMATS]
    if page is not None:
        files.append(_write_page(page, reproduction.title, table.notes, folder / "figure.html"))
    return files


def _write_page(figure: Any, title: str, notes: tuple[str, ...], path: Path) -> Path:
    """Write a page that needs nothing from elsewhere, plotly's program included."""
    text = figure.to_html(full_html=False, include_plotlyjs=True, div_id="figure")
    under = "<br>".join(map(html.escape, notes))
    write_text(path, _PAGE.format(title=html.escape(title), figure=text, notes=under))
    return path
