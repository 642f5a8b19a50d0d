"""The tables and figures of the paper: grids of runs, and tables with the paper's numbers.

They are described in ``reproductions.toml``; their data and settings are in ``presets.toml``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from layline import heads
from layline.bench.grid import Cell, Grid, GridData, Variant
from layline.bench.paper.presets import Preset, load_presets
from layline.bench.statistics import find_metric, select_decoding
from layline.bench.tables import Column, Entry, Table, mark_best, summary_entries
from layline.heads.constrained_proxies import ConstrainedProxies
from layline.training.config import Section, combine, read_toml, validate
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder

METRICS = ("accuracy", "mae")
CATEGORIES = ("nature", "animals", "urban", "people")
OVERALL = "overall"  # the mean over the four categories of Image Aesthetics
_DECODING = "mode"  # the most probable class, equation (4)
# The paper draws the validation split after the first, this and the last epoch.
_EPOCHS, _MIDDLE = 48, 13
_SPREAD = "± is the standard deviation over the partitions, in the population form."


@dataclass(frozen=True)
class Curve:
    """The results of one method when a setting is varied.

    Attributes:
        name: The paper's name of the method.
        x: The values of the setting that have results.
        metrics: For each metric, one entry per value.
    """

    name: str
    x: tuple[float, ...]
    metrics: dict[str, tuple[Entry, ...]]


class PaperColumn(Section):
    """A column of a table of the paper: its headings, data set and metric."""

    group: str
    title: str
    data: str
    metric: str


class Method(Section):
    """A method with options of its head."""

    method: str
    options: dict[str, Any] = Field(default_factory=dict)


class Reproduction(Section):
    """A table or a figure of the paper.

    Attributes:
        title: A short description.
        methods: The methods, by the paper's names.
        data: The data sets; those of a table follow from its columns.
        caption: The caption of a table.
        columns: The columns of a table.
        printed: The numbers that the paper prints, a line for each method.
        symbol: Of a curve: the name of the setting on the x axis.
        key: Of a curve: ``dim``, or the option of the head that is varied.
        values: Of a curve: the values of the setting.
        drawn: Of a curve: the metrics that the figure shows.
        layouts: Whether it is the figure of layouts in two dimensions.
    """

    title: str
    methods: dict[str, str | Method]
    data: list[str] = Field(default_factory=list)
    caption: str = ""
    columns: list[PaperColumn] = Field(default_factory=list)
    printed: str = ""
    symbol: str = ""
    key: str = ""
    values: list[float] = Field(default_factory=list)
    drawn: list[str] = Field(default=["mae", "accuracy"])
    layouts: bool = False

    def data_sets(self) -> list[str]:
        """Name the data sets of the paper that it needs."""
        names = [
            name
            for column in self.columns
            for name in (CATEGORIES if column.data == OVERALL else (column.data,))
        ]
        return self.data or list(dict.fromkeys(names))

    def variants(self, preset: Preset) -> list[Variant]:
        """List the methods with their options, without those that are impossible."""
        found = []
        for row, method in self._methods().items():
            if self.layouts:
                own = {"head": {"dim": 2}, "report": {"enabled": True, "mistakes": 0}}
                settings = combine(preset.layouts.get(method.method, {}), own)
                found.append(Variant(name=row, **method.model_dump(), settings=settings))
            elif not self.values:
                found.append(Variant(name=row, **method.model_dump()))
            found += [
                self._vary(row, method.method, x)
                for x in self.values
                if not self._why_impossible(method.method, x)
            ]
        return found

    def cells(self, preset: Preset, threads: int = 1) -> list[Cell]:
        """List its runs: one for each method, data set and partition."""
        cells = []
        for name in self.data_sets():
            used = preset.data[name]
            entry = GridData(name=name, source=used.source, root=used.root, options=used.options)
            grid = Grid(
                data=[entry],
                methods=list(self.variants(preset)),
                seeds=[0] if self.layouts else used.seeds(),
                recipes=["paper"],
                decodings=[_DECODING],
                settings=preset.settings_for(used.source),
                threads=threads,
            )
            cells += grid.cells()
        return cells

    def table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Make the table of its results.

        Args:
            frame: One row per cell and decoding, as in :meth:`layline.bench.store.Store.frame`.
            preset: What the cells were made from.
        """
        if self.values:
            return self._curve_table(frame, preset)
        runs = _add_overall(select_decoding(frame, _DECODING))
        found = {metric: summary_entries(runs, metric, ("method", "data")) for metric in METRICS}
        columns = self.columns or [
            PaperColumn(group="", title=find_metric(m).title, data=self.data[0], metric=m)
            for m in METRICS
        ]
        printed = self.paper_numbers() or {row: [Entry()] * len(columns) for row in self.methods}
        entries = tuple(
            tuple(
                replace(
                    found[column.metric].get((row, column.data), Entry()),
                    reference=number.reference,
                    reference_sd=number.reference_sd,
                )
                for column, number in zip(columns, numbers, strict=True)
            )
            for row, numbers in printed.items()
        )
        notes = self._notes(preset)
        if any(column.data == OVERALL for column in columns):
            notes += ("Overall (IA) is the mean over the four categories of Image Aesthetics.",)
        heads_ = tuple(map(self._column, columns, range(len(columns))))
        caption = self.caption or self.title
        return mark_best(Table(caption, tuple(printed), heads_, entries, notes=notes))

    def curves(self, frame: pd.DataFrame) -> list[Curve]:
        """Give the points of a figure, without values that have no result."""
        found = self._curve_entries(frame)
        return [
            Curve(
                row,
                tuple(x for x in self.values if found("mae", row, x).mean is not None),
                {
                    metric: tuple(
                        found(metric, row, x)
                        for x in self.values
                        if found("mae", row, x).mean is not None
                    )
                    for metric in METRICS
                },
            )
            for row in self.methods
        ]

    def impossible(self) -> dict[tuple[str, float], str]:
        """Give the values that a method cannot have, with the reason."""
        return {
            (row, x): reason
            for row, method in self._methods().items()
            for x in self.values
            if (reason := self._why_impossible(method.method, x))
        }

    def paper_numbers(self) -> dict[str, list[Entry]]:
        """Give the paper's numbers, by the names of the methods, as references of entries."""
        lines = [[part.strip() for part in line.split("|")] for line in self._lines()]
        return {row: [_parse(number) for number in numbers] for row, *numbers in lines}

    def _lines(self) -> list[str]:
        return self.printed.strip().splitlines()

    def _column(self, column: PaperColumn, place: int) -> Column:
        """Format the numbers of a column with as many digits as the paper does."""
        metric = find_metric(column.metric)
        numbers = [line.split("|")[place + 1].split()[0] for line in self._lines()]
        digits = max((len(each.partition(".")[2]) for each in numbers), default=metric.digits)
        return Column(column.title, column.group, digits, metric.lower_is_better)

    def _curve_entries(self, frame: pd.DataFrame) -> Any:
        runs = select_decoding(frame, _DECODING)
        found = {metric: summary_entries(runs, metric, ("method", "data")) for metric in METRICS}
        return lambda metric, row, x: found[metric].get((self._name(row, x), self.data[0]), Entry())

    def _curve_table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        found, impossible = self._curve_entries(frame), self.impossible()
        columns = [(row, metric) for row in self.methods for metric in METRICS]
        return Table(
            caption=self.title,
            rows=tuple(f"{x:g}" for x in self.values),
            columns=tuple(
                Column.of_metric(find_metric(metric), group=row) for row, metric in columns
            ),
            entries=tuple(
                tuple(
                    Entry(note="impossible") if (row, x) in impossible else found(metric, row, x)
                    for row, metric in columns
                )
                for x in self.values
            ),
            corner=self.symbol,
            notes=(
                *self._notes(preset),
                *(
                    f"{row} with {self.symbol} = {x:g} is impossible: {reason}"
                    for (row, x), reason in impossible.items()
                ),
            ),
        )

    def _methods(self) -> dict[str, Method]:
        return {
            row: Method(method=each) if isinstance(each, str) else each
            for row, each in self.methods.items()
        }

    def _name(self, row: str, x: float) -> str:
        return f"{row}, {self.symbol} = {x:g}"

    def _vary(self, row: str, method: str, x: float) -> Variant:
        """Set the varied value, unless it is the default: that run is shared with the tables."""
        name = self._name(row, x)
        if self.key == "dim":
            return Variant(name=name, method=method, settings={"head": {"dim": int(x)}})
        options = {} if x == default_option(method, self.key) else {self.key: float(x)}
        return Variant(name=name, method=method, options=options)

    def _why_impossible(self, method: str, x: float) -> str:
        dim = int(x) if self.key == "dim" else 2
        options = {} if self.key == "dim" else {self.key: float(x)}
        try:
            heads.create(method, 3, dim, **options)
        except ValueError as error:
            return str(error)
        return ""

    def _notes(self, preset: Preset) -> tuple[str, ...]:
        spread = "One run of each method, on the first partition." if self.layouts else _SPREAD
        paper = load_presets()["paper"].data
        others = [
            f"{name} is {preset.data[name]}"
            for name in self.data_sets()
            if preset.data[name].source != paper[name].source
        ]
        notes = [f"Decoding: {_DECODING}, the most probable class. {spread}"]
        return (*notes, *([f"Not the paper's data: {'; '.join(others)}."] if others else []))


def _parse(text: str) -> Entry:
    if text == "--":
        return Entry()
    mean, _, sd = text.partition(" ± ")
    return Entry(reference=float(mean), reference_sd=float(sd) if sd else None)


def _add_overall(frame: pd.DataFrame) -> pd.DataFrame:
    """Add Image Aesthetics as a whole: for each partition, the mean over the four categories.

    It is missing if one of the four is.
    """
    of_four = frame[frame["data"].isin(CATEGORIES)]
    if of_four.empty:
        return frame
    by = ["method", "seed"]
    complete = of_four.groupby(by)["data"].transform("nunique") == len(CATEGORIES)
    errors = of_four["error"].fillna("").mask(~complete, "Incomplete")
    groups = of_four.assign(error=errors).groupby(by, sort=False)
    whole = groups[list(METRICS)].agg(lambda values: values.mean(skipna=False))
    whole["error"] = groups["error"].max()  # any text is greater than an empty one
    return pd.concat([frame, whole.reset_index().assign(data=OVERALL)], ignore_index=True)


def default_option(method: str, option: str) -> float:
    """Find the default of ``alpha``, ``scale`` or ``tau`` of a method with constrained proxies."""
    head = heads.create(method, 3, 2)
    assert isinstance(head, ConstrainedProxies)
    part = {"alpha": head, "scale": head.similarity, "tau": head.smoothing}[option]
    return float(getattr(part, option))


def read_snapshots(folder: RunFolder) -> dict[str, Snapshot]:
    """Read the layouts that a run recorded, by title: the test split, and validation by epoch."""
    epochs = len(list(folder.layouts.glob("epoch-*.npz")))
    shown = {f"validation, epoch {epoch}": epoch for epoch in drawn_epochs(epochs)}
    return {
        "test": Snapshot.load(folder.layout("test")),
        **{title: Snapshot.load(folder.layout(epoch)) for title, epoch in shown.items()},
    }


def drawn_epochs(epochs: int) -> Sequence[int]:
    """Choose the epochs to draw: the first, 13 of 48 or the same share, the last; each once."""
    middle = max(1, round(epochs * _MIDDLE / _EPOCHS))
    return tuple(dict.fromkeys((1, middle, epochs)))


@cache
def load_reproductions() -> dict[str, Reproduction]:
    """Read ``reproductions.toml``."""
    tree = read_toml(Path(__file__).with_name("reproductions.toml"))
    return {name: validate(Reproduction, own) for name, own in tree.items()}
