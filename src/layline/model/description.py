"""What a model says of itself: the header of a ``.safetensors``, the metadata of an ``.onnx``.

Both are JSON with the same sections, and each adds its own. A description may be anyone's and say
anything, so whatever is wrong with it is a ``ValueError``. Nothing here imports torch.
"""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from layline import __version__
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import TableEncoding
from layline.model.calibration import Calibration
from layline.utils.errors import UserError
from layline.utils.validation import Decode, checked_decode

if TYPE_CHECKING:
    from layline.model.model import ModelSpec

KEY = "layline"
"""Under which a file has its description."""
Inputs = ImagePreprocessing | TableEncoding
_MOST_PIXELS = 8192  # at a side; a file that asks for more would only fill the memory


@dataclass(frozen=True)
class DescribedModel:
    """What every description says, checked.

    Attributes:
        backbone: Name of the backbone.
        method: Name of the head.
        classes: Names of the classes, lowest first.
        inputs: How samples are prepared: images, or the columns of a table.
        decode: How a distribution becomes a class if the caller does not say.
        calibration: What is known about the certainty of the answers.
    """

    backbone: str
    method: str
    classes: tuple[str, ...]
    inputs: Inputs
    decode: Decode
    calibration: Calibration


class _Calibration(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    temperature: PositiveFloat = 1.0
    scores: list[float] = []
    ranks: list[NonNegativeInt] = []


class Description(BaseModel):
    """The sections that every file of a model has.

    Attributes:
        format: Of the description.
        version: Of Layline.
        backbone: Name of the backbone.
        method: Name of the head.
        classes: Names of the classes, lowest first; a rank is a place in it.
        kind: What the samples are.
        inputs: How they are prepared.
        decode: How a rank is decided on.
        calibration: The temperature, and what ranges are made from.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    format: PositiveInt
    version: str
    backbone: str
    method: str
    classes: list[str]
    kind: Literal["images", "table"]
    inputs: dict[str, Any]
    decode: str | list[list[float]]
    calibration: _Calibration = Field(default_factory=lambda: _Calibration())

    @classmethod
    def of(cls, spec: "ModelSpec", newest: int, **more: Any) -> Self:
        """Describe a model.

        Args:
            spec: What it was made from.
            newest: The format that is written.
            more: The other sections.
        """
        is_table = isinstance(spec.inputs, TableEncoding)
        # as JSON has it: lists, no tuples
        inputs = json.loads(json.dumps(asdict(spec.inputs)))
        if not is_table and not inputs["shrink"]:
            del inputs["shrink"]  # versions that do not know it read the model
        return cls(
            format=newest,
            version=__version__,
            backbone=spec.backbone,
            method=spec.method,
            classes=list(spec.classes),
            kind="table" if is_table else "images",
            inputs=inputs,
            decode=plain_decode(spec.decode),
            calibration=_Calibration(**spec.calibration.to_json()),
            **more,
        )

    @classmethod
    def parse(cls, text: str, newest: int) -> Self:
        """Read a description, unless a newer version wrote it.

        Args:
            text: JSON.
            newest: The format that is known here.
        """
        try:
            values = json.loads(text)
            written, version = values["format"], values.get("version", "?")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UserError("format must be there, got none: the description is damaged") from None
        if isinstance(written, int) and written > newest:
            raise UserError(
                f"format must be at most {newest}, got {written}, of layline {version}: this is "
                f"{__version__}, upgrade it"
            )
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise UserError(first_mistake(error, " must be right, got: ")) from None

    def checked(self) -> DescribedModel:
        """Read the sections, and refuse what contradicts itself."""
        if len(set(self.classes)) < len(self.classes):
            raise UserError(f"classes must have different names, got {self.classes}")
        if len(self.classes) < 2:
            raise UserError(f"num_classes must be at least 2, got {len(self.classes)}")
        return DescribedModel(
            backbone=self.backbone,
            method=self.method,
            classes=tuple(self.classes),
            inputs=self._inputs(),
            decode=checked_decode(self.decode, len(self.classes)),
            calibration=self._calibration(),
        )

    def _inputs(self) -> Inputs:
        if self.kind == "table":
            return TableEncoding.from_json(self.inputs)
        try:
            images = ImagePreprocessing(**self.inputs)
        except TypeError as error:
            raise UserError(f"inputs must be how images are prepared, got: {error}") from None
        check_pixels(images.resize)
        return images

    def _calibration(self) -> Calibration:
        found = self.calibration
        if len(found.scores) != len(found.ranks) or max(found.ranks, default=0) >= len(
            self.classes
        ):
            raise UserError(
                "calibration must have a rank of the classes for each score, got others"
            )
        return Calibration(
            found.temperature, np.array(found.scores), np.array(found.ranks, dtype=np.int64)
        )


def check_pixels(side: int) -> None:
    """Refuse images that no memory would hold."""
    if side > _MOST_PIXELS:
        raise UserError(f"size must be at most {_MOST_PIXELS} pixels, got {side}")


def plain_decode(decode: Decode) -> str | list[list[float]]:
    """Give a checked decoding as JSON has it."""
    return decode if isinstance(decode, str) else [list(row) for row in decode]


def first_mistake(error: ValidationError, between: str = ": ") -> str:
    """Name the first section that is wrong, and why.

    Args:
        error: What pydantic found.
        between: What stands between the two.
    """
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}{between}{first['msg']}"
