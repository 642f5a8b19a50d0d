"""A table of the paper: methods and data sets, each number beside the paper's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.paper.numbers import CATEGORIES, OVERALL, PaperTable
from layline.experiments.paper.presets import Preset
from layline.experiments.paper.reproduction import (
    PAPER_DECODING,
    PAPER_METRICS,
    Reproduction,
    paper_entries,
)
from layline.experiments.summaries import find_metric, select_decoding
from layline.experiments.tables import Column, Entry, Table, mark_best


@dataclass(frozen=True)
class Method:
    """What a row of a table is trained with.

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
        title: What it shows, in one line.
        paper: The table as printed.
        methods: What each of its rows is trained with.
    """

    title: str
    paper: PaperTable
    methods: Mapping[str, Method]

    @property
    def data(self) -> tuple[str, ...]:  # type: ignore[override]
        """The data sets of its columns, of Image Aesthetics the four categories."""
        found = dict.fromkeys(
            name
            for column in self.paper.columns
            for name in (CATEGORIES.values() if column.data == OVERALL else (column.data,))
        )
        return tuple(found)

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
        runs = with_overall(select_decoding(frame, PAPER_DECODING))
        found = paper_entries(runs, ("row", "data"))
        lines = []
        for row, numbers in self.paper.rows.items():
            line = []
            for column, number in zip(self.paper.columns, numbers, strict=True):
                entry = found[column.metric].get((row, column.data), Entry())
                if number is not None:
                    entry = replace(entry, reference=number.mean, reference_sd=number.deviation)
                line.append(entry)
            lines.append(tuple(line))
        return mark_best(
            Table(
                caption=self.paper.caption,
                rows=tuple(self.paper.rows),
                columns=tuple(map(self._column, range(len(self.paper.columns)))),
                entries=tuple(lines),
                notes=self.notes(preset),
            )
        )

    def notes(self, preset: Preset) -> tuple[str, ...]:
        """Say also what the numbers of Image Aesthetics as a whole are."""
        titles = [
            column.below if column.below == "Overall" else column.above
            for column in self.paper.columns
            if column.data == OVERALL
        ]
        mean = "is the mean over the four categories of Image Aesthetics."
        return (*super().notes(preset), *(f"{title} {mean}" for title in titles[:1]))

    def _column(self, place: int) -> Column:
        """Write a column with as many digits as the paper does."""
        column = self.paper.columns[place]
        digits = max(n.digits for row in self.paper.rows.values() if (n := row[place]) is not None)
        lower = find_metric(column.metric).lower_is_better
        return Column(column.below, column.above, digits, lower)


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
