"""Presets of ``layline reproduce``: the paper's data and recipe, or small stand-ins."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from layline.backbones import find as find_backbone
from layline.data import SOURCES
from layline.training.config import Section, combine, read_toml, validate
from layline.training.recipes import default_backbone
from layline.utils.errors import UserError
from layline.utils.validation import check_known


class PresetData(Section):
    """What is used for a data set of the paper: the data set itself or a stand-in.

    Attributes:
        source: Name of a data source.
        partitions: How many of its partitions are used; fewer if it has fewer.
        options: Options of the source.
        root: Its folder or file.
    """

    source: str
    partitions: int
    options: dict[str, Any] = Field(default_factory=dict)
    root: Path | None = None

    def seeds(self) -> list[int]:
        """List the partitions, which are the seeds of the runs as well."""
        return list(range(min(self.partitions, SOURCES[self.source].partitions or self.partitions)))

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.source} ({options})" if options else self.source


class Preset(Section):
    """The data and the settings that all runs of a reproduction share.

    Attributes:
        summary: A short description.
        data: What is used for each data set of the paper.
        settings: Settings of every run.
        layouts: Settings by method for the figure of layouts.
    """

    summary: str
    data: dict[str, PresetData]
    settings: dict[str, Any] = Field(default_factory=dict)
    layouts: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def settings_for(self, source: str) -> dict[str, Any]:
        """Give the settings for a source; a table does not use those of an image network."""
        own = default_backbone(source, "paper")
        name = self.settings.get("backbone", {}).get("name")
        if name is None or find_backbone(own).kind == find_backbone(name).kind:
            return self.settings
        return {section: tree for section, tree in self.settings.items() if section != "backbone"}

    def with_settings(self, tree: Mapping[str, Any]) -> "Preset":
        """Override settings of all runs."""
        layouts = {method: combine(own, tree) for method, own in self.layouts.items()}
        return self.model_copy(
            update={"settings": combine(self.settings, tree), "layouts": layouts}
        )

    def with_roots(self, roots: Mapping[str, Path]) -> "Preset":
        """Use the paper's data where their folders are given, by source."""
        paper = load_presets()["paper"].data
        for source in roots:
            check_known("root", source, dict.fromkeys(own.source for own in paper.values()))
        data = {
            name: own.model_copy(
                update={"root": roots[own.source], "partitions": self.data[name].partitions}
            )
            if (own := paper[name]).source in roots
            else used
            for name, used in self.data.items()
        }
        return self.model_copy(update={"data": data})

    def with_source(self, source: str, root: Path | None) -> "Preset":
        """Use one data set in place of all of the paper's."""
        SOURCES.find(source)
        data = {
            name: PresetData(source=source, partitions=used.partitions, root=root)
            for name, used in self.data.items()
        }
        return self.model_copy(update={"data": data})

    def with_partitions(self, count: int) -> "Preset":
        """Use another number of partitions of each data set."""
        for name, used in self.data.items():
            most = SOURCES[used.source].partitions
            if most is not None and count > most:
                raise UserError(f"{name} has {most} partitions, got {count}.")
        data = {
            name: used.model_copy(update={"partitions": count}) for name, used in self.data.items()
        }
        return self.model_copy(update={"data": data})

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
    found = {}
    for name, tree in read_toml(Path(__file__).with_name("presets.toml")).items():
        common = tree.pop("common")
        tree["data"] = {each: combine(common, own) for each, own in tree["data"].items()}
        found[name] = validate(Preset, tree)
    return found
