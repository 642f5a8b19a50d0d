"""What every reproduction is: cells to run, and a table of their results beside the paper's."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.paper.presets import PAPER_DATA, TITLES, Preset
from layline.experiments.summaries import select_decoding
from layline.experiments.tables import Entry, Table, summary_entries

PAPER_METRICS = ("accuracy", "mae")
PAPER_DECODING = "mode"  # the most probable class, equation (4)


@dataclass(frozen=True)
class Reproduction(ABC):
    """A table or a figure of the paper, as a grid of runs.

    Attributes:
        title: What it shows, in one line.
        data: The data sets of ``PAPER_DATA`` that it needs.
        spread: What is said about the runs behind a number.
    """

    title: str
    data: tuple[str, ...]
    spread: ClassVar[str] = (
        "± is the standard deviation over the partitions, in the population form."
    )

    @abstractmethod
    def cells(self, preset: Preset) -> list[Cell]:
        """Give the runs that it needs, one for each partition of the data."""

    @abstractmethod
    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Put the results into a table.

        Args:
            frame: One row per cell and decoding, with the labels of the cells as columns.
            preset: What the cells were made from.
        """

    def impossible(self) -> dict[tuple[str, ...], str]:
        """Give the cells of the paper's grid that cannot be run: their own labels, and why."""
        return {}

    def notes(self, preset: Preset) -> tuple[str, ...]:
        """Say under a table what its numbers are, and which data are not the paper's."""
        notes = [f"Decoding: {PAPER_DECODING}, the most probable class. {self.spread}"]
        others = [
            f"{TITLES[name]} is {preset.data[name]}"
            for name in self.data
            if preset.data[name].source != PAPER_DATA[name].source
        ]
        if others:
            notes.append(f"Not the paper's data: {'; '.join(others)}.")
        return tuple(notes)


def paper_entries(
    frame: pd.DataFrame, by: Sequence[str]
) -> dict[str, dict[tuple[str, ...], Entry]]:
    """Summarise each of the paper's metrics over partitions, by the paper's decoding.

    Args:
        frame: One row per cell and decoding.
        by: The labels that tell the numbers apart, at least two.
    """
    runs = select_decoding(frame, PAPER_DECODING)
    return {metric: summary_entries(runs, metric, by) for metric in PAPER_METRICS}
