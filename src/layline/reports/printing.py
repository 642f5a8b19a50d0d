"""Figures for print: made without a window or global state, written as PNG and PDF."""

from pathlib import Path
from typing import Any

from layline.files import whole_file
from layline.optional import require

# Without the date, the same numbers give the same bytes.
_ENDINGS: dict[str, dict[str, Any]] = {
    ".png": {"dpi": 150},
    ".pdf": {"metadata": {"CreationDate": None}},
}


def new_figure(width: float, height: float) -> Any:
    """Make a figure of matplotlib, in inches."""
    require("matplotlib", extra="report", needed_by="a figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path) -> list[Path]:
    """Write a figure in every format.

    Args:
        figure: Of matplotlib.
        path: Its place, without an ending.
    """
    files = []
    for ending, options in _ENDINGS.items():
        file = path.with_name(path.name + ending)
        with whole_file(file) as part:
            figure.savefig(part, format=ending[1:], **options)
        files.append(file)
    return files
