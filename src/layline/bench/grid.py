"""A grid: data sets × methods × recipes × backbones × settings × labels × stress × seeds.

Each cell is one run.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PositiveInt

import layline
from layline import data, heads
from layline.bench.baselines import Baseline, SearchSpace, baseline_config, parse_baseline
from layline.bench.statistics import ALL_LABELS, NO_STRESS
from layline.data.stress import Stress
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
from layline.training.recipes import recipe_decoding, resolve_config
from layline.utils.registry import load_plugins
from layline.utils.validation import UserError, check_known

ALL_METHODS = "all"
_REFERENCE = "classification"
_DEFAULTS: Tree = {"report": {"enabled": False, "draws": 0}}  # of every run
# Settings that cannot be set for all runs, and what to do instead.
_RESERVED = {
    "recipe": "list it under recipes",
    "data.source": "list it under data",
    "data.partition": "it follows from the seeds",
    "data.per_class": "list it under labels",
    "data.stress": "list it under stress",
    "head.method": "list it under methods",
    "training.seed": "list it under seeds",
    "training.budget": "runs of a grid do not depend on the clock; set training.epochs",
    "training.decode": "it is the first of the decodings",
    "plugins": "list them under plugins of the grid",
}
# Settings that change no number of a run, and are no part of its key.
_NO_EFFECT: Any = {
    "data": {"workers", "verify", "cache"},
    "training": {"checkpoint_minutes"},
    "report": {"review", "draws"},
    "track": True,
    "plugins": True,
}
Seeds = list[Annotated[int, Field(ge=0)]]
Labels = Annotated[list[PositiveInt | Literal["all"]], Field(min_length=1)]


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    config: Config  # resolved
    # its name in tables, as in {"data": "lev", "method": "hard-linear", "seed": "0"}
    labels: Mapping[str, str] = field(compare=False)
    threads: int = 1  # another number changes the last digits of results
    # digest of its data; None for embedded data and data that cannot be read
    digest: str | None = None
    # an estimator of another library that is fitted instead of our model
    baseline: Baseline | None = None

    @property
    def name(self) -> str:
        """The labels that are neither empty nor as usual, in one line."""
        usual = {"labels": ALL_LABELS, "stress": NO_STRESS}
        shown = {key: value for key, value in self.labels.items() if value != usual.get(key, "")}
        if "labels" in shown:
            shown["labels"] += " per class"
        return " ".join(shown.values())

    @cached_property
    def key(self) -> str:
        """Hash of the configuration, the content of the data and the version of the package."""
        tree = self.config.model_dump(mode="json", exclude=_NO_EFFECT)
        if self.digest is not None:  # the data may be moved
            tree["data"]["root"] = None
            for option in data.SOURCES[self.config.data.source].path_options:
                tree["data"]["options"].pop(option, None)
        weights = self.config.backbone.weights
        if weights is not None and Path(weights).is_file():
            with Path(weights).open("rb") as file:
                tree["backbone"]["weights"] = hashlib.file_digest(file, "sha256").hexdigest()
        # results do not depend on which of several GPUs it is
        tree["training"]["device"] = tree["training"]["device"].partition(":")[0]
        known: list[Any] = [tree, self.threads, self.digest, layline.__version__]
        if self.baseline is not None:
            known.append(self.baseline.model_dump(mode="json", exclude={"name"}))
        text = json.dumps(known, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def data_digest(config: Config, verify: bool = False) -> str | None:
    """Compute the digest of the data of a run; None if they are embedded or cannot be read."""
    own = config.data
    try:
        return data.content_digest(own.source, own.root, own.options, verify)
    except (ValueError, OSError):
        return None  # the run will report the error


class GridData(Section):
    """A data set of a grid: its name in tables, its source, and settings of the runs on it."""

    name: str
    source: str
    root: Path | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    tune: SearchSpace | None = None  # replaces that of the grid
    labels: Labels | None = None  # replaces that of the grid
    group: str | None = None  # data sets of a group have learning curves of their own


class Variant(Section):
    """A method with options of its head, and settings of its runs that override all others."""

    name: str
    method: str
    options: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class Grid(Section):
    """A grid of runs; docs/bench.md describes the file."""

    data: Annotated[list[GridData], Field(min_length=1)]
    methods: list[str | Variant] = Field(default=[ALL_METHODS])
    # of the run and, if the source splits at random, of the split; a source with a fixed number of
    # partitions uses the seed modulo that number
    seeds: Seeds = Field(default=[0], min_length=1)
    recipes: list[str] = Field(default=[Config.model_fields["recipe"].default], min_length=1)
    backbones: list[str] = Field(default_factory=list)  # else those of the data sets
    decodings: list[str] = Field(default_factory=list)  # the first selects the epoch
    settings: dict[str, Any] = Field(default_factory=dict)  # of every run
    tune: SearchSpace = Field(default_factory=dict)  # settings with the values to try
    tune_seeds: Seeds = Field(default_factory=list)  # choose for all seeds; else each for itself
    labels: Labels = Field(default=[ALL_LABELS])  # labelled samples of each class
    stress: list[Stress] = Field(default=[NO_STRESS], min_length=1)  # stress tests
    threads: PositiveInt = 1  # of each run
    reference: str | None = None  # the method that the others are compared with
    highlight: list[str] = Field(default_factory=list)  # methods of the figures; else the best
    baselines: list[str | Baseline] = Field(default_factory=list)
    plugins: list[str] = Field(default_factory=list)

    def cells(self, log: Callable[[str], None] | None = None, verify: bool = False) -> list[Cell]:
        """List the runs; wrong settings are reported here, before any run starts.

        ``verify`` reads all files again instead of trusting the index of files.
        """
        load_plugins(self.plugins)
        self._check()
        cells, digests = [], dict[str, str | None]()
        for entry, method in product(self.data, self.all_methods()):
            try:
                for cell in self._runs(entry, method):
                    own = cell.config.data
                    place = own.model_dump_json(include={"source", "root", "options"})
                    if place not in digests:
                        if log is not None and own.root and own.root.is_dir():
                            log(f"Reading {own.root}")
                        digests[place] = data_digest(cell.config, verify)
                    cells.append(replace(cell, digest=digests[place]))
            except ValueError as error:
                raise UserError(f"{entry.name}, {method.name}: {error}") from None
        return cells

    def _runs(self, entry: GridData, method: Variant | Baseline) -> Iterator[Cell]:
        """List the runs of a method on a data set, without the digest of the data."""
        partitions = data.SOURCES.find(entry.source).partitions
        tune = self._tune(entry, method)
        choices = [dict(zip(tune, values, strict=True)) for values in product(*tune.values())]
        backbones: Sequence[str | None] = self.backbones or [None]
        sizes, seeds = self.labels_of(entry), self.seeds
        for size, stress, seed, recipe, backbone, chosen in product(
            sizes, self.stress, seeds, self.recipes, backbones, choices
        ):
            own: Tree = {
                "recipe": recipe,
                "data": entry.model_dump(include={"source", "root", "options"}, exclude_none=True)
                | {"partition": seed % partitions if partitions else seed, "stress": stress}
                | ({} if size == ALL_LABELS else {"per_class": size}),
                "backbone": {"name": backbone} if backbone else {},
                "training": {"seed": seed},
            }
            if self.decodings:
                own["training"]["decode"] = self.decodings[0]
            if self.plugins:
                own["plugins"] = self.plugins
            tree, baseline = combine(self.settings, entry.settings), None
            if isinstance(method, Variant):
                tuned = (_nest(key, value) for key, value in chosen.items())
                tree = combine(tree, *tuned, method.settings)
                own["head"] = {"method": method.method, "options": method.options}
            else:
                options = {**method.options, **chosen}
                baseline = method.model_copy(update={"options": options, "tune": {}})
                baseline.make(seed)  # so that errors are reported before any run
            for key, cure in _RESERVED.items():
                if setting_at(tree, key) is not None:
                    raise UserError(f"{key} cannot be set in a grid: {cure}.")
            config = resolve_config(_DEFAULTS, tree, own)
            if baseline is not None:
                config = baseline_config(config)
            labels = {
                "data": entry.name,
                "method": method.name,
                "recipe": config.recipe,
                "backbone": str(config.backbone.name),
                "setting": _label(chosen),
                "labels": str(size),
                "stress": stress,
                "seed": str(seed),
            }
            yield Cell(config, labels, self.threads, baseline=baseline)

    def _tune(self, entry: GridData, method: Variant | Baseline) -> SearchSpace:
        if isinstance(method, Baseline):
            return method.tune
        return self.tune if entry.tune is None else entry.tune

    def labels_of(self, entry: GridData) -> Sequence[int | str]:
        """List the numbers of labels per class of a data set."""
        return self.labels if entry.labels is None else entry.labels

    def _check(self) -> None:
        methods = self.all_methods()
        names = [method.name for method in methods]
        if not names:
            raise UserError("The grid has neither methods nor baselines.")
        tunes = [self._tune(entry, method) for entry, method in product(self.data, methods)]
        for decoding in self.decodings:
            check_known("decodings", decoding, DECODINGS)
        if self.reference is not None:
            check_known("reference", self.reference, names)
        for name in self.highlight:
            check_known("highlight", name, names)
        lists: dict[str, list[Any]] = {"data": [each.name for each in self.data], "methods": names}
        axes = ("seeds", "recipes", "backbones", "decodings", "stress", "highlight")
        lists |= {key: getattr(self, key) for key in axes}
        lists |= {f"labels of {each.name}": list(self.labels_of(each)) for each in self.data}
        lists |= {key: values for tune in tunes for key, values in tune.items()}
        for argument, values in lists.items():
            for text, other in pairwise(sorted(map(str, values))):
                if text == other:
                    raise UserError(f"{argument} must not contain duplicates, got {text} twice.")
        if missing := set(self.tune_seeds) - set(self.seeds):
            raise UserError(f"tune_seeds must be among the seeds, got {min(missing)}.")

    def tuning_cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """Keep the cells that run before settings are chosen: all, or those of ``tune_seeds``."""
        seeds = self.tune_seeds or self.seeds
        return [cell for cell in cells if cell.config.training.seed in seeds]

    def all_methods(self) -> list[Variant | Baseline]:
        """List the methods and the baselines, each with its options."""
        methods: list[Variant | Baseline] = []
        for each in self.methods:
            if isinstance(each, Variant):
                methods.append(each)
            else:
                names = heads.names() if each == ALL_METHODS else [each]
                methods += [Variant(name=name, method=name) for name in names]
        return methods + [parse_baseline(b) if isinstance(b, str) else b for b in self.baselines]

    def used_decodings(self) -> list[str]:
        """Name the decodings of the results."""
        own = (
            decode_name(recipe_decoding(recipe, self.settings, entry.settings))
            for recipe, entry in product(self.recipes, self.data)
        )
        return self.decodings or list(dict.fromkeys(own))

    def reference_method(self) -> str:
        """Name the method that the others are compared with."""
        names = [method.name for method in self.all_methods()]
        return self.reference or (_REFERENCE if _REFERENCE in names else names[0])

    def to_toml(self) -> str:
        """Write the grid as TOML, with its defaults."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def _label(chosen: Mapping[str, Any]) -> str:
    """Name a combination of tuned values, without the sections if the keys are unique."""
    short = [key.rpartition(".")[2] for key in chosen]
    keys = short if len(set(short)) == len(short) else chosen
    return ", ".join(f"{key}={value}" for key, value in zip(keys, chosen.values(), strict=True))


def _nest(key: str, value: Any) -> Tree:
    """Turn ``training.seed`` and its value into a tree of sections."""
    name, _, rest = key.partition(".")
    return {name: _nest(rest, value) if rest else value}


def parse_tune(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read settings to tune, such as ``training.head_learning_rate=[0.01, 0.001]``."""
    tune = {}
    for text in texts:
        key = text.partition("=")[0].strip()
        value = setting_at(parse_settings([text]), key)
        if not isinstance(value, list):
            raise UserError(f"A setting to tune needs a list of values: {key}=[{value}, …]")
        tune[key] = value
    return tune


def read_grid(
    file: Path | None,
    data_folder: Path | None = None,
    given: Tree | None = None,
    settings: Tree | None = None,
    tune: dict[str, list[Any]] | None = None,
) -> Grid:
    """Read a grid from a TOML file, if there is one, and override parts of it.

    ``data_folder`` is the folder of the relative roots in the file. ``given`` replaces parts of the
    grid; methods without baselines replace both. ``settings`` and ``tune`` override those of the
    file and of its data sets.
    """
    tree = read_toml(file) if file is not None else {}
    for entry in tree.get("data", []):
        if data_folder is not None and "root" in entry:
            entry["root"] = str(data_folder / entry["root"])
    if given and "methods" in given:
        tree.pop("baselines", None)
        tree.pop("highlight", None)
    tree |= given or {}
    entries = tree.get("data", [])
    if given and "labels" in given:
        for entry in entries:
            entry.pop("labels", None)
    for key, more in (("settings", settings or {}), ("tune", tune or {})):
        for each in (tree, *(entry for entry in entries if key in entry)):
            each[key] = combine(each.get(key, {}), more)
    for key in {key for each in (tree, *entries) for key in each.get("tune", {})}:
        if setting_at(settings or {}, key) is not None:
            raise UserError(f"{key} is tuned by this grid; it cannot be set as well.")
    if not entries:
        raise UserError("No data given. Name a data source or a grid file.")
    return validate(Grid, tree)
