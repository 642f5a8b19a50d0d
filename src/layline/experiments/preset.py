"""A preset: the data and the settings that all cells of a reproduction share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layline import data
from layline.experiments.cells import Cell
from layline.experiments.decided import check_free
from layline.experiments.stands import PAPER_DATA, TITLES, Stand, at_most
from layline.features import find as find_features
from layline.registry import check_known, find
from layline.training.resolution import resolved
from layline.training.settings import combine, configuration

# What the grids decide, and what to do instead.
_DECIDED = {
    "data.source": "use --source",
    "data.root": "use --root",
    "data.partition": "every cell has its own, use --partitions",
    "training.seed": "it is the number of the partition",
    "training.decode": "it is the paper's, the most probable class",
    "head.method": "every row has its own",
}


@dataclass(frozen=True)
class Preset:
    """The data and the settings that all cells of a reproduction share.

    Attributes:
        summary: What it is, in one line.
        stands: What stands for each data set of ``PAPER_DATA``.
        settings: By section, as for :func:`layline.training.settings.configuration`.
        options: What a source is asked for whatever it stands for.
        layouts: Settings by method for the figure of layouts, whose few runs may be longer.
    """

    summary: str
    stands: Mapping[str, Stand]
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    layouts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def cell(
        self,
        name: str,
        partition: int,
        method: str,
        settings: Mapping[str, Any],
        labels: Mapping[str, str],
    ) -> Cell:
        """Make one cell.

        The number of the partition is the seed too: runs that share their first weights would
        share the luck of those in every number, and ± would not show it.

        Args:
            name: A data set of ``PAPER_DATA``.
            partition: Which partition of it.
            method: Name of the head.
            settings: What this cell has of its own; it decides over everything else.
            labels: What the cell is called beside what follows from the other arguments.
        """
        stand = self.stands[name]
        tree = combine(
            {"data": {"source": stand.source, "options": self.options.get(stand.source, {})}},
            {"data": {"options": stand.options}},
            {} if stand.root is None else {"data": {"root": str(stand.root)}},
            {"report": {"enabled": False}},
            self.settings_for(stand.source),
            {"data": {"partition": partition}, "training": {"seed": partition}},
            {"head": {"method": method}},
            settings,
        )
        own = {"data": name, "source": str(stand), "method": method}
        numbers = {"partition": str(partition), "seed": str(partition)}
        return Cell(resolved(configuration(tree)), {**own, **labels, **numbers})

    def settings_for(self, source: str) -> dict[str, Any]:
        """Give the settings that fit a source: a table has no use for what reads images."""
        own = find("source", source, data.SOURCES).features
        name = self.settings.get("features", {}).get("name")
        if name is None or find_features(own).kind == find_features(name).kind:
            return dict(self.settings)
        return {section: tree for section, tree in self.settings.items() if section != "features"}

    def with_settings(self, tree: Mapping[str, Any]) -> "Preset":
        """Lay settings over those of the preset."""
        check_free(tree, _DECIDED)
        return replace(
            self,
            settings=combine(self.settings, tree),
            layouts={method: combine(own, tree) for method, own in self.layouts.items()},
        )

    def with_roots(self, roots: Mapping[str, Path]) -> "Preset":
        """Take the paper's own data where their place is known.

        Args:
            roots: Folder or file by source, such as ``adience``.
        """
        known = dict.fromkeys(source for source, _ in PAPER_DATA.values())
        for source in roots:
            check_known("--root", source, known)
        stands = {
            name: replace(
                stand,
                source=source,
                options=options,
                root=roots[source],
                partitions=at_most(stand.partitions, source),
            )
            for name, (source, options) in PAPER_DATA.items()
            for stand in [self.stands[name]]
            if source in roots
        }
        return replace(self, stands={**self.stands, **stands})

    def with_source(self, source: str, root: Path | None) -> "Preset":
        """Let one data set stand for all of the paper's; its options are settings."""
        find("source", source, data.SOURCES)
        return replace(
            self,
            stands={
                name: Stand(source, at_most(stand.partitions, source), root=root)
                for name, stand in self.stands.items()
            },
        )

    def with_partitions(self, count: int) -> "Preset":
        """Use another number of partitions of each data set."""
        for name, stand in self.stands.items():
            most = data.SOURCES[stand.source].partitions
            if most is not None and count > most:
                raise ValueError(
                    f"--partitions must be at most {most} for {TITLES[name]}, got {count}: "
                    f"{stand.source} has {most} of them"
                )
        stands = {name: replace(stand, partitions=count) for name, stand in self.stands.items()}
        return replace(self, stands=stands)

    def missing(self, names: Iterable[str]) -> str:
        """Say which data are still to be pointed at, or nothing.

        Args:
            names: The data sets of ``PAPER_DATA`` that are wanted.
        """
        stands = [self.stands[name] for name in names]
        sources = dict.fromkeys(stand.source for stand in stands if stand.is_missing)
        return "; ".join(
            f"--root {source}=PATH must be given: the data come from {origin}"
            if origin
            else f"--root PATH must be given: {source} reads data of your own"
            for source in sources
            for origin in [data.SOURCES[source].origin]
        )
