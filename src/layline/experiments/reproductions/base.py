"""What every reproduction is: cells to run, and what their results say beside the paper's."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.measures import measure_of
from layline.experiments.preset import Preset
from layline.experiments.stands import PAPER_DATA, TITLES
from layline.experiments.summaries import summary
from layline.experiments.tables import Entry, Table

DECODE = "mode"  # the most probable class, equation (4)
_SPREAD = "± is the standard deviation over the partitions, in the population form."
METRICS = ("accuracy", "mae")


@dataclass(frozen=True)
class Impossible:
    """A cell of the paper's grid that cannot be run.

    Attributes:
        labels: What it would be called.
        reason: Why there is no such model.
    """

    labels: Mapping[str, str]
    reason: str


class Reproduction(ABC):
    """A table or a figure of the paper, as a grid of runs.

    Attributes:
        title: What it shows, in one line.
        data: The data sets of ``PAPER_DATA`` that it needs.
        spread: What is said about the runs behind a number.
    """

    title: str
    data: tuple[str, ...]
    spread: ClassVar[str] = _SPREAD

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

    def impossible(self) -> list[Impossible]:
        """Give what the paper's grid has and no program can run."""
        return []

    def remarks(self, preset: Preset) -> tuple[str, ...]:
        """Say under a table what its numbers are, and what stands for the paper's data."""
        notes = [f"Decoding: {DECODE}, the most probable class. {self.spread}"]
        stands = {name: preset.stands[name] for name in self.data}
        others = [
            f"{TITLES[name]} is {stand}"
            for name, stand in stands.items()
            if stand.source != PAPER_DATA[name][0]
        ]
        if others:
            notes.append(f"Not the paper's data: {'; '.join(others)}.")
        return tuple(notes)


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the decoding of the paper; a run that failed before it was decoded stays too."""
    return frame[frame["decode"].fillna("").isin((DECODE, ""))]


def entries(frame: pd.DataFrame, metric: str, by: Sequence[str]) -> dict[tuple[str, ...], Entry]:
    """Summarise one metric over partitions, in the unit of the tables.

    Args:
        frame: One row per cell.
        metric: Which one.
        by: The labels that tell the numbers apart.
    """
    measure = measure_of(metric)

    def number(value: Any) -> float | None:
        return None if pd.isna(value) else float(value) * measure.scale

    return {
        labels if isinstance(labels, tuple) else (labels,): Entry(
            mean=number(line["mean"]),
            sd=number(line["sd"]) if line["n"] > 1 else None,  # one run has no spread
            n=int(line["n"]),
            failed=int(line["failed"]),
            error=line["error"],
        )
        for labels, line in summary(frame, metric, by=by).to_dict("index").items()
    }
