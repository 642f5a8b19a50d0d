"""The figures of the paper: curves over a number that is varied, and layouts in two dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from layline import heads
from layline.bench.cells import Cell
from layline.bench.paper.presets import Preset
from layline.bench.paper.tables import PAPER_METRICS, Reproduction, paper_entries
from layline.bench.summaries import find_metric
from layline.bench.tables import Column, Entry, Table, mark_best
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.training.config import combine
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder

# The paper draws the validation part after the first, this and the last epoch.
_EPOCHS, _MIDDLE = 48, 13


@dataclass(frozen=True)
class Curve:
    """The results of one method when a number is varied.

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

    It needs one data set.

    Attributes:
        symbol: What the number is called.
        key: The setting that it is: ``dim``, or an option of the head.
        values: Its values, from the left.
        methods: Names of the heads, by what the paper calls them.
        drawn: The metrics that the figure shows; its table has both.
    """

    symbol: str
    key: str
    values: Sequence[float]
    methods: Mapping[str, str]
    drawn: tuple[str, ...] = ("mae", "accuracy")

    def cells(self, preset: Preset) -> list[Cell]:
        """Give a cell for each method, value and partition, without the impossible ones."""
        (name,) = self.data
        return [
            preset.cell(
                name, partition, method, self._setting(method, x), {"row": row, "x": f"{x:g}"}
            )
            for row, method in self.methods.items()
            for x in self.values
            if not self._why_impossible(method, x)
            for partition in range(preset.data[name].partitions)
        ]

    def impossible(self) -> dict[tuple[str, ...], str]:
        """Give the values that a method cannot have, with the error of its head."""
        return {
            (row, f"{x:g}"): reason
            for row, method in self.methods.items()
            for x in self.values
            if (reason := self._why_impossible(method, x))
        }

    def curves(self, frame: pd.DataFrame) -> list[Curve]:
        """Give the points of the figure, where there is a number."""
        found = paper_entries(frame, ("row", "x"))
        curves = []
        for row in self.methods:
            x = tuple(
                value
                for value in self.values
                if found["mae"].get((row, f"{value:g}"), Entry()).mean is not None
            )
            metrics = {
                metric: tuple(entries[row, f"{value:g}"] for value in x)
                for metric, entries in found.items()
            }
            curves.append(Curve(row, x, metrics))
        return curves

    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Put the curves into a table, a row for each value."""
        found = paper_entries(frame, ("row", "x"))
        impossible = self.impossible()
        columns = [(row, metric) for row in self.methods for metric in PAPER_METRICS]

        def entry(row: str, metric: str, x: str) -> Entry:
            note = "impossible" if (row, x) in impossible else ""
            return found[metric].get((row, x), Entry(note=note))

        return Table(
            caption=self.title,
            rows=tuple(f"{x:g}" for x in self.values),
            columns=tuple(
                Column.of_metric(find_metric(metric), group=row) for row, metric in columns
            ),
            entries=tuple(
                tuple(entry(row, metric, f"{x:g}") for row, metric in columns) for x in self.values
            ),
            corner=self.symbol,
            notes=(
                *self.notes(preset),
                *(
                    f"{row} with {self.symbol} = {x} is impossible: {reason}."
                    for (row, x), reason in impossible.items()
                ),
            ),
        )

    def _setting(self, method: str, x: float) -> dict[str, Any]:
        """Set the number, unless it is the default: that run is shared with the tables."""
        if self.key == "dim":
            return {"head": {"dim": int(x)}}
        is_default = x == default_option(method, self.key)
        return {} if is_default else {"head": {"options": {self.key: float(x)}}}

    def _why_impossible(self, method: str, x: float) -> str:
        dim = int(x) if self.key == "dim" else 2
        options = {} if self.key == "dim" else {self.key: float(x)}
        try:
            heads.create(method, 3, dim, **options)
        except ValueError as error:
            return str(error)
        return ""


def default_option(method: str, option: str) -> float:
    """Find the default of ``alpha``, ``scale`` or ``tau`` of a method with constrained proxies."""
    head = heads.create(method, 3, 2)
    assert isinstance(head, ConstrainedProxies)
    part = {"alpha": head, "scale": head.similarity, "tau": head.smoothing}[option]
    return float(getattr(part, option))


@dataclass(frozen=True)
class LayoutGrid(Reproduction):
    """The layouts of several methods in two dimensions, while they learn.

    It needs one data set, of which the first partition is used.

    Attributes:
        methods: Names of the heads, by what the paper calls them.
    """

    methods: Mapping[str, str]
    spread: ClassVar[str] = "One run of each method, on the first partition."

    def cells(self, preset: Preset) -> list[Cell]:
        """Give one cell per method: the first partition, two dimensions."""
        (name,) = self.data
        own = {"head": {"dim": 2}, "report": {"enabled": True, "mistakes": 0}}
        return [
            preset.cell(name, 0, method, combine(preset.layouts.get(method, {}), own), {"row": row})
            for row, method in self.methods.items()
        ]

    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Put the numbers that belong to the pictures into a table."""
        (name,) = self.data
        found = paper_entries(frame, ("row", "data"))
        return mark_best(
            Table(
                caption=self.title,
                rows=tuple(self.methods),
                columns=tuple(Column.of_metric(find_metric(metric)) for metric in PAPER_METRICS),
                entries=tuple(
                    tuple(found[metric].get((row, name), Entry()) for metric in PAPER_METRICS)
                    for row in self.methods
                ),
                notes=self.notes(preset),
            )
        )


def read_snapshots(folder: RunFolder) -> dict[str, Snapshot]:
    """Read the layouts that a run recorded, by title: the test part, and validation as it learned.

    Validation is drawn after the epochs of the paper, see :func:`drawn_epochs`.
    """
    epochs = len(list(folder.layouts.glob("epoch-*.npz")))
    if not epochs:
        raise FileNotFoundError(
            f"layouts must be recorded, got none in {folder.layouts}: run it with report.enabled"
        )
    shown = {f"validation, epoch {epoch}": epoch for epoch in drawn_epochs(epochs)}
    return {
        "test": Snapshot.load(folder.layout("test")),
        **{title: Snapshot.load(folder.layout(epoch)) for title, epoch in shown.items()},
    }


def drawn_epochs(epochs: int) -> tuple[int, ...]:
    """Choose the epochs to draw: first, 13 of 48 or as far through, last; each once."""
    middle = max(1, round(epochs * _MIDDLE / _EPOCHS))
    return tuple(dict.fromkeys((1, middle, epochs)))
