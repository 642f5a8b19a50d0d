"""Everything that can be chosen for a run, with its default: the paper's recipe."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic import NonNegativeFloat as NotNegative

from layline.data.images.preprocessing import AUGMENTATIONS
from layline.geometry.decoding import DECODINGS
from layline.training.validators import known, without


class Section(BaseModel):
    """A part of the configuration; unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)


class Data(Section):
    """What to learn from.

    Attributes:
        source: Name of the source, see ``layline data list``.
        root: Its folder or file.
        partition: Which official fold, or the seed of a random split.
        options: The source's own options.
        size: Height and width that the network sees, if not its own choice.
        augmentation: How training images vary, if not as the features choose.
        keep_ratio: Resize the shorter side of test images only.
        cache: Keep decoded images in a memory-mapped file.
        skip_bad: Leave out files that cannot be decoded instead of stopping.
        workers: Processes that decode images, if not as many as there are cores, four at most.
    """

    source: str
    root: Path | None = None
    partition: Annotated[int, Field(ge=0)] = 0
    options: Annotated[
        dict[str, Any],
        without(name="set data.source", root="set data.root", partition="set data.partition"),
    ] = {}
    size: PositiveInt | None = None
    augmentation: Annotated[str, known(AUGMENTATIONS)] | None = None
    keep_ratio: bool = False
    cache: bool = False
    skip_bad: bool = False
    workers: Annotated[int, Field(ge=0)] | None = None


class Features(Section):
    """What maps a sample to a vector.

    Attributes:
        name: ``mlp``, ``convnet`` or a model of timm, if not as the source chooses.
        weights: ``none``, ``imagenet``, ``bundled`` or a file, if not the usual of the features.
        freeze: Train the last layer and the head only, on features extracted once.
        options: The features' own options.
    """

    name: str | None = None
    weights: str | None = None
    freeze: bool = False
    options: Annotated[
        dict[str, Any],
        without(
            name="set features.name",
            model="set features.name",
            dim="set head.dim",
            in_features="the table has them",
        ),
    ] = {}


class Head(Section):
    """The ordinal method.

    Attributes:
        method: Its name, see ``layline methods``.
        dim: Dimension d of the features.
        options: The method's own options.
    """

    method: str = "hard-linear"
    dim: PositiveInt = 512
    options: Annotated[
        dict[str, Any],
        without(
            name="set head.method", dim="set head.dim", num_classes="the data have the classes"
        ),
    ] = {}


class Training(Section):
    """How to learn.

    Attributes:
        epochs: Passes over the training samples.
        batch_size: Samples in one step of the optimiser, over all processes and accumulated parts.
        optimiser: ``adamw`` or ``sgd``.
        learning_rate: The rate of the features.
        head_learning_rate: The rate of the head.
        weight_decay: For both.
        momentum: Of ``sgd``.
        schedule: ``none``, ``cosine`` to zero, or ``steps``.
        milestones: Epochs after which ``steps`` multiplies the rates by ``decay``.
        decay: See ``milestones``.
        warmup_epochs: Over these the rates rise in a straight line.
        warmup_start: From this part of them.
        drop_last: Leave out the samples that do not fill the last batch of an epoch.
        precision: ``no``, ``bf16`` or ``fp16``.
        accumulation: Parts that a batch is computed in, to save memory.
        class_weight: ``balanced``, or a weight for each class by its name.
        decode: How a distribution becomes a rank.
        patience: Stop after so many epochs without a lower validation error.
        seed: Of the weights, the order and the augmentation.
        checkpoint_minutes: Save the state within an epoch so often; it is saved after each epoch.
        device: ``auto`` takes a GPU if there is one.
    """

    epochs: PositiveInt = 48
    batch_size: PositiveInt = 32
    optimiser: Literal["adamw", "sgd"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    head_learning_rate: PositiveFloat = 1e-2
    weight_decay: NotNegative = 1e-2
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    schedule: Literal["none", "cosine", "steps"] = "none"
    milestones: list[PositiveInt] = [36, 44]
    decay: PositiveFloat = 0.1
    warmup_epochs: NotNegative = 0.0
    warmup_start: Annotated[float, Field(ge=0, le=1)] = 1 / 3
    drop_last: bool = False
    precision: Literal["no", "bf16", "fp16"] = "no"
    accumulation: PositiveInt = 1
    class_weight: Literal["balanced"] | dict[str, PositiveFloat] | None = None
    decode: Annotated[str, known(DECODINGS)] = "mode"
    patience: PositiveInt | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    checkpoint_minutes: NotNegative = 5.0
    device: Literal["auto", "cpu"] = "auto"


class Report(Section):
    """What a run records for its report.

    Attributes:
        enabled: Record it, and write the report at the end.
        points: Samples of each part that are drawn in the layout.
        mistakes: Worst mistakes that are shown.
    """

    enabled: bool = True
    points: Annotated[int, Field(ge=0)] = 2000
    mistakes: Annotated[int, Field(ge=0)] = 24

    @property
    def drawn(self) -> int:
        """How many samples are drawn, which is none without a report."""
        return self.points if self.enabled else 0


class Config(Section):
    """All of a run.

    Attributes:
        recipe: Whose defaults were taken, see ``RECIPES``.
        track: Where to log beside the run folder: ``tensorboard``, ``mlflow`` or ``wandb``.
    """

    recipe: str = "paper"
    data: Data
    features: Features = Features()
    head: Head = Head()
    training: Training = Training()
    report: Report = Report()
    track: Literal["tensorboard", "mlflow", "wandb"] | None = None


# What the authors' released code does differently, where it can be chosen.
RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "released": {
        "data": {"keep_ratio": True},
        "features": {"name": "vgg16_bn"},
        "training": {
            "optimiser": "sgd",
            "learning_rate": 0.01,
            "head_learning_rate": 0.1,
            "weight_decay": 1e-4,
            "schedule": "steps",
            "warmup_epochs": 1.0,
            "drop_last": True,
        },
    },
}
