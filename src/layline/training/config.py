"""Everything that can be chosen for a run, and the recipes: what is chosen if nobody says.

The sections come first, with plain defaults, then the recipes that are laid over them, then how a
recipe, a TOML file and single settings become one ``Config``, then what follows from the choices,
such as the weights of the features.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from layline import data, features, heads, plugins
from layline.arguments import check_known, find_known
from layline.data.images.preprocessing import AUGMENTATIONS
from layline.evaluation import CRITERIA
from layline.features.weights import NAMES, check_weights
from layline.geometry.decoding import Decode, checked_decode
from layline.plugins import Plugin
from layline.training.optimisation import MODERN, Options, usual_warmup

COPIES = ("together", "exact", "ignore")
Tree = dict[str, Any]
S = TypeVar("S", bound="Section")


def _one_of(names: Collection[str]) -> BeforeValidator:
    """Refuse what is not among the names."""

    def check(value: Any) -> Any:
        check_known("value", value, names)
        return value

    return BeforeValidator(check)


def _reserved(**cures: str) -> AfterValidator:
    """Refuse options that are settings of their own, and say what to do instead."""

    def check(options: Tree) -> Tree:
        for name, cure in cures.items():
            if name in options:
                raise ValueError(f"must not have {name}: {cure}")
        return options

    return AfterValidator(check)


class Section(BaseModel):
    """A part of the configuration; unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)


class DataConfig(Section):
    """The data of a run.

    Attributes:
        source: Name of the source, see ``layline data list``.
        root: Its folder or file.
        partition: Which official fold, or the seed of a random split.
        calibration: Share of the training part that is kept apart, for ranges of grades.
        copies: ``together`` keeps copies of an image in one part where the split is drawn,
            ``exact`` only those with the same bytes, and ``ignore`` does not look for them.
        options: The source's own options.
        size: Height and width that the network sees, if not its own choice.
        augmentation: How training images vary, if not as the features choose.
        keep_ratio: Resize the shorter side of test images only.
        crop: Share of the resized image's side that the middle crop of a test image keeps, if not
            the network's own.
        cache: Keep decoded images in a memory-mapped file.
        skip_bad: Leave out files that cannot be decoded instead of stopping.
        workers: Processes that decode images, if not as many as there are cores.
        verify: Read every file again, and check all of a cache, instead of trusting what is known.
    """

    source: str
    root: Path | None = None
    partition: Annotated[int, Field(ge=0)] = 0
    calibration: Annotated[float, Field(ge=0, lt=1)] = 0.0
    copies: Annotated[str, _one_of(COPIES)] = "together"
    options: Annotated[
        dict[str, Any],
        _reserved(
            name="set data.source",
            root="set data.root",
            partition="set data.partition",
            calibration="set data.calibration",
        ),
    ] = {}
    size: PositiveInt | None = None
    augmentation: Annotated[str, _one_of(AUGMENTATIONS)] | None = None
    keep_ratio: bool = False
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    cache: bool = False
    skip_bad: bool = False
    workers: Annotated[int, Field(ge=0)] | None = None
    verify: bool = False


class FeaturesConfig(Section):
    """The features: the network that maps a sample to a vector.

    Attributes:
        name: ``mlp``, ``convnet`` or a model of timm, if not as the source chooses.
        weights: ``none``, ``imagenet``, ``bundled`` or a file, if not the usual of the features.
        freeze: Train the last layers and the head only, on features extracted once.
        stages: Train so many stages of the body, from its end, and leave those before as they are;
            all if not given.
        options: The features' own options.
    """

    name: str | None = None
    weights: str | None = None
    freeze: bool = False
    stages: PositiveInt | None = None
    options: Annotated[
        dict[str, Any],
        _reserved(
            name="set features.name",
            model="set features.name",
            size="set data.size",
            crop="set data.crop",
            dim="set head.dim",
            in_features="the table has them",
        ),
    ] = {}


class HeadConfig(Section):
    """The ordinal method.

    Attributes:
        method: Its name, see ``layline methods``.
        dim: Dimension d of the features.
        options: The method's own options.
    """

    method: str = heads.DEFAULT_METHOD
    dim: PositiveInt = 512
    options: Annotated[
        dict[str, Any],
        _reserved(
            name="set head.method", dim="set head.dim", num_classes="the data have the classes"
        ),
    ] = {}


class TrainingConfig(Section):
    """The training: epochs, optimiser, rates, precision and checkpoints.

    Attributes:
        epochs: Passes over the training samples.
        batch_size: Samples in one step of the optimiser, over all processes and accumulated parts.
        optimiser: ``adamw`` or ``sgd``.
        learning_rate: The rate of the features.
        body_learning_rate: The rate of the features below their last layers, if it is another.
        layer_decay: What that rate is multiplied by with every layer away from the last ones.
        head_learning_rate: The rate of the head.
        weight_decay: For all of them.
        decay_vectors: Whether it also pulls tensors of one dimension and proxies.
        momentum: Of ``sgd``.
        schedule: ``none``, ``cosine`` to zero, or ``steps``.
        milestones: Epochs after which ``steps`` multiplies the rates by ``decay``.
        decay: See ``milestones``.
        warmup_epochs: Over these the rates rise in a straight line; a tenth of all, two at most, if
            not given.
        warmup_start: From this part of them.
        schedule_unit: ``epoch``; or ``sample``, by which the schedule moves on by one sample after
            each epoch, as in the authors' code.
        head_epochs: So long only the last layers and the head learn; as long as the warm-up, if not
            given.
        clip: Longest gradient; longer ones are shortened. 0 leaves all as they are.
        ema: Decay of the average of the weights that is validated and kept instead of them. 0 keeps
            none.
        drop_last: Leave out the samples that do not fill the last batch of an epoch.
        precision: ``no``, ``bf16``, ``fp16``, or ``auto``: bf16 on a GPU that has it.
        accumulation: Parts that a batch is computed in, to save memory.
        class_weight: ``off``, ``balanced``, ``effective`` (by the effective number of samples), or
            a weight for each class by its name.
        metric: What the epoch is chosen by: ``mae``, ``accuracy`` or ``qwk``.
        ties: Of epochs equal by the metric the ``first``, or that of the lowest validation
            ``loss``.
        decode: How a distribution becomes a rank, if not as the metric asks for: ``mode``,
            ``median``, ``mean``, ``quadratic``, or a matrix of what each decision costs, a row for
            each true class.
        calibrate: Fit a temperature to the validation part at the end.
        patience: Stop after so many epochs without a better one. 0 never stops early.
        budget: Minutes that the recipe ``modern`` plans for, if it has to decide what is trained.
        seed: Of the weights, the order and the augmentation.
        checkpoint_minutes: Save the state within an epoch so often; it is saved after each epoch,
            unless that was short.
        device: ``auto`` takes a GPU if there is one; else as PyTorch names it.
    """

    epochs: PositiveInt = 48
    batch_size: PositiveInt = 32
    optimiser: Literal["adamw", "sgd"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    body_learning_rate: PositiveFloat | None = None
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    head_learning_rate: PositiveFloat = 1e-2
    weight_decay: NonNegativeFloat = 1e-2
    decay_vectors: bool = True
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    schedule: Literal["none", "cosine", "steps"] = "none"
    milestones: list[PositiveInt] = [36, 44]
    decay: PositiveFloat = 0.1
    warmup_epochs: NonNegativeFloat | None = 0.0
    warmup_start: Annotated[float, Field(ge=0, le=1)] = 1 / 3
    schedule_unit: Literal["epoch", "sample"] = "epoch"
    head_epochs: NonNegativeFloat | None = 0.0
    clip: NonNegativeFloat = 0.0
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    drop_last: bool = False
    precision: Literal["no", "bf16", "fp16", "auto"] = "no"
    accumulation: PositiveInt = 1
    class_weight: Literal["off", "balanced", "effective"] | dict[str, PositiveFloat] = "off"
    metric: Annotated[str, _one_of(CRITERIA)] = "mae"
    ties: Literal["first", "loss"] = "first"
    decode: Annotated[str | list[list[float]], AfterValidator(checked_decode)] | None = None
    calibrate: bool = False
    patience: Annotated[int, Field(ge=0)] = 0
    budget: PositiveFloat | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    checkpoint_minutes: NonNegativeFloat = 5.0
    device: str = "auto"

    @property
    def decoding(self) -> Decode:
        """How a distribution becomes a rank: as is said, or as the metric asks for."""
        return self.decode or CRITERIA[self.metric].decode

    def options(self) -> Options:
        """Give the options of the training loop."""
        names = {each.name for each in fields(Options)} & set(type(self).model_fields)
        warmup, head = self.warmup_epochs, self.head_epochs
        warmup = usual_warmup(self.epochs) if warmup is None else warmup
        followed = {
            "decode": self.decoding,
            "warmup_epochs": warmup,
            "head_epochs": warmup if head is None else head,
            "patience": self.patience or None,
        }
        return Options(**{name: getattr(self, name) for name in names} | followed)


class StartConfig(Section):
    """The trained model that a run goes on from.

    Attributes:
        model: Its file.
        digest: Of its content, as :func:`layline.data.file_digests.digest_file` gives it.
        rate: What the learning rates of the recipe are multiplied by; rates that are named are
            taken as they are.
        skip_unknown: Leave out samples of classes that the model does not know.
    """

    model: Path
    digest: str | None = None
    rate: PositiveFloat = 0.1
    skip_unknown: bool = False


class ReportConfig(Section):
    """What a run records for its report.

    Attributes:
        enabled: Record it, and write the report at the end.
        points: Samples of each part that are drawn in the layout.
        mistakes: Worst mistakes that are shown.
        review: Samples that are shown for a person to look at first.
    """

    enabled: bool = True
    points: Annotated[int, Field(ge=0)] = 2000
    mistakes: Annotated[int, Field(ge=0)] = 24
    review: Annotated[int, Field(ge=0)] = 24

    @property
    def drawn(self) -> int:
        """The number of samples to draw, zero without a report."""
        return self.points if self.enabled else 0


class Config(Section):
    """The configuration of a run.

    Attributes:
        recipe: Whose defaults were taken, see ``RECIPES``.
        start: The trained model to go on from, if there is one.
        track: Where to log beside the run folder: ``tensorboard``, ``mlflow`` or ``wandb``.
        plugins: Files, packages and modules with methods, features or sources from outside, see
            :mod:`layline.plugins`; installed ones need not be named.
    """

    recipe: str = "modern"
    data: DataConfig
    features: FeaturesConfig = FeaturesConfig()
    head: HeadConfig = HeadConfig()
    training: TrainingConfig = TrainingConfig()
    report: ReportConfig = ReportConfig()
    start: StartConfig | None = None
    track: Literal["tensorboard", "mlflow", "wandb"] | None = None
    plugins: list[str] | None = None

    def used_plugins(self) -> list[Plugin]:
        """List the plug-ins that the run computes with, each once."""
        found = (
            heads.HEADS.plugin_of(self.head.method),
            features.FEATURES.plugin_of(str(self.features.name)),
            data.SOURCES.plugin_of(self.data.source),
        )
        return list({each.reference: each for each in found if each is not None}.values())


def combine(*trees: Mapping[str, Any]) -> Tree:
    """Lay settings over each other: the last one that names a key decides."""
    result: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            below = result.get(key)
            both = isinstance(below, Mapping) and isinstance(value, Mapping)
            result[key] = combine(below, value) if both else value  # type: ignore[arg-type]
    return result


def setting_at(tree: Mapping[str, Any], path: str) -> Any:
    """Look a setting up by its path, such as ``data.root``; None where there is none."""
    value: Any = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def check_sections(tree: Mapping[str, Any]) -> None:
    """Refuse a value in the place of a section, which other settings would silently replace."""
    for name, kind in Config.model_fields.items():
        section = tree.get(name, {})
        if not (isinstance(kind.annotation, type) and issubclass(kind.annotation, Section)):
            continue
        places = {name: section}
        if isinstance(section, Mapping) and "options" in section:
            places[f"{name}.options"] = section["options"]
        for place, value in places.items():
            if not isinstance(value, Mapping):
                raise ValueError(
                    f"{place} must be a section of settings, got {value!r}: write "
                    f"{place}.NAME=VALUE"
                )


@dataclass(frozen=True)
class Recipe:
    """What is chosen if nobody says.

    Attributes:
        backbone: The network for photographs.
        method: The ordinal method.
        settings: Of every run, by section.
        situations: Laid over them, by what is trained: a network on a ``table``, a ``small`` one
            for small images, one for photographs from ``scratch``, a ``pretrained`` one, or what
            follows a ``frozen`` one or a ``frozen small`` one.
    """

    backbone: str
    method: str
    settings: Tree
    situations: Mapping[str, Tree] = field(default_factory=dict)


_AFTER_FROZEN: Tree = {
    "features": {"options": {"hidden": 512, "dropout": 0.5}},
    "training": {"batch_size": 128},
}
# of 256 pixels the middle 224; small images are seen whole
_FOR_PHOTOGRAPHS: Tree = {
    situation: {"data": {"crop": 0.875}} for situation in ("scratch", "pretrained", "frozen")
}
RECIPES: dict[str, Recipe] = {
    "modern": Recipe(
        backbone="tf_efficientnet_lite0",
        method=heads.DEFAULT_METHOD,
        settings={
            "data": {"calibration": 0.1},
            "training": {
                **MODERN,
                "epochs": 30,
                "patience": 10,
                "warmup_epochs": None,
                "precision": "auto",
                "calibrate": True,
            },
        },
        situations={
            "small": {
                "data": {"augmentation": "flip"},
                "training": {"learning_rate": 1e-2},
            },
            "frozen small": _AFTER_FROZEN,
            "frozen": combine(_AFTER_FROZEN, {"features": {"options": {"all_stages": True}}}),
            "pretrained": {
                "data": {"augmentation": "mild"},
                "training": {
                    "learning_rate": 5e-3,
                    "body_learning_rate": 2e-3,
                    "layer_decay": 0.9,
                    "head_epochs": None,
                },
            },
        },
    ),
    "paper": Recipe(
        backbone="vgg16",
        method="hard-linear",
        settings={"training": {"decode": "mode"}},
        situations=_FOR_PHOTOGRAPHS,
    ),
    # what the authors' released code does differently, where it can be chosen
    "released": Recipe(
        backbone="vgg16_bn",
        method="hard-linear",
        settings={
            "data": {"keep_ratio": True},
            "training": {
                "optimiser": "sgd",
                "learning_rate": 0.01,
                "head_learning_rate": 0.1,
                "weight_decay": 1e-4,
                "schedule": "steps",
                "warmup_epochs": 1.0,
                "schedule_unit": "sample",
                "drop_last": True,
                "decode": "mode",
            },
        },
        situations=_FOR_PHOTOGRAPHS,
    ),
}


def configuration(*trees: Mapping[str, Any]) -> Config:
    """Make the configuration from settings, the recipe that they name below them.

    Args:
        *trees: Settings by section, such as ``{"training": {"epochs": 3}}``; later ones decide.
    """
    wanted = combine(*trees)
    name = wanted.get("recipe", "modern")
    recipe = find_known("recipe", name, RECIPES)
    # what is laid below cannot make wrong settings right, so they are refused before it is chosen
    draft = validated(Config, combine({"head": {"method": recipe.method}}, wanted))
    plugins.use(draft.plugins or [])
    method = heads.HEADS.find("head.method", draft.head.method)
    own: Tree = {"head": {"method": recipe.method}}
    if name == "released":
        own["head"]["options"] = dict(method.released)
    situation = recipe.situations.get(_situation(draft, recipe), {})
    below = combine(recipe.settings, situation, own)
    if "learning_rate" in wanted.get("training", {}):  # who names one rate means all of the network
        below.get("training", {}).pop("body_learning_rate", None)
    if (own_options := _plugin_options(draft, recipe)) is not None:
        options = below.get("features", {}).get("options", {})
        kept = {key: value for key, value in options.items() if key in own_options}
        below = {**below, "features": {**below.get("features", {}), "options": kept}}
    if draft.start is not None:  # the options of the features are those of the model
        below = combine({**below, "features": {}}, _lowered(below, draft.start.rate))
    return validated(Config, combine(below, wanted))


def recorded(tree: Mapping[str, Any]) -> Config:
    """Read the configuration of a run that is only looked at: no plug-in is imported for it.

    Args:
        tree: As the run wrote it, in full.
    """
    method, source = setting_at(tree, "head.method"), setting_at(tree, "data.source")
    name = setting_at(tree, "features.name")
    outside = [
        wanted
        for wanted, own in ((method, heads.HEADS.builtin), (source, data.SOURCES.builtin))
        if isinstance(wanted, str) and wanted not in own
    ]
    if outside or plugins.is_reference(name) or tree.get("plugins"):
        return validated(Config, tree)
    try:
        return configuration(tree)
    except ValueError:
        if name is None or name in features.FEATURES.builtin:
            raise
        return validated(Config, tree)  # a network that is not installed here


def recipe_decoding(recipe: str, *trees: Mapping[str, Any]) -> Decode:
    """Tell how runs of a recipe decide on a rank, with settings laid over it."""
    below = find_known("recipe", recipe, RECIPES).settings
    tree = combine(below, *trees).get("training", {})
    return validated(TrainingConfig, tree).decoding


def _lowered(below: Tree, rate: float) -> Tree:
    """Give the learning rates of a recipe for a network that has been trained already."""
    usual = TrainingConfig().model_dump() | below.get("training", {})
    names = ("learning_rate", "body_learning_rate", "head_learning_rate")
    return {"training": {name: rate * usual[name] for name in names if usual[name] is not None}}


def _plugin_options(config: Config, recipe: Recipe) -> tuple[str, ...] | None:
    """List the options of features of a plug-in, which need not have those of a recipe."""
    name = config.features.name or features_of(config.data.source, recipe)
    if features.FEATURES.plugin_of(name) is None:
        return None
    return features.options_of(features.find(name))


def _situation(config: Config, recipe: Recipe) -> str:
    """Tell what is trained, as the situations of a recipe are named."""
    name = config.features.name or features_of(config.data.source, recipe)
    spec = features.find(name)
    if spec.kind == "table":
        return "table"
    small = name in features.FEATURES and spec.augmentation != "crop"
    if config.features.freeze:
        return "frozen small" if small else "frozen"
    if small:
        return "small"
    is_new = config.start is None and (config.features.weights or spec.weights) == "none"
    return "scratch" if is_new else "pretrained"


def features_of(source: str, recipe: Recipe) -> str:
    """Name the features for a source: its own, or the network of the recipe for photographs."""
    own = data.SOURCES.find("data.source", source).features
    return recipe.backbone if own is None else own


def validated(kind: type[S], tree: Mapping[str, Any]) -> S:
    """Make a section from a tree; what is wrong with it is said in a sentence."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ValueError(_explain(error, kind)) from None


def _explain(error: ValidationError, kind: type[Section]) -> str:
    """Say the first thing that is wrong, and how many more there are."""
    first, *more = error.errors()
    name = ".".join(map(str, first["loc"]))
    names_value = first["type"] in ("missing", "extra_forbidden", "value_error")  # the last: ours
    got = "" if names_value else f", got {first['input']!r}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"is no setting; {_known_settings(first['loc'], kind)}"
    rest = f" (and {len(more)} more)" if more else ""
    return f"{name}: {message}{got}{rest}"


def _known_settings(location: tuple[int | str, ...], kind: type[Section]) -> str:
    section: Any = kind
    for name in location[:-1]:
        if isinstance(name, str):  # a number is a place in the list that was named before
            annotation = section.model_fields[name].annotation
            section = next(iter(get_args(annotation)), annotation)  # one of a list, or none
    return "known are " + ", ".join(section.model_fields)


def read_toml(path: Path) -> Tree:
    """Read settings from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"config must be a file, got {path}: it is not there") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config must be TOML, got {path}: {error}") from None


def to_toml(config: Config) -> str:
    """Write a configuration out in full; what is None is left out."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def parse_settings(settings: Iterable[str]) -> Tree:
    """Read settings such as ``training.epochs=10`` into a tree.

    A value is read as TOML (a number, true, a list), and as plain text where it is none.
    """
    tree: Tree = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise ValueError(f"--set must be key=value, got {setting!r}: write training.epochs=10")
        branch: Any = _toml_value(text.strip())
        for name in reversed(path):
            branch = {name: branch}
        check_sections(branch)
        tree = combine(tree, branch)
    return tree


def _toml_value(text: str) -> Any:
    """Read a value as TOML, and as plain text where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def resolved(config: Config) -> Config:
    """Fill in what follows from other choices, so that the configuration stands by itself."""
    source = data.SOURCES.find("data.source", config.data.source)
    name = config.features.name or features_of(config.data.source, RECIPES[config.recipe])
    spec = features.find(name)
    weights = config.features.weights or spec.weights
    check_weights(weights, name)
    if weights not in NAMES:
        weights = str(Path(weights).expanduser().resolve())
    if config.features.freeze and weights == "none" and config.start is None:
        raise ValueError(
            f"freeze must come with weights, got none for {name}: frozen, it would stay as random "
            "as it was made"
        )
    if config.data.root is not None and re.search("[\ud800-\udfff]", str(config.data.root)):
        raise ValueError(
            f"data.root must be Unicode, got {config.data.root}: rename the folder, since a run "
            "writes it into its config.toml"
        )
    options = dict(config.data.options)
    for key in source.path_options:  # in full, so that the run can go on from another folder
        if isinstance(options.get(key), str):
            options[key] = str(Path(options[key]).expanduser().resolve())
    filled = {
        "root": config.data.root and config.data.root.expanduser().resolve(),
        "options": options,
        "augmentation": config.data.augmentation or spec.augmentation,
    }
    training = config.training
    loop = training.options()
    followed = {name: getattr(loop, name) for name in ("decode", "warmup_epochs", "head_epochs")}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=filled),
            "training": training.model_copy(update=followed),
            "features": config.features.model_copy(update={"name": name, "weights": weights}),
            "plugins": [*map(plugins.full_reference, config.plugins)] if config.plugins else None,
        }
    )
