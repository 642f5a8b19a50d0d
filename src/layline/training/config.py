"""The settings of a run: the only list of them, with types, defaults and help texts.

``layline.train(source, **settings)`` and the options of ``layline train`` are generated from
:class:`Config`. A recipe may choose other defaults, see :mod:`layline.training.recipes`.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
)

from layline.data.stress import Stress
from layline.geometry.decoding import check_decode
from layline.metrics import CRITERIA
from layline.utils.validation import UserError, check_known

if TYPE_CHECKING:
    from layline.geometry.decoding import Decode
    from layline.training.optim import Options

Tree = dict[str, Any]  # settings by section
S = TypeVar("S", bound="Section")
# options of a backbone that are settings of their own, or follow from the data
NOT_OPTIONS = ("name", "model", "size", "crop", "dim", "in_features")
DATA, MODEL, TRAINING, MACHINE, OUTPUT = "Data", "Model", "Training", "Machine", "Output"


def _setting(
    default: Any, text: str, panel: str | None = None, *, name: str | None = None, **limits: Any
) -> Any:
    """Describe a field: its default, and its help text.

    ``panel`` is where ``layline train --help`` lists it; without one it has no option of its own.
    ``name`` is its name as an argument of ``layline.train``, if not the name of the field.
    """
    extra: dict[str, Any] = {"name": name, "panel": panel}
    return Field(default, description=text, json_schema_extra=extra, **limits)


def parse_minutes(budget: Any) -> float:
    """Read a time such as ``90s``, ``10min`` or ``1h30min`` as minutes; a number means minutes."""
    from pandas import Timedelta

    text = str(budget).strip().lower()
    try:
        number = re.fullmatch(r"[\d.]+", text)
        minutes = float(text) if number else Timedelta(text) / Timedelta(minutes=1)
    except ValueError:
        minutes = 0.0
    if "," in text or not minutes > 0:
        raise UserError(f"budget must be a time such as 90s, 10min or 1h, got {budget!r}")
    return minutes


def _reserved(*names: str) -> AfterValidator:
    """Refuse options that are settings of their own, or follow from the data."""

    def check(options: Tree) -> Tree:
        for name in options.keys() & set(names):
            raise UserError(f"must not contain {name}, which is a setting or follows from the data")
        return options

    return AfterValidator(check)


_SourceOptions = Annotated[Tree, _reserved("name", "root", "partition", "calibration")]
_BackboneOptions = Annotated[Tree, _reserved(*NOT_OPTIONS)]
_HeadOptions = Annotated[Tree, _reserved("name", "dim", "num_classes")]
_Share = Annotated[float, Field(ge=0, lt=1)]
_Decode = Annotated[str | list[list[float]], AfterValidator(check_decode)]
_Minutes = Annotated[float, BeforeValidator(parse_minutes)]
_Weights = Literal["off", "balanced", "effective"] | dict[str, PositiveFloat]


class Section(BaseModel):
    """A section of the configuration; unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)


class DataConfig(Section):
    """The data: where they are, how they are split, and how images are prepared."""

    source: str = Field(description="Name of the data source; see layline data list.")
    root: Path | None = _setting(None, "Folder or file with the data of a named source.", DATA)
    partition: NonNegativeInt = _setting(0, "Official fold, or seed of a random split.", DATA)
    calibration: _Share = _setting(0.0, "Share of training samples held out to calibrate.", DATA)
    per_class: PositiveInt | None = _setting(
        None,
        "Use at most this many labelled samples of each class; the test split stays whole.",
        DATA,
    )
    stress: Stress = _setting(
        "none", "Stress test: noise (wrong labels) or gap (a class without labels)."
    )
    duplicates: Literal["exact", "near", "off"] = _setting(
        "exact", "Which duplicate images to keep in one split: exact (same bytes), near, off.", DATA
    )
    options: _SourceOptions = _setting({}, "Options of the data source.", name="source_options")
    size: PositiveInt | None = _setting(None, "Height and width of input images.", MODEL, le=8192)
    augmentation: Literal["crop", "mild", "shift", "flip", "none"] | None = _setting(
        None, "How training images are changed at random."
    )
    keep_ratio: bool = _setting(False, "Keep the aspect ratio of test images when resizing.")
    crop: float | None = _setting(None, "Share of test images that the crop keeps.", gt=0, le=1)
    cache: bool = _setting(False, "Cache decoded images on disk.", DATA)
    skip_bad: bool = _setting(False, "Skip images that cannot be decoded.", DATA)
    workers: NonNegativeInt | None = _setting(
        None, "Number of processes that decode images (default: one per core).", MACHINE, le=1024
    )
    verify: bool = _setting(False, "Read all files again instead of trusting the index.", DATA)


# Options of data sources that have an option of their own; each source lists all of its options.
_SOURCE_OPTIONS = {
    "classes": "Class names, lowest first: low,mid,high.",
    "label": "Column that contains the labels.",
    "group": "Column of groups, such as patients, that must stay in one split.",
    "group_by": "Regular expression that finds the group in an image's path.",
}


class BackboneConfig(Section):
    """The backbone: the network that maps a sample to a feature vector."""

    name: str | None = _setting(None, "mlp, convnet, or a timm model.", MODEL, name="backbone")
    weights: str | None = _setting(None, "Weights: none, imagenet, bundled, or a file.", MODEL)
    freeze: bool = _setting(False, "Train only the last layers, on frozen features.", MODEL)
    stages: PositiveInt | None = _setting(None, "Train only this many last stages.")
    options: _BackboneOptions = _setting({}, "Options of the backbone.", name="backbone_options")


class HeadConfig(Section):
    """The head: the ordinal method."""

    method: str = _setting(
        "committee", "Ordinal method, or auto (by number of labels); see layline methods.", MODEL
    )
    dim: PositiveInt = _setting(512, "Dimension of the feature vectors.", MODEL, le=65536)
    options: _HeadOptions = _setting({}, "Options of the method.", name="head_options")


class TrainingConfig(Section):
    """The training: epochs, optimizer, learning rates, precision and checkpoints."""

    epochs: PositiveInt | None = _setting(
        48, "Number of epochs (unset: by the number of steps they have).", TRAINING, le=1_000_000
    )
    batch_size: PositiveInt | None = _setting(
        32, "Samples per step (unset: by the number of training samples).", TRAINING
    )
    optimiser: Literal["adamw", "sgd"] = _setting("adamw", "Optimizer.")
    learning_rate: PositiveFloat | None = _setting(
        1e-3, "Learning rate (unset: by the number of training samples).", TRAINING, name="lr"
    )
    backbone_learning_rate: PositiveFloat | None = _setting(
        None, "Learning rate below the last layers (default: lr).", TRAINING, name="backbone_lr"
    )
    layer_decay: float = _setting(1.0, "Factor of the rate for each layer below.", gt=0, le=1)
    head_learning_rate: PositiveFloat = _setting(
        1e-2, "Learning rate of the head.", TRAINING, name="head_lr"
    )
    weight_decay: NonNegativeFloat = _setting(1e-2, "Weight decay.")
    decay_vectors: bool = _setting(True, "Also decay biases, normalization layers and proxies.")
    momentum: _Share = _setting(0.9, "Momentum of sgd.")
    schedule: Literal["none", "cosine", "steps"] = _setting("none", "Learning rate schedule.")
    milestones: list[PositiveInt] = _setting([36, 44], "Epochs after which steps lowers rates.")
    decay: PositiveFloat = _setting(0.1, "Factor of the schedule steps.")
    warmup_epochs: NonNegativeFloat | None = _setting(
        0.0, "Epochs of linear warm-up (unset: a tenth of all epochs, at most two)."
    )
    warmup_start: float = _setting(1 / 3, "Share of the rate at the start of warm-up.", ge=0, le=1)
    schedule_unit: Literal["epoch", "sample"] = _setting(
        "epoch", "What advances the schedule; sample imitates the authors' released code."
    )
    head_epochs: NonNegativeFloat | None = _setting(
        0.0, "Epochs that train only the last layers and the head (unset: as the warm-up)."
    )
    clip: NonNegativeFloat = _setting(0.0, "Largest gradient norm; 0 turns clipping off.")
    ema: _Share = _setting(0.0, "Decay of the average of the weights; 0 for none.")
    drop_last: bool = _setting(False, "Drop the samples that do not fill the last batch.")
    precision: Literal["no", "bf16", "fp16", "auto"] = _setting(
        "no", "Mixed precision: no, bf16, fp16, or auto (bf16 on GPUs that support it).", MACHINE
    )
    accumulation: PositiveInt = _setting(1, "Parts in which a batch is computed, to save memory.")
    class_weight: _Weights = _setting(
        "off", "Class weights: off, balanced, or effective (effective number of samples).", TRAINING
    )
    metric: Literal["mae", "accuracy", "qwk"] = _setting(
        "mae", "Selects the best epoch: mae, accuracy or qwk.", TRAINING
    )
    ties: Literal["first", "loss"] = _setting(
        "first", "Which of several equally good epochs to keep: the first, or by validation loss."
    )
    decode: _Decode | None = _setting(
        None, "Decoding: mode, median, mean, quadratic or costs (default: by metric).", TRAINING
    )
    closed_form: bool | None = _setting(
        None,
        "Fit the last layer by Gaussian processes instead of gradient descent (unset: for few "
        "labels of a table or of frozen features, with the method joint-layout).",
    )
    calibrate: bool = _setting(False, "Fit a temperature to the probabilities.", TRAINING)
    folds: NonNegativeInt | None = _setting(
        0,
        "Folds of a cross-validation that calibrates, instead of validation and calibration "
        "splits; 0 for these splits (unset: 3 for small data).",
        TRAINING,
        le=100,
    )

    @field_validator("folds")
    @classmethod
    def _check_folds(cls, folds: int | None) -> int | None:
        if folds == 1:
            raise ValueError("A cross-validation needs at least 2 folds; 0 turns it off.")
        return folds

    patience: NonNegativeInt = _setting(
        0, "Stop after this many epochs without improvement; 0 never stops.", TRAINING
    )
    budget: _Minutes | None = _setting(
        None, "Time for training, such as 90s, 10min or 1h (default: 10min without GPU).", MACHINE
    )
    seed: NonNegativeInt = _setting(0, "Random seed of training.", TRAINING, lt=2**63)
    checkpoint_minutes: NonNegativeFloat = _setting(5.0, "Minutes between checkpoints.")
    device: str = _setting("auto", "Device: auto, cpu, cuda, cuda:1, mps.", MACHINE)

    @property
    def decoding(self) -> "Decode":
        """How a distribution becomes a rank: as set, or as suits the metric."""
        return self.decode or CRITERIA[self.metric].decode or "mode"

    def options(self) -> "Options":
        """Return the options of the trainer; epochs and batch size are known."""
        from layline.training.optim import Options, default_warmup

        names = {each.name for each in dataclass_fields(Options)} & set(type(self).model_fields)
        warmup, head = self.warmup_epochs, self.head_epochs
        warmup = default_warmup(self.epochs or 1) if warmup is None else warmup
        derived = {
            "decode": self.decoding,
            "warmup_epochs": warmup,
            "head_epochs": warmup if head is None else head,
            "patience": self.patience or None,
        }
        return Options(**{name: getattr(self, name) for name in names} | derived)


class InitConfig(Section):
    """The trained model that a new run is initialized from."""

    model: Path = _setting(..., "Trained run or model file to start from.", MODEL, name="init_from")
    digest: str | None = _setting(None, "Digest of the model file.", name="init_digest")
    rate: PositiveFloat = _setting(0.1, "Factor of the recipe's rates.", name="init_rate")
    skip_unknown: bool = _setting(False, "Skip classes that the initial model lacks.", DATA)


class ReportConfig(Section):
    """What a run records for its report."""

    enabled: bool = _setting(True, "Write report.html.", OUTPUT, name="report")
    points: NonNegativeInt = _setting(2000, "Largest number of samples drawn in a layout.")
    mistakes: NonNegativeInt = _setting(24, "Number of worst mistakes shown.")
    review: NonNegativeInt = _setting(24, "Number of samples to review shown.")
    draws: NonNegativeInt = _setting(1000, "Bootstrap draws of the intervals; 0 for no intervals.")


class Config(Section):
    """The configuration of a run."""

    recipe: str = _setting("modern", "Recipe: modern, paper, released (authors' code).", TRAINING)
    data: DataConfig
    backbone: BackboneConfig = Field(default_factory=BackboneConfig)
    head: HeadConfig = Field(default_factory=HeadConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    report: ReportConfig = Field(default_factory=ReportConfig)
    init_from: InitConfig | None = None
    track: Literal["tensorboard", "mlflow", "wandb"] | None = _setting(
        None, "Experiment tracker: tensorboard, mlflow or wandb.", OUTPUT
    )
    plugins: list[Annotated[str, BeforeValidator(str)]] | None = _setting(
        None, "Python file or module with your own methods, backbones or data sources.", MODEL
    )


# The flat list of settings


@dataclass(frozen=True)
class Setting:
    """A leaf of the configuration, as :func:`_setting` describes it."""

    name: str  # as an argument of layline.train; the option is --name
    path: str  # such as training.learning_rate
    help: str
    kind: type = str  # how the command line reads it: int, float, bool, list or str
    default: Any = None
    panel: str | None = DATA  # None if it has no option of its own


def _walk(section: type[Section], prefix: str = "") -> Iterator[Setting]:
    for key, field in section.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, Section)), None)
        if inner is not None:
            yield from _walk(inner, f"{prefix}{key}.")
        elif isinstance(field.json_schema_extra, dict):
            about: Any = field.json_schema_extra
            name, default = about["name"] or key, None if field.is_required() else field.default
            text, kind = str(field.description), _kind_of(field.annotation)
            yield Setting(name, prefix + key, text, kind, default, about["panel"])


def _kind_of(annotation: Any) -> type:
    origin = get_origin(annotation) or annotation
    if origin in (Union, UnionType, Annotated):
        return _kind_of(next(each for each in get_args(annotation) if each is not type(None)))
    return origin if origin in (int, float, bool, list) else str


SETTINGS: dict[str, Setting] = {each.name: each for each in _walk(Config)} | {
    name: Setting(name, f"data.options.{name}", text) for name, text in _SOURCE_OPTIONS.items()
}


# Trees of settings


def tree_of(values: Mapping[str, Any]) -> Tree:
    """Put settings by their flat names into a tree; None is left out."""
    tree: Tree = {}
    for name, value in values.items():
        check_known("argument", name, SETTINGS)
        if value is not None:
            plain = str(value) if isinstance(value, Path) else value
            tree = combine(tree, _nest(SETTINGS[name].path, plain))
    return tree


def _nest(path: str, value: Any) -> Tree:
    """Turn ``training.epochs`` and a value into a tree."""
    first, _, rest = path.partition(".")
    return {first: _nest(rest, value) if rest else value}


def combine(*trees: Mapping[str, Any]) -> Tree:
    """Deep-merge settings; later values win."""
    result: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            if isinstance(value, Mapping):
                below = result.get(key)
                value = combine(below if isinstance(below, Mapping) else {}, value)
            result[key] = value
    return result


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Tree:
    """Name nested values by their paths, such as ``training.epochs``."""
    flat: Tree = {}
    for key, value in tree.items():
        is_tree = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{key}.") if is_tree else {prefix + key: value}
    return flat


def setting_at(tree: Mapping[str, Any], path: str) -> Any:
    """Look up a setting by its path, such as ``data.root``; None if it is not set."""
    value: Any = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def read_toml(path: Path) -> Tree:
    """Read settings from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a valid TOML file: {error}") from None


def to_toml(config: Config) -> str:
    """Write a complete configuration; values that are None are left out."""
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def parse_settings(settings: Iterable[str]) -> Tree:
    """Read settings such as ``training.epochs=10`` into a tree.

    A value is read as TOML (a number, true, a list) where possible, otherwise as text.
    """
    tree: Tree = {}
    for setting in settings:
        path, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not all(path.split(".")):
            raise UserError(
                f"A setting must be written as key=value, such as training.epochs=10; got "
                f"{setting!r}."
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        tree = combine(tree, _nest(path, value))
    return tree


def validate(kind: type[S], tree: Mapping[str, Any]) -> S:
    """Make a section from a tree; the error message names the first wrong setting."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise UserError(_explain(error, kind)) from None


def _explain(error: ValidationError, kind: type[Section]) -> str:
    first = error.errors()[0]
    path = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = [*kind.model_fields, *(each.path for each in SETTINGS.values())]
        near = get_close_matches(path, known, n=1)
        message = f"unknown setting.{f' Did you mean {near[0]}?' if near else ''}"
    elif first["type"] in ("missing", "value_error"):  # the last: our own messages
        message = first["msg"].removeprefix("Value error, ")
    else:
        message = f"{first['msg']}, got {first['input']!r}"
    return f"{path}: {message}"
