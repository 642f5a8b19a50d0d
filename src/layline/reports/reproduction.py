"""What a reproduction leaves in its folder: tables in three formats, figures, and the runs."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.preset import Preset
from layline.experiments.rendering import FORMATS
from layline.experiments.reproductions import Reproduction
from layline.experiments.reproductions.curves import Sweep
from layline.experiments.reproductions.layouts import LayoutGrid, moments
from layline.files import write_text
from layline.reports.curves import draw_curves, interactive_curves
from layline.reports.layout_grid import draw_layouts, interactive_layouts
from layline.reports.printing import save_figure
from layline.training.run_folder import RunFolder

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
    files = [folder / f"table.{ending}" for ending in FORMATS]
    for path, render in zip(files, FORMATS.values(), strict=True):
        write_text(path, render(table))
    files.append(folder / "cells.csv")
    write_text(files[-1], frame.to_csv(index=False, lineterminator="\n"))
    page: Any = None
    if isinstance(reproduction, Sweep):
        curves = reproduction.curves(frame)
        drawn = (curves, reproduction.symbol, reproduction.title, reproduction.drawn)
        files += save_figure(draw_curves(*drawn), folder / "figure")
        page = interactive_curves(*drawn)
    elif isinstance(reproduction, LayoutGrid):
        failed = set(frame.loc[frame["error"].fillna("") != "", "row"])
        recorded = {
            cell.labels["row"]: moments(run_folder(cell))
            for cell in cells
            if cell.labels["row"] not in failed
        }
        if not recorded:
            return files
        for name, with_wrong in {"figure": False, "figure-all": True}.items():
            title = f"{reproduction.title}\n{'all samples' if with_wrong else 'correct ones only'}"
            files += save_figure(draw_layouts(recorded, title, with_wrong), folder / name)
        page = interactive_layouts(recorded, reproduction.title)
    if page is not None:
        files.append(_write_page(page, reproduction.title, table.notes, folder / "figure.html"))
    return files


def _write_page(figure: Any, title: str, notes: tuple[str, ...], path: Path) -> Path:
    """Write a page that needs nothing from elsewhere, plotly's program included."""
    text = figure.to_html(full_html=False, include_plotlyjs=True, div_id="figure")
    under = "<br>".join(map(html.escape, notes))
    write_text(path, _PAGE.format(title=html.escape(title), figure=text, notes=under))
    return path
