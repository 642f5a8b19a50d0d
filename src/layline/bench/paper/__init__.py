"""The tables and figures of the paper: grids of runs, and tables with the paper's numbers.

They are described in ``reproductions.toml``; their data and settings are in ``presets.toml``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, Field

from layline import heads
from layline.bench.grid import Cell, Grid, GridData, Variant
from layline.bench.paper.presets import Preset, load_presets
from layline.bench.statistics import find_metric, select_decoding
from layline.bench.tables import Column, Entry, Table, summary_entries
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


def _expand(method: Any) -> Any:
    return {"method": method} if isinstance(method, str) else method


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
    methods: dict[str, Annotated[Method, BeforeValidator(_expand)]]
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
        for row, method in self.methods.items():
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
        printed = self.paper_numbers()
        columns = {}
        for place, each in enumerate(self.columns or _plain_columns(self.data[0])):
            entries = {
                row: found[each.metric].get((row, each.data), Entry()) for row in self.methods
            }
            for row, numbers in printed.items():
                mean, sd = numbers[place].reference, numbers[place].reference_sd
                entries[row] = replace(entries[row], reference=mean, reference_sd=sd)
            columns[self._column(each, place)] = entries
        notes = self._notes(preset)
        if any(each.data == OVERALL for each in self.columns):
            notes += ("Overall (IA) is the mean over the four categories of Image Aesthetics.",)
        caption = self.caption or self.title
        return Table.of_columns(caption, list(self.methods), columns, notes=notes)

    def curves(self, frame: pd.DataFrame) -> list[Curve]:
        """Give the points of a figure, without values that have no result."""
        runs = select_decoding(frame, _DECODING)
        curves = []
        for row in self.methods:
            names = {self._name(row, x): x for x in self.values}
            metrics = {
                metric: {
                    names[name]: entry
                    for (name, _), entry in summary_entries(
                        runs, metric, ("method", "data")
                    ).items()
                    if name in names and entry.mean is not None
                }
                for metric in METRICS
            }
            points = {metric: tuple(found.values()) for metric, found in metrics.items()}
            curves.append(Curve(row, tuple(metrics["mae"]), points))
        return curves

    def impossible(self) -> dict[tuple[str, float], str]:
        """Give the values that a method cannot have, with the reason."""
        return {
            (row, x): reason
            for row, method in self.methods.items()
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

    def _curve_table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Make a table of curves, with a row for each value."""
        columns, reasons = {}, self.impossible()
        for curve in self.curves(frame):
            for metric, entries in curve.metrics.items():
                found = {f"{x:g}": entry for x, entry in zip(curve.x, entries, strict=True)}
                for row, x in reasons:
                    if row == curve.name:
                        found[f"{x:g}"] = Entry(note="impossible")
                shown_as = find_metric(metric)
                columns[Column(shown_as.title, curve.name, shown_as.digits)] = found
        impossible = (
            f"{row} with {self.symbol} = {x:g} is impossible: {why}"
            for (row, x), why in reasons.items()
        )
        return Table.of_columns(
            self.title,
            [f"{x:g}" for x in self.values],
            columns,
            corner=self.symbol,
            notes=(*self._notes(preset), *impossible),
        )

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


def _plain_columns(data: str) -> list[PaperColumn]:
    titles = {metric: find_metric(metric).title for metric in METRICS}
    return [PaperColumn(group="", title=t, data=data, metric=m) for m, t in titles.items()]


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
