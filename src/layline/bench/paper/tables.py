"""The paper's tables as grids of runs, each number beside the paper's own.

What its tables and figures have in common is :class:`Reproduction`: cells to run, and a table of
their results.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pandas as pd

from layline.bench.cells import Cell
from layline.bench.paper.numbers import CATEGORIES, OVERALL, PaperTable
from layline.bench.paper.presets import PAPER_DATA, TITLES, Preset
from layline.bench.summaries import select_decoding
from layline.bench.tables import Entry, Table, mark_best, summary_entries

PAPER_METRICS = ("accuracy", "mae")
_DECODING = "mode"  # the most probable class, equation (4)


@dataclass(frozen=True)
class Reproduction(ABC):
    """A table or a figure of the paper, as a grid of runs.

    Attributes:
        title: What it shows, in one line.
        data: The data sets of ``PAPER_DATA`` that it needs.
        spread: A sentence about the runs behind a number.
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
        notes = [f"Decoding: {_DECODING}, the most probable class. {self.spread}"]
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
    runs = select_decoding(frame, _DECODING)
    return {metric: summary_entries(runs, metric, by) for metric in PAPER_METRICS}


@dataclass(frozen=True)
class Method:
    """A method with its options, as a row of a table has it.

    Attributes:
        name: Name of the head.
        options: The head's own options, where they are not the defaults.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperGrid(Reproduction):
    """A table of the paper as a grid of runs.

    Attributes:
        paper: The table as printed.
        methods: What each of its rows is trained with.
    """

    paper: PaperTable
    methods: Mapping[str, Method]

    @classmethod
    def of(cls, title: str, paper: PaperTable, methods: Mapping[str, Method]) -> Self:
        """Find the data sets of the columns, of Image Aesthetics the four categories."""
        names = [
            name
            for column in paper.columns
            for name in (CATEGORIES.values() if column.data == OVERALL else (column.data,))
        ]
        return cls(title, tuple(dict.fromkeys(names)), paper, methods)

    def cells(self, preset: Preset) -> list[Cell]:
        """Give a cell for each row, data set and partition."""
        return [
            preset.cell(
                name, partition, method.name, {"head": {"options": method.options}}, {"row": row}
            )
            for row, method in self.methods.items()
            for name in self.data
            for partition in range(preset.data[name].partitions)
        ]

    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Put our numbers and the paper's into the paper's rows and columns."""
        runs = with_overall(select_decoding(frame, _DECODING))
        found = paper_entries(runs, ("row", "data"))
        columns, printed = self.paper.columns, self.paper.printed
        entries = tuple(
            tuple(
                replace(
                    found[column.metric].get((row, column.data), Entry()),
                    reference=number.reference,
                    reference_sd=number.reference_sd,
                )
                for column, (_, number) in zip(columns, fields, strict=True)
            )
            for row, fields in printed.lines()
        )
        return mark_best(replace(printed, entries=entries, notes=self.notes(preset)))

    def notes(self, preset: Preset) -> tuple[str, ...]:
        """Say also what the numbers of Image Aesthetics as a whole are."""
        titles = [
            column.title if column.title == "Overall" else column.group
            for column in self.paper.columns
            if column.data == OVERALL
        ]
        mean = "is the mean over the four categories of Image Aesthetics."
        return (*super().notes(preset), *(f"{title} {mean}" for title in titles[:1]))


def with_overall(frame: pd.DataFrame) -> pd.DataFrame:
    """Add Image Aesthetics as a whole: in each partition the mean over the four categories.

    A partition where one of the four has no number has none either.
    """
    by = ["row", "partition"]
    of_four = frame[frame["data"].isin(CATEGORIES.values())]
    if of_four.empty:
        return frame
    complete = of_four.groupby(by)["data"].transform("nunique") == len(CATEGORIES)
    errors = of_four["error"].fillna("").mask(~complete, "Incomplete")
    groups = of_four.assign(error=errors).groupby(by, sort=False)
    whole = groups[list(PAPER_METRICS)].agg(lambda values: values.mean(skipna=False))
    whole["error"] = groups["error"].max()  # any text is more than none
    return pd.concat([frame, whole.reset_index().assign(data=OVERALL)], ignore_index=True)
