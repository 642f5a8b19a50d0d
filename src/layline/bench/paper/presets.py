"""Presets for the paper's experiments: its own data and recipe, or small stand-ins."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layline.backbones import find as find_backbone
from layline.bench.cells import Cell
from layline.bench.grid import check_not_reserved
from layline.bench.paper.numbers import CATEGORIES
from layline.data import SOURCES
from layline.training.config import combine
from layline.training.recipes import RECIPES, default_backbone, resolve_config
from layline.utils.errors import UserError
from layline.utils.validation import check_known, find_known


@dataclass(frozen=True)
class PresetData:
    """What is used for a data set of the paper: the set itself or a stand-in.

    Attributes:
        source: Name of a source of ``layline.data``.
        partitions: How many of its partitions are used, from the first.
        options: The source's own options.
        root: Its folder or file, for a source that has one.
    """

    source: str
    partitions: int
    options: Mapping[str, Any] = field(default_factory=dict)
    root: Path | None = None

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.source} ({options})" if options else self.source


def _available(count: int, source: str) -> int:
    """Limit a number of partitions to those that the protocol of a source has."""
    return min(count, SOURCES[source].partitions or count)


def _own_data(source: str, **options: str) -> PresetData:
    return PresetData(source, _available(10, source), options)  # the paper uses up to 10 partitions


PAPER_DATA = {
    "historical-color": _own_data("historical-color"),
    "adience": _own_data("adience"),
    **{name: _own_data("image-aesthetics", category=name) for name in CATEGORIES.values()},
}
TITLES = {"historical-color": "Historical Color", "adience": "Adience Face"} | {
    name: f"Image Aesthetics, {name}" for name in CATEGORIES.values()
}
# Settings that the grids make themselves, and what to do instead.
_RESERVED = {
    "data.source": "use --source",
    "data.root": "use --root",
    "data.partition": "every cell has its own, use --partitions",
    "training.seed": "it is the number of the partition",
    "training.budget": "a run of a grid does not depend on the clock, use --epochs",
    "training.decode": "it is the paper's, the most probable class",
    "head.method": "every row has its own",
}


@dataclass(frozen=True)
class Preset:
    """The data and the settings that all cells of a reproduction share.

    Attributes:
        summary: What it is, in one line.
        data: What is used for each data set of ``PAPER_DATA``.
        settings: By section, as for :func:`layline.training.recipes.configuration`.
        options: By source, its options for every data set that it is used for.
        layouts: Settings by method for the figure of layouts, whose few runs may be longer.
    """

    summary: str
    data: Mapping[str, PresetData]
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
            settings: Those of this cell alone; they override all others.
            labels: What the cell is called beside what follows from the other arguments.
        """
        used = self.data[name]
        tree = combine(
            {"recipe": "paper"},
            {"data": {"source": used.source, "options": self.options.get(used.source, {})}},
            {"data": {"options": used.options}},
            {} if used.root is None else {"data": {"root": str(used.root)}},
            {"report": {"enabled": False}},
            self._settings_for(used.source),
            {"data": {"partition": partition}, "training": {"seed": partition}},
            {"head": {"method": method}},
            settings,
        )
        own = {"data": name, "source": str(used), "method": method}
        numbers = {"partition": str(partition), "seed": str(partition)}
        return Cell(resolve_config(tree), {**own, **labels, **numbers})

    def _settings_for(self, source: str) -> dict[str, Any]:
        """Give the settings that fit a source: a table has no use for what reads images."""
        own = default_backbone(source, RECIPES["paper"])
        name = self.settings.get("backbone", {}).get("name")
        if name is None or find_backbone(own).kind == find_backbone(name).kind:
            return dict(self.settings)
        return {section: tree for section, tree in self.settings.items() if section != "backbone"}

    def with_settings(self, tree: Mapping[str, Any]) -> "Preset":
        """Lay settings over those of the preset."""
        check_not_reserved(tree, _RESERVED)
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
        known = dict.fromkeys(own.source for own in PAPER_DATA.values())
        for source in roots:
            check_known("--root", source, known)
        data = dict(self.data)
        for name, own in PAPER_DATA.items():
            if own.source in roots:
                partitions = _available(data[name].partitions, own.source)
                data[name] = replace(own, root=roots[own.source], partitions=partitions)
        return replace(self, data=data)

    def with_source(self, source: str, root: Path | None) -> "Preset":
        """Use one data set for all of the paper's; its options are settings."""
        find_known("source", source, SOURCES)
        data = {
            name: PresetData(source, _available(used.partitions, source), root=root)
            for name, used in self.data.items()
        }
        return replace(self, data=data)

    def with_partitions(self, count: int) -> "Preset":
        """Use another number of partitions of each data set."""
        for name, used in self.data.items():
            most = SOURCES[used.source].partitions
            if most is not None and count > most:
                raise UserError(
                    f"--partitions must be at most {most} for {TITLES[name]}, got {count}: "
                    f"{used.source} has {most} of them"
                )
        data = {name: replace(used, partitions=count) for name, used in self.data.items()}
        return replace(self, data=data)

    def missing(self, names: Iterable[str]) -> str:
        """Say of which data sets of ``PAPER_DATA`` the root is still to be given, or nothing."""
        used = [self.data[name] for name in names]
        sources = {each.source: SOURCES[each.source] for each in used if each.root is None}
        return "; ".join(
            f"--root {name}=PATH must be given: the data come from {source.origin}"
            if source.origin
            else f"--root PATH must be given: {name} reads data of your own"
            for name, source in sources.items()
            if source.needs_root
        )


def _photo_quality(levels: int, distortion: str) -> PresetData:
    return PresetData("photo-quality", 2, {"levels": levels, "distortion": distortion})


PRESETS: dict[str, Preset] = {
    "small": Preset(
        "embedded photo quality and a small convnet: minutes on two cores, other numbers",
        {
            "historical-color": _photo_quality(5, "all"),
            "adience": _photo_quality(8, "all"),
            "nature": _photo_quality(6, "all"),
            "animals": _photo_quality(4, "all"),
            "urban": _photo_quality(5, "noise"),
            "people": _photo_quality(7, "noise"),
        },
        {
            "data": {"augmentation": "flip", "workers": 0},
            "backbone": {"name": "convnet", "weights": "none", "options": {"channels": 16}},
            # from scratch, in so few steps, the paper's rates would be too low
            "training": {
                "epochs": 8,
                "batch_size": 16,
                "learning_rate": 0.003,
                "head_learning_rate": 0.03,
                "schedule": "cosine",
                "device": "cpu",
            },
        },
        {
            "photo-quality": {
                "size": 32,
                "per_class": 60,
                "validation_per_class": 20,
                "test_per_class": 40,
            }
        },
        # in two dimensions free proxies find their order at a high rate only, and a line shrinks
        # at it: see docs/decisions/lines-from-scratch.md
        {
            method: {"training": {"epochs": 48, "head_learning_rate": rate}}
            for method, rate in {
                "hard-linear": 0.01,
                "hard-semicircular": 0.1,
                "soft-poisson": 0.1,
                "soft-binomial": 0.1,
            }.items()
        },
    ),
    "paper": Preset(
        "the paper's data and recipe: VGG-16 from ImageNet, 48 epochs; wants a GPU",
        PAPER_DATA,
        # the rest is the paper's recipe, as for every preset
        {"backbone": {"name": "vgg16", "weights": "imagenet"}, "data": {"size": 224}},
    ),
}
