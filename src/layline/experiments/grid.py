"""A grid: data sets × methods × features × settings × seeds, each combination one run."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from layline import data, heads
from layline.experiments.cells import Cell
from layline.experiments.decided import check_free
from layline.geometry.decoding import DECODINGS
from layline.registry import check_known, find
from layline.training.config import Section
from layline.training.resolution import resolved
from layline.training.settings import Tree, combine, configuration

ALL = "all"
Tries = dict[str, Annotated[list[Any], Field(min_length=1)]]
# What a grid decides, and where.
_DECIDED = {
    "data.source": "name it in data",
    "data.partition": "it follows from seeds",
    "head.method": "name it in methods",
    "training.seed": "name it in seeds",
    "training.decode": "it is the first of decodings (--decode)",
}


class DataSet(Section):
    """A data set of a grid.

    Attributes:
        name: What tables call it.
        source: Where it comes from, see ``layline data list``.
        root: Its folder or file.
        options: The source's own options.
        settings: Settings of the runs on it, as in a run's ``config.toml``.
        tune: What is tuned on it, if not what the grid says.
    """

    name: str
    source: str
    root: Path | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    tune: Tries | None = None


class Variant(Section):
    """A method with options of its own.

    Attributes:
        name: What tables call it.
        method: The method, see ``layline methods``.
        options: Its options, such as ``{"norm": 3.0}``.
    """

    name: str
    method: str
    options: dict[str, Any] = Field(default_factory=dict)


class Grid(Section):
    """What to compare on what.

    Attributes:
        data: The data sets.
        methods: Names of methods, or ``["all"]``; among them may be variants with a name, a method
            and options.
        seeds: Each is the seed of a run and, where the source splits at random, of the partition.
            A source with a fixed number of partitions takes the seed modulo that number.
        features: Names of features; if none, what each data set's settings or source choose.
        decodings: How the distributions of a run are read; the first also chooses its epoch.
        settings: Settings of every run.
        tune: Settings to try for every method alike, each with its values. On each data set and
            seed a method is judged by the values with the lowest validation error.
        threads: Threads of each run.
        reference: The method that the others are compared with.
    """

    data: Annotated[list[DataSet], Field(min_length=1)]
    methods: list[str | Variant] = Field(default=[ALL], min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default=[0], min_length=1)
    features: list[str] = Field(default_factory=list)
    decodings: list[str] = Field(default=["mode"], min_length=1)
    settings: dict[str, Any] = Field(default_factory=dict)
    tune: Tries = Field(default_factory=dict)
    threads: PositiveInt = 1
    reference: str = "hard-linear"

    def cells(self) -> list[Cell]:
        """List the runs; what is wrong with their settings is said now, before any of them."""
        variants = self.variants()
        for variant in variants:
            check_known("methods", variant.method, heads.HEADS)
        for decoding in self.decodings:
            check_known("decodings", decoding, DECODINGS)
        _check_different("data", [each.name for each in self.data])
        _check_different("methods", [each.name for each in variants])
        _check_different("seeds", [str(seed) for seed in self.seeds])
        _check_different("features", self.features)
        _check_different("decodings", self.decodings)
        given: list[str | None] = [*self.features]
        return [
            self._cell(one, variant, features, tried, seed)
            for one in self.data
            for tried in _tries(self.tune if one.tune is None else one.tune)
            for seed, variant in product(self.seeds, variants)
            for features in given or [None]
        ]

    def variants(self) -> list[Variant]:
        """List the methods, each with its options."""
        named: list[str | Variant] = []
        for each in self.methods:
            named += heads.names() if each == ALL else [each]
        return [
            Variant(name=each, method=each) if isinstance(each, str) else each for each in named
        ]

    def _cell(
        self,
        one: DataSet,
        variant: Variant,
        features: str | None,
        tried: tuple[str, Tree],
        seed: int,
    ) -> Cell:
        partitions = find(f"source of {one.name}", one.source, data.SOURCES).partitions
        own: Tree = {
            "data": {
                "source": one.source,
                "partition": seed if partitions is None else seed % partitions,
                "options": one.options,
            },
            "head": {"method": variant.method, "options": variant.options},
            "training": {"seed": seed, "decode": self.decodings[0]},
            "report": {"enabled": False},
        }
        if one.root is not None:
            own["data"]["root"] = str(one.root)
        if features is not None:
            own["features"] = {"name": features}
        setting, tree = tried
        try:
            given = combine(self.settings, one.settings, tree)
            check_free(given, _DECIDED)
            config = resolved(configuration(given, own))
        except ValueError as error:
            raise ValueError(f"{one.name}, {variant.name}: {error}") from None
        if config.features.freeze:  # so that the features are extracted once, for all cells
            config = config.model_copy(
                update={"data": config.data.model_copy(update={"cache": True})}
            )
        labels = {
            "data": one.name,
            "method": variant.name,
            "features": str(config.features.name),
            "setting": setting,
            "seed": str(seed),
        }
        return Cell(config, labels, self.threads)


def _check_different(argument: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(
            f"{argument} must be different, got {', '.join(names)}: what is there "
            "twice would count twice"
        )


def _tries(tune: Tries) -> Iterator[tuple[str, Tree]]:
    """Give each combination of the settings to tune: how it is called, and as a tree."""
    keys = list(tune)
    for values in product(*tune.values()):
        tree: Tree = {}
        for key, value in zip(keys, values, strict=True):
            branch: Any = value
            for name in reversed(key.split(".")):
                branch = {name: branch}
            tree = combine(tree, branch)
        named = (f"{key}={value}" for key, value in zip(keys, values, strict=True))
        yield ", ".join(named), tree
