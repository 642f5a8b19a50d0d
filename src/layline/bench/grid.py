"""A grid: data sets × methods × recipes × features × settings × seeds, each one run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import Field, PositiveInt

from layline import data, heads
from layline.bench.baselines import (
    Competitor,
    SearchSpace,
    competitor_config,
    parse_competitor,
)
from layline.bench.cells import Cell, with_content
from layline.geometry.decoding import DECODINGS, decode_name
from layline.training.config import (
    Config,
    Section,
    Tree,
    combine,
    parse_settings,
    read_toml,
    setting_at,
    validate,
)
from layline.training.recipes import RECIPES, recipe_decoding, resolve_config
from layline.utils.errors import UserError
from layline.utils.plugins import load_plugins
from layline.utils.validation import check_known

ALL_METHODS = "all"
_USUAL_REFERENCE = "classification"
# Settings that a grid makes itself, and where to say them instead.
_RESERVED = {
    "recipe": "name it in recipes (--recipe)",
    "data.source": "name it in data",
    "data.partition": "it follows from seeds",
    "head.method": "name it in methods",
    "training.seed": "name it in seeds",
    "training.budget": "a run of a grid does not depend on the clock, set training.epochs",
    "training.decode": "it is the first of decodings (--decode)",
    "plugins": "name them in plugins of the grid (--plugin)",
}


class GridData(Section):
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
    tune: SearchSpace | None = None


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
    """A grid of runs.

    Attributes:
        data: The data sets.
        methods: Names of methods, or ``["all"]``; among them may be variants with a name, a method
            and options.
        seeds: Each is the seed of a run and, where the source splits at random, of the partition.
            A source with a fixed number of partitions takes the seed modulo that number.
        recipes: Names of recipes; with several, each is compared with the first.
        backbones: Names of backbones; if none, what each data set's settings or source choose.
        decodings: How the distributions of a run are read; the first also chooses its epoch. If
            none, each recipe chooses by its own, and all of these are read.
        settings: Settings of every run.
        tune: Settings to try for every method alike, each with its values. On each data set and
            seed the values that are best on validation are chosen for each method.
        tune_seeds: The seeds that settings are tried with, if not all: what is best on their
            validation parts, in the mean, is chosen for all seeds, and the others run only that.
        threads: Threads of each run.
        reference: The method that the others are compared with; if none is named
            ``classification`` where it is among them, or the first one.
        competitors: Estimators of other libraries that are fitted to the same tables and frozen
            features, such as ``sklearn.ensemble:HistGradientBoostingClassifier(max_iter=50)``. Each
            has a ``tune`` of its own.
        plugins: Files, packages and modules with methods, features or sources from outside.
    """

    data: Annotated[list[GridData], Field(min_length=1)]
    methods: list[str | Variant] = Field(default=[ALL_METHODS], min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default=[0], min_length=1)
    recipes: list[str] = Field(default=[Config.model_fields["recipe"].default], min_length=1)
    backbones: list[str] = Field(default_factory=list)
    decodings: list[str] = Field(default_factory=list)
    settings: dict[str, Any] = Field(default_factory=dict)
    tune: SearchSpace = Field(default_factory=dict)
    tune_seeds: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    threads: PositiveInt = 1
    reference: str | None = None
    competitors: list[str | Competitor] = Field(default_factory=list)
    plugins: list[str] = Field(default_factory=list)

    def cells(self, say: Callable[[str], None] | None = None) -> list[Cell]:
        """List the runs; what is wrong with their settings is said now, before any of them.

        Args:
            say: Told that data are read, if it takes long: runs are known by their content.
        """
        load_plugins(self.plugins)
        variants = self.variants()
        for variant in variants:
            heads.HEADS.find(variant.method)
        competitors = [
            parse_competitor(each) if isinstance(each, str) else each for each in self.competitors
        ]
        for competitor in competitors:
            competitor.check()
        for recipe in self.recipes:
            check_known("recipes", recipe, RECIPES)
        for decoding in self.decodings:
            check_known("decodings", decoding, DECODINGS)
        _check_different("data", [each.name for each in self.data])
        names = [each.name for each in variants] + [each.name for each in competitors]
        _check_different("methods", names)
        _check_different("seeds", [str(seed) for seed in self.seeds])
        if not set(self.tune_seeds) <= set(self.seeds):
            raise UserError(
                f"tune_seeds must be among seeds, got {self.tune_seeds} beside {self.seeds}: the "
                "runs that choose a setting are among those that are compared; add them to seeds, "
                "where another machine has run them --merge takes their runs"
            )
        _check_different("recipes", self.recipes)
        _check_different("backbone", self.backbones)
        _check_different("decodings", self.decodings)
        own = [each.tune or {} for each in self.data] + [each.tune for each in competitors]
        for tune in (self.tune, *own):
            for key, values in tune.items():
                _check_different(f"the values of {key} to tune", [str(each) for each in values])
        if self.reference is not None:
            check_known("reference", self.reference, names)
        chosen: list[str | None] = [*self.backbones]  # None: what the data set's settings choose
        cells = (
            self._cell(entry, method, recipe, backbone, combination, seed)
            for entry in self.data
            for combination in _combinations(self.tune if entry.tune is None else entry.tune)
            for seed, method, recipe in product(self.seeds, variants, self.recipes)
            for backbone in chosen or [None]
        )
        others = (
            self._cell(entry, each, recipe, backbone, (setting, {}), seed)
            for entry, competitor in product(self.data, competitors)
            for setting, each in competitor.settings()
            for seed, recipe in product(self.seeds, self.recipes)
            for backbone in chosen or [None]
        )
        return with_content([*cells, *others], say)

    def only(self, names: Sequence[str]) -> "Grid":
        """Give the part of the grid that is about some of its data sets, in its own order."""
        for name in names:
            check_known("only", name, [each.name for each in self.data])
        return self.model_copy(update={"data": [each for each in self.data if each.name in names]})

    def choosing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Keep the cells that are run before a setting is chosen: all, unless few seeds choose."""
        seeds = self.tune_seeds or self.seeds
        return [cell for cell in cells if int(cell.labels["seed"]) in seeds]

    def variants(self) -> list[Variant]:
        """List the methods, each with its options."""
        named: list[str | Variant] = []
        for each in self.methods:
            named += heads.names() if each == ALL_METHODS else [each]
        return [
            Variant(name=each, method=each) if isinstance(each, str) else each for each in named
        ]

    def read_by(self) -> list[str]:
        """Name the decodings that the results are read by, the first one first."""
        own = (
            decode_name(recipe_decoding(recipe, self.settings, entry.settings))
            for recipe, entry in product(self.recipes, self.data)
        )
        return self.decodings or list(dict.fromkeys(own))

    def against(self) -> str:
        """Name the method that the others are compared with."""
        names = [each.name for each in self.variants()]
        return self.reference or (_USUAL_REFERENCE if _USUAL_REFERENCE in names else names[0])

    def _cell(
        self,
        entry: GridData,
        variant: Variant | Competitor,
        recipe: str,
        backbone: str | None,
        combination: tuple[str, Tree],
        seed: int,
    ) -> Cell:
        partitions = data.SOURCES.find(entry.source).partitions
        own: Tree = {
            "recipe": recipe,
            "data": {
                "source": entry.source,
                "partition": seed if partitions is None else seed % partitions,
                "options": entry.options,
            },
            "training": {"seed": seed},
            "report": {"enabled": False},
        }
        if isinstance(variant, Variant):
            own["head"] = {"method": variant.method, "options": variant.options}
        if self.plugins:
            own["plugins"] = self.plugins
        if entry.root is not None:
            own["data"]["root"] = str(entry.root)
        if backbone is not None:
            own["backbone"] = {"name": backbone}
        if self.decodings:
            own["training"]["decode"] = self.decodings[0]
        setting, tuned = combination
        try:
            given = combine(self.settings, entry.settings, tuned)
            check_not_reserved(given, _RESERVED)
            config = resolve_config(given, own)
            name = str(config.backbone.name)  # that of the other methods on this data set
            if isinstance(variant, Competitor):
                config = competitor_config(config)
        except ValueError as error:
            raise UserError(f"{entry.name}, {variant.name}: {error}") from None
        if config.backbone.freeze:  # so that the features are extracted once, for all cells
            config = config.model_copy(
                update={"data": config.data.model_copy(update={"cache": True})}
            )
        labels = {
            "data": entry.name,
            "method": variant.name,
            "recipe": recipe,
            "backbone": name,
            "setting": setting,
            "seed": str(seed),
        }
        competitor = variant if isinstance(variant, Competitor) else None
        return Cell(config, labels, self.threads, competitor=competitor)

    def to_toml(self) -> str:
        """Write the grid out in full; what is None is left out."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def _check_different(argument: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise UserError(
            f"{argument} must be different, got {', '.join(names)}: what is there "
            "twice would count twice"
        )


def _combinations(tune: SearchSpace) -> Iterator[tuple[str, Tree]]:
    """Give each combination of the values to tune: its label, and its settings."""
    for values in product(*tune.values()):
        chosen = list(zip(tune, values, strict=True))
        settings = combine({}, *(_nested(key, value) for key, value in chosen))
        yield ", ".join(f"{key}={value}" for key, value in chosen), settings


def _nested(key: str, value: Any) -> Tree:
    """Give a setting such as ``training.seed`` as a tree of sections."""
    name, _, rest = key.partition(".")
    return {name: _nested(rest, value) if rest else value}


def check_not_reserved(settings: Mapping[str, Any], reserved: Mapping[str, str]) -> None:
    """Refuse settings that a grid would overrule: their user would believe that they hold.

    Args:
        settings: By section, such as ``{"training": {"seed": 3}}``.
        reserved: Names such as ``training.seed``, each with what to do instead.
    """
    for name, cure in reserved.items():
        section, _, key = name.rpartition(".")
        values = settings.get(section, {}) if section else settings
        if not isinstance(values, Mapping):  # else the grid's own settings would replace it
            raise UserError(
                f"{section}: must be a section of settings, got {values!r}: set {section}.KEY=VALUE"
            )
        if key in values:
            raise UserError(f"{name} must not be set, got {values[key]!r}: {cure}")


def parse_tune(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read what to tune, such as ``training.head_learning_rate=[0.01, 0.001]``."""
    tune = {}
    for text in texts:
        key = text.partition("=")[0].strip()
        value: Any = parse_settings([text])
        for name in key.split("."):
            value = value[name]
        if not isinstance(value, list):
            raise UserError(
                f"--tune must be a setting with a list of values, got {text!r}: "
                f"write {key}=[{value}, …]"
            )
        tune[key] = value
    return tune


def read_grid(
    file: Path | None,
    data_folder: Path | None = None,
    given: Tree | None = None,
    settings: Tree | None = None,
    tune: dict[str, list[Any]] | None = None,
) -> Grid:
    """Read a grid from its file, and lay the options of a command over it.

    Args:
        file: TOML file with the grid, if there is one.
        data_folder: Where the relative roots of that file are, if not in the current folder.
        given: Parts of the grid that decide over those of the file.
        settings: Settings of every run, laid over those of the file and of its data sets.
        tune: What to tune, laid over that of the file and of its data sets.
    """
    tree = read_toml(file) if file is not None else {}
    if data_folder is not None:
        for entry in tree.get("data", []):
            if "root" in entry:
                entry["root"] = str(data_folder / entry["root"])
    tree = {**tree, **(given or {})}
    for key, more in (("settings", settings), ("tune", tune)):
        if more:
            tree[key] = combine(tree.get(key, {}), more)
            for entry in tree.get("data", []):
                if key in entry:  # it would decide over the grid's
                    entry[key] = combine(entry[key], more)
    spaces = (tree, *tree.get("data", []))
    for key in {key for each in spaces for key in each.get("tune", {})}:
        value = setting_at(settings or {}, key)
        if value is not None:
            raise UserError(
                f"{key} must not be set, got {value!r}: it is tuned; --tune '{key}=[{value}]' "
                "tries this value alone"
            )
    if not tree.get("data"):
        raise UserError("SOURCES must be given: photo-quality needs no data, or take a --grid")
    return validate(Grid, tree)
