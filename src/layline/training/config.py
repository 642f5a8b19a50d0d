"""Everything that can be chosen for a run: the sections of its configuration, with plain defaults.

What a recipe chooses instead is in :mod:`layline.training.recipes`.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

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

from layline import backbones, data, heads
from layline.data.preprocessing import AUGMENTATIONS
from layline.geometry.decoding import Decode, checked_decode
from layline.metrics import CRITERIA
from layline.training.optimisation import HEAD_RATE, Options, usual_warmup
from layline.utils.errors import UserError
from layline.utils.plugins import Plugin
from layline.utils.validation import check_known

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
                raise UserError(f"must not have {name}: {cure}")
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


class BackboneConfig(Section):
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
            name="set backbone.name",
            model="set backbone.name",
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
        head_learning_rate: The rate of the head; the recipe ``modern`` multiplies it by the
            method's own factor if it is not given.
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
    head_learning_rate: PositiveFloat = HEAD_RATE
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
        return self.decode or CRITERIA[self.metric].decode or "median"

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
            :mod:`layline.utils.plugins`; installed ones need not be named.
    """

    recipe: str = "modern"
    data: DataConfig
    backbone: BackboneConfig = BackboneConfig()
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
            backbones.BACKBONES.plugin_of(str(self.backbone.name)),
            data.SOURCES.plugin_of(self.data.source),
        )
        return list({each.name: each for each in found if each is not None}.values())


def validated(kind: type[S], tree: Mapping[str, Any]) -> S:
    """Make a section from a tree; what is wrong with it is said in a sentence."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise UserError(_explain(error, kind)) from None


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
