"""A sheet to draw on with matplotlib: no window, no global state, whole files."""

from pathlib import Path
from typing import Any, Literal

from layline.files import whole_file
from layline.optional import require
from layline.registry import find

# By ending: what is said of a file of this kind, without the time at which it was made.
PICTURES: dict[str, dict[str, Any]] = {
    ".png": {"format": "png", "dpi": 160},
    ".pdf": {"format": "pdf", "metadata": {"CreationDate": None}},
}


def blank(
    width: float, height: float, layout: Literal["constrained"] | None = "constrained"
) -> Any:
    """Make an empty figure.

    Args:
        width: In inches.
        height: In inches.
        layout: ``constrained`` makes room for what is around the axes, None leaves them alone.
    """
    require("matplotlib", extra="report", needed_by="a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a figure, cut to what is drawn, as the ending of the path says."""
    kind = find("the ending of a picture", path.suffix, PICTURES)
    with whole_file(path) as part:
        figure.savefig(part, bbox_inches="tight", **kind)
