"""The tables and figures of the paper: grids of runs, and tables with the paper's numbers.

They are described in ``reproductions.toml``; their data and settings, the paper's or small
stand-ins, are in ``presets.toml``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import pandas as pd
from pydantic import Field

from layline.backbones import find as find_backbone
from layline.bench.grid import Cell, Grid, GridData, Variant
from layline.bench.statistics import METRICS, select_decoding
from layline.bench.tables import Column, Entry, Table, summary_entries
from layline.data import SOURCES
from layline.training.config import Section, Tree, combine, read_toml, validate
from layline.training.recipes import default_backbone
from layline.training.report_data import Snapshot
from layline.training.run_folder import RunFolder
from layline.utils.validation import UserError, check_known

REPORTED = ("accuracy", "mae")
CATEGORIES = ("nature", "animals", "urban", "people")
OVERALL = "overall"  # the mean over the four categories of Image Aesthetics
_DECODING = "mode"  # the most probable class, equation (4)
# The paper draws the validation split after the first, this and the last epoch.
_EPOCHS, _MIDDLE = 48, 13
_SPREAD = "± is the standard deviation over the partitions, in the population form."


class PresetData(Section):
    """What is used for a data set of the paper: the data set itself or a stand-in."""

    source: str
    partitions: int  # fewer are used if the source has fewer
    options: dict[str, Any] = Field(default_factory=dict)
    root: Path | None = None

    def seeds(self) -> list[int]:
        """List the partitions, which are the seeds of the runs as well."""
        return list(range(min(self.partitions, SOURCES[self.source].partitions or self.partitions)))

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.source} ({options})" if options else self.source


class Preset(Section):
    """The data and the settings that all runs of a reproduction share."""

    summary: str
    data: dict[str, PresetData]  # by the names of the paper
    settings: dict[str, Any] = Field(default_factory=dict)
    # settings by method for the figure of layouts
    layouts: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def settings_for(self, source: str) -> dict[str, Any]:
        """Give the settings for a source; a table does not use those of an image network."""
        own = default_backbone(source, "paper")
        name = self.settings.get("backbone", {}).get("name")
        if name is None or find_backbone(own).kind == find_backbone(name).kind:
            return self.settings
        return {section: tree for section, tree in self.settings.items() if section != "backbone"}

    def adapt(
        self,
        source: str | None = None,
        roots: Mapping[str, Path] | None = None,
        partitions: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Use a source in place of all data, the folders of sources, or other settings."""
        roots, settings, data = roots or {}, settings or {}, dict(self.data)
        paper = load_presets()["paper"].data
        sources = {each.source for each in paper.values()} if source is None else {source}
        for each in roots:
            check_known("root", each, sorted(sources))
        for name, used in data.items():
            if source is not None:
                SOURCES.find(source)
                used = PresetData(source=source, partitions=used.partitions)
            elif paper[name].source in roots:
                used = paper[name].model_copy(update={"partitions": used.partitions})
            update = {"partitions": partitions or used.partitions, "root": roots.get(used.source)}
            data[name] = used.model_copy(update=update)
        layouts = {method: combine(own, settings) for method, own in self.layouts.items()}
        settings = combine(self.settings, settings)
        return self.model_copy(update={"data": data, "settings": settings, "layouts": layouts})

    def check_roots(self, names: Iterable[str]) -> None:
        """Raise an error if the folder of a data set is not given."""
        for used in (self.data[name] for name in names):
            source = SOURCES[used.source]
            if source.needs_root and used.root is None:
                origin = f" The data come from {source.origin}." if source.origin else ""
                raise UserError(f"The folder of {used.source} is missing (root).{origin}")


@cache
def load_presets() -> dict[str, Preset]:
    """Read ``presets.toml``."""
    presets = {}
    for name, tree in read_toml(Path(__file__).with_name("presets.toml")).items():
        common = tree.pop("common")
        tree["data"] = {each: combine(common, own) for each, own in tree["data"].items()}
        presets[name] = validate(Preset, tree)
    return presets


class PaperColumn(Section):
    """A column of a table of the paper: its headings, data set and metric."""

    group: str
    title: str
    data: str
    metric: str


class Method(Section):
    """A method with options of its head; of a curve, with the values that it can have."""

    method: str
    options: dict[str, Any] = Field(default_factory=dict)
    values: list[float] | None = None


class Reproduction(Section):
    """A table or a figure of the paper."""

    title: str
    methods: dict[str, Method]  # the methods, by the paper's names
    # the data sets; those of a table follow from its columns
    data: list[str] = Field(default_factory=list)
    caption: str = ""  # of a table
    columns: list[PaperColumn] = Field(default_factory=list)  # of a table
    printed: str = ""  # the numbers that the paper prints, a line for each method
    symbol: str = ""  # of a curve: the name of the setting on the x axis
    key: str = ""  # of a curve: dim, or the option of the head that is varied
    values: list[float] = Field(default_factory=list)  # of a curve: the values of the setting
    # of a curve: the metrics that the figure shows
    drawn: list[str] = Field(default=["mae", "accuracy"])
    layouts: bool = False  # whether it is the figure of layouts in two dimensions
    notes: list[str] = Field(default_factory=list)  # sentences under its table

    def data_sets(self) -> list[str]:
        """Name the data sets of the paper that it needs."""
        names = list(self.data)
        for column in self.columns:
            names += CATEGORIES if column.data == OVERALL else [column.data]
        return list(dict.fromkeys(names))

    def variants(self, preset: Preset) -> list[Variant]:
        """List the methods with their options, and of a curve with each value."""
        variants = []
        for row, method in self.methods.items():
            own: Tree = {"name": row, "method": method.method, "options": method.options}
            if self.layouts:
                more = {"head": {"dim": 2}, "report": {"enabled": True, "mistakes": 0}}
                own["settings"] = combine(preset.layouts.get(method.method, {}), more)
            if not self.values:
                variants.append(Variant(**own))
            for x in method.values or self.values:
                own["name"] = self._name(row, x)
                if self.key == "dim":
                    own["settings"] = {"head": {"dim": int(x)}}
                else:
                    own["options"] = {self.key: x}
                variants.append(Variant(**own))
        return variants

    def cells(self, preset: Preset, threads: int = 1) -> list[Cell]:
        """List its runs: one for each method, data set and partition."""
        cells = []
        for name in self.data_sets():
            used = preset.data[name]
            grid = Grid(
                data=[GridData(name=name, **used.model_dump(exclude={"partitions"}))],
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
        """Make the table of its results."""
        if self.values:
            return self._curve_table(frame, preset)
        runs = _add_overall(select_decoding(frame, _DECODING))
        means = {metric: summary_entries(runs, metric, ("method", "data")) for metric in REPORTED}
        printed = self.paper_numbers()
        columns = {}
        for place, each in enumerate(self.columns):
            entries, metric = {}, METRICS[each.metric]
            digits = 0 if printed else metric.digits  # as many as the paper has
            for row in self.methods:
                entries[row] = means[each.metric].get((row, each.data), Entry())
                mean, _, sd = printed[row][place].partition(" ± ") if printed else ("--", "", "")
                if mean != "--":
                    digits = max(digits, len(mean.partition(".")[2]))
                    spread = float(sd) if sd else None
                    entries[row] = replace(entries[row], reference=float(mean), reference_sd=spread)
            columns[Column(each.title, each.group, digits, metric.lower_is_better)] = entries
        rows, notes = list(self.methods), self._notes(preset)
        return Table.of_columns(self.caption or self.title, rows, columns, notes=notes)

    def curves(self, frame: pd.DataFrame) -> dict[str, dict[str, dict[float, Entry]]]:
        """Give the points of a figure by method, metric and value, without failed ones."""
        runs = select_decoding(frame, _DECODING)
        means = {metric: summary_entries(runs, metric, ("method", "data")) for metric in REPORTED}
        return {
            row: {
                metric: {
                    x: entry
                    for x in self.values
                    for (name, _), entry in entries.items()
                    if name == self._name(row, x) and entry.mean is not None
                }
                for metric, entries in means.items()
            }
            for row in self.methods
        }

    def paper_numbers(self) -> dict[str, list[str]]:
        """Give the paper's numbers as it prints them, by the names of the methods."""
        lines = (map(str.strip, line.split("|")) for line in self.printed.strip().splitlines())
        return {row: numbers for row, *numbers in lines}

    def _curve_table(self, frame: pd.DataFrame, preset: Preset) -> Table:
        """Make a table of curves, with a row for each value."""
        columns = {
            Column(METRICS[metric].title, row, METRICS[metric].digits): {
                f"{x:g}": entry for x, entry in points.items()
            }
            for row, metrics in self.curves(frame).items()
            for metric, points in metrics.items()
        }
        rows = [f"{x:g}" for x in self.values]
        notes = self._notes(preset)
        return Table.of_columns(self.title, rows, columns, corner=self.symbol, notes=notes)

    def _name(self, row: str, x: float) -> str:
        return f"{row}, {self.symbol} = {x:g}"

    def _notes(self, preset: Preset) -> tuple[str, ...]:
        spread = "One run of each method, on the first partition." if self.layouts else _SPREAD
        paper = load_presets()["paper"].data
        others = [
            f"{name} is {preset.data[name]}"
            for name in self.data_sets()
            if preset.data[name].source != paper[name].source
        ]
        notes = [f"Decoding: {_DECODING}, the most probable class. {spread}"]
        notes += [f"Not the paper's data: {'; '.join(others)}."] if others else []
        return (*notes, *self.notes)


def _add_overall(frame: pd.DataFrame) -> pd.DataFrame:
    """Add Image Aesthetics as a whole: for each partition, the mean over all four categories."""
    of_four = frame[frame["data"].isin(CATEGORIES)]
    if of_four.empty:
        return frame
    by = ["method", "seed"]
    complete = of_four.groupby(by)["data"].transform("nunique") == len(CATEGORIES)
    errors = of_four["error"].fillna("").mask(~complete, "Incomplete")
    groups = of_four.assign(error=errors).groupby(by, sort=False)
    whole = groups[list(REPORTED)].agg(lambda values: values.mean(skipna=False))
    whole["error"] = groups["error"].max()  # any text is greater than an empty one
    return pd.concat([frame, whole.reset_index().assign(data=OVERALL)], ignore_index=True)


def read_snapshots(folder: RunFolder) -> dict[str, Snapshot]:
    """Read the layouts that a run recorded, by title: the test split, and validation by epoch."""
    epochs = len(list(folder.layouts.glob("epoch-*.npz")))
    middle = max(1, round(epochs * _MIDDLE / _EPOCHS))  # or the same share of other numbers
    shown = {f"validation, epoch {epoch}": epoch for epoch in (1, middle, epochs)}
    return {
        "test": Snapshot.load(folder.layout("test")),
        **{title: Snapshot.load(folder.layout(epoch)) for title, epoch in shown.items()},
    }


@cache
def load_reproductions() -> dict[str, Reproduction]:
    """Read ``reproductions.toml``."""
    reproductions = {}
    for name, tree in read_toml(Path(__file__).with_name("reproductions.toml")).items():
        for row, method in tree["methods"].items():
            tree["methods"][row] = {"method": method} if isinstance(method, str) else method
        reproductions[name] = validate(Reproduction, tree)
    return reproductions
