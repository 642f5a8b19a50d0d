"""The paper's picture of layouts: features and proxies in two dimensions, while they learn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from layline.experiments.cells import Cell
from layline.experiments.measures import measure_of
from layline.experiments.preset import Preset
from layline.experiments.reproductions.base import METRICS, Reproduction, chosen, entries
from layline.experiments.tables import Column, Entry, Table, ranked
from layline.training.run_folder import RunFolder
from layline.training.settings import combine
from layline.training.snapshot import Snapshot

# After these epochs of 48 the paper draws the validation part.
_EPOCHS, _MIDDLE = 48, 13


@dataclass(frozen=True)
class LayoutGrid(Reproduction):
    """The layouts of several methods in two dimensions.

    Attributes:
        title: What it shows, in one line.
        data: The data sets that it needs: one, of which the first partition is used.
        methods: Names of the heads, by what the paper calls them.
    """

    title: str
    data: tuple[str, ...]
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
        found = {metric: entries(chosen(frame), metric, ("row",)) for metric in METRICS}
        measures = [measure_of(metric) for metric in METRICS]
        return ranked(
            Table(
                caption=self.title,
                rows=tuple(self.methods),
                columns=tuple(
                    Column(m.title, digits=m.digits, lower_is_better=m.lower_is_better)
                    for m in measures
                ),
                entries=tuple(
                    tuple(found[metric].get((row,), Entry()) for metric in METRICS)
                    for row in self.methods
                ),
                notes=self.remarks(preset),
            )
        )


def moments(folder: RunFolder) -> dict[str, Snapshot]:
    """Read what a run recorded: the test part, and validation after three epochs.

    They are those of the paper: the first, the thirteenth of 48, the last; in a shorter run the
    one that is as far through.
    """
    epochs = len(list(folder.layouts.glob("epoch-*.npz")))
    if not epochs:
        raise FileNotFoundError(
            f"layouts must be recorded, got none in {folder.layouts}: run it with report.enabled"
        )
    shown = {f"validation, epoch {epoch}": epoch for epoch in milestones(epochs)}
    return {
        "test": Snapshot.load(folder.layout("test")),
        **{title: Snapshot.load(folder.layout(epoch)) for title, epoch in shown.items()},
    }


def milestones(epochs: int) -> tuple[int, ...]:
    """Choose the epochs to draw: first, 13 of 48 on the way, last; each once."""
    middle = max(1, round(epochs * _MIDDLE / _EPOCHS))
    return tuple(dict.fromkeys((1, middle, epochs)))
