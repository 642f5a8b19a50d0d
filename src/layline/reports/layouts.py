"""The picture that explains the method: where the features and the proxies of the classes lie."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from layline.files import whole_file
from layline.optional import require

Points = Float[np.ndarray, "n 2"]


def draw_plane(
    axis: Any,
    features: Points,
    ranks: Int[np.ndarray, " n"],
    proxies: Float[np.ndarray, "K 2"] | None,
    num_classes: int,
    marker: str = "o",
) -> None:
    """Draw features of two dimensions, coloured by class, with the proxies on top.

    Colours run from dark to light in the order of the classes, so that they can be told apart
    without seeing hues; each proxy has its rank written on it.

    Args:
        axis: Of matplotlib.
        features: One point per sample.
        ranks: The class of each sample.
        proxies: One point per class, for a head that has them.
        num_classes: K.
        marker: Of the features.
    """
    palette = require("matplotlib", extra="report", needed_by="a picture").colormaps["viridis"]
    colours = palette(np.linspace(0, 1, num_classes))
    lines = {"linewidths": 0} if marker == "o" else {"linewidths": 0.8, "zorder": 1.5}
    axis.scatter(*features.T, c=colours[ranks], s=9, marker=marker, **lines)
    if proxies is not None:
        axis.plot(*proxies.T, color="0.3", linewidth=0.8, zorder=2)
        axis.scatter(*proxies.T, c=colours, s=170, edgecolors="black", zorder=3)
        for rank, place in enumerate(proxies):
            ink = "white" if rank < num_classes / 2 else "black"
            axis.annotate(rank, place, ha="center", va="center", color=ink, fontsize=9, zorder=4)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])


def save_layout(
    path: Path,
    title: str,
    features: Points,
    ranks: Int[np.ndarray, " n"],
    proxies: Float[np.ndarray, "K 2"] | None,
    classes: tuple[str, ...],
) -> None:
    """Draw one layout with the names of its classes, and write it as PNG.

    Args:
        path: The picture.
        title: Above it.
        features: One point per sample.
        ranks: The class of each sample.
        proxies: One point per class, for a head that has them.
        classes: Names of the classes, lowest first.
    """
    require("matplotlib", extra="report", needed_by="a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    draw_plane(axis, features, ranks, proxies, len(classes))
    axis.set_title(title, fontsize=11)
    names = "  ".join(f"{rank} {name}" for rank, name in enumerate(classes))
    axis.set_xlabel(names, fontsize=8)
    with whole_file(path) as part:
        figure.savefig(part, dpi=120, format="png")
