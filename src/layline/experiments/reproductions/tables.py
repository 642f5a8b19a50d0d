"""A table of the paper: methods and data sets, each number beside the paper's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.measures import measure_of
from layline.experiments.paper import CATEGORIES, OVERALL, PaperTable
from layline.experiments.preset import Preset
from layline.experiments.reproductions.base import METRICS, Reproduction, chosen, entries
from layline.experiments.tables import Column, Entry, Table, ranked

_OF_OVERALL = tuple(CATEGORIES.values())


@dataclass(frozen=True)
class Method:
    """What a row of a table is trained with.

    Attributes:
        name: Name of the head.
        options: The head's own options, where they are not the usual ones.
    """

    name: str
    options: Mapping[str, Any]


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
            for name in (_OF_OVERALL if column.data == OVERALL else (column.data,))
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
            for partition in range(preset.stands[name].partitions)
        ]

    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Put our numbers and the paper's into the paper's rows and columns."""
        runs = with_overall(chosen(frame))
        found = {metric: entries(runs, metric, ("row", "data")) for metric in METRICS}
        lines = []
        for row, numbers in self.paper.rows.items():
            line = []
            for column, number in zip(self.paper.columns, numbers, strict=True):
                entry = found[column.metric].get((row, column.data), Entry())
                if number is not None:
                    entry = replace(entry, reference=number.mean, reference_sd=number.deviation)
                line.append(entry)
            lines.append(tuple(line))
        return ranked(
            Table(
                caption=self.paper.caption,
                rows=tuple(self.paper.rows),
                columns=tuple(map(self._column, range(len(self.paper.columns)))),
                entries=tuple(lines),
                notes=self.remarks(preset),
            )
        )

    def remarks(self, preset: Preset) -> tuple[str, ...]:
        """Say also what the numbers of Image Aesthetics as a whole are."""
        notes = super().remarks(preset)
        if not any(column.data == OVERALL for column in self.paper.columns):
            return notes
        name = next(c for c in self.paper.columns if c.data == OVERALL)
        title = name.below if name.below == "Overall" else name.above
        return (*notes, f"{title} is the mean over the four categories of Image Aesthetics.")

    def _column(self, place: int) -> Column:
        """Write a column with as many digits as the paper does."""
        of_paper = self.paper.columns[place]
        digits = max(n.digits for row in self.paper.rows.values() if (n := row[place]) is not None)
        lower = measure_of(of_paper.metric).lower_is_better
        return Column(of_paper.below, of_paper.above, digits, lower)


def with_overall(frame: pd.DataFrame) -> pd.DataFrame:
    """Add Image Aesthetics as a whole: in each partition the mean over the four categories.

    A partition where one of the four has no number has none either.
    """
    of_four = frame[frame["data"].isin(_OF_OVERALL)]
    if of_four.empty:
        return frame
    groups = of_four.groupby(["row", "partition"], sort=False)
    complete = groups["data"].transform("nunique") == len(_OF_OVERALL)
    errors = of_four["error"].fillna("").mask(~complete, "Incomplete")
    groups = of_four.assign(error=errors).groupby(["row", "partition"], sort=False)
    whole = groups[list(METRICS)].agg(lambda values: values.mean(skipna=False))
    whole["error"] = groups["error"].max()  # any text is more than none
    return pd.concat([frame, whole.reset_index().assign(data=OVERALL)], ignore_index=True)
