"""A curve of the paper: one number is varied, MAE and accuracy follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from layline import heads
from layline.experiments.cells import Cell
from layline.experiments.measures import measure_of
from layline.experiments.preset import Preset
from layline.experiments.reproductions.base import (
    METRICS,
    Impossible,
    Reproduction,
    chosen,
    entries,
)
from layline.experiments.tables import Column, Entry, Table


@dataclass(frozen=True)
class Curve:
    """What one method does when the number is varied.

    Attributes:
        name: What the paper calls the method.
        x: The values of the number that have results.
        metrics: For each metric, one entry per value.
    """

    name: str
    x: tuple[float, ...]
    metrics: Mapping[str, tuple[Entry, ...]]


@dataclass(frozen=True)
class Sweep(Reproduction):
    """A figure of the paper with a number on its x axis.

    Attributes:
        title: What it shows, in one line.
        data: The data sets that it needs: one.
        symbol: What the number is called.
        key: The setting that it is: ``dim``, or an option of the head.
        values: Its values, from the left.
        methods: Names of the heads, by what the paper calls them.
        drawn: The metrics that the figure shows; its table has both.
    """

    title: str
    data: tuple[str, ...]
    symbol: str
    key: str
    values: Sequence[float]
    methods: Mapping[str, str]
    drawn: tuple[str, ...] = ("mae", "accuracy")

    def cells(self, preset: Preset) -> list[Cell]:
        """Give a cell for each method, value and partition, without the impossible ones."""
        (name,) = self.data
        return [
            preset.cell(name, partition, method, self._setting(method, x), self._labels(row, x))
            for row, method in self.methods.items()
            for x in self.values
            if not self._why_not(method, x)
            for partition in range(preset.stands[name].partitions)
        ]

    def impossible(self) -> list[Impossible]:
        """Give the values that a method cannot have, in the words of its head."""
        return [
            Impossible(self._labels(row, x), reason)
            for row, method in self.methods.items()
            for x in self.values
            if (reason := self._why_not(method, x))
        ]

    def curves(self, frame: pd.DataFrame) -> list[Curve]:
        """Give the points of the figure, where there is a number."""
        found = {metric: entries(chosen(frame), metric, ("row", "x")) for metric in METRICS}
        curves = []
        for row in self.methods:
            x = tuple(
                value
                for value in self.values
                if found["mae"].get((row, f"{value:g}"), Entry()).mean is not None
            )
            of_metric = {
                metric: tuple(found[metric][row, f"{value:g}"] for value in x) for metric in METRICS
            }
            curves.append(Curve(row, x, of_metric))
        return curves

    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Put the curves into a table, a row for each value."""
        found = {metric: entries(chosen(frame), metric, ("row", "x")) for metric in METRICS}
        notes = {tuple(each.labels.values()): "impossible" for each in self.impossible()}
        keys = [(row, metric) for row in self.methods for metric in METRICS]
        return Table(
            caption=self.title,
            rows=tuple(f"{x:g}" for x in self.values),
            columns=tuple(_column(row, metric) for row, metric in keys),
            entries=tuple(
                tuple(
                    found[metric].get((row, f"{x:g}")) or Entry(note=notes.get((row, f"{x:g}"), ""))
                    for row, metric in keys
                )
                for x in self.values
            ),
            corner=self.symbol,
            notes=(*self.remarks(preset), *map(self._said, self.impossible())),
        )

    def _said(self, impossible: Impossible) -> str:
        row, x = impossible.labels["row"], impossible.labels["x"]
        return f"{row} with {self.symbol} = {x} is impossible: {impossible.reason}."

    def _labels(self, row: str, x: float) -> dict[str, str]:
        return {"row": row, "x": f"{x:g}"}

    def _setting(self, method: str, x: float) -> dict[str, Any]:
        """Set the number, unless it is the usual one: that run is shared with the tables."""
        if self.key == "dim":
            return {"head": {"dim": int(x)}}
        return {} if x == usual(method, self.key) else {"head": {"options": {self.key: float(x)}}}

    def _why_not(self, method: str, x: float) -> str:
        dim = int(x) if self.key == "dim" else 2
        options = {} if self.key == "dim" else {self.key: float(x)}
        try:
            heads.create(method, 3, dim, **options)
        except ValueError as error:
            return str(error)
        return ""


def usual(method: str, option: str) -> float:
    """Find the value that an option of a proxy head has if it is not set."""
    head: Any = heads.create(method, 3, 2)
    parts = [part for part in (head, head.similarity, head.smoothing) if hasattr(part, option)]
    return float(getattr(parts[0], option))


def _column(row: str, metric: str) -> Column:
    measure = measure_of(metric)
    return Column(measure.title, row, measure.digits, measure.lower_is_better)
