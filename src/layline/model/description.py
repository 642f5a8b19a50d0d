"""The description of a model, stored as JSON in its ``.safetensors`` or ``.onnx`` file.

A description may come from anyone, so every value is checked. Nothing here imports torch.
"""

import json
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, PlainSerializer, PlainValidator, Strict, TypeAdapter
from pydantic import ValidationError as PydanticError
from pydantic.dataclasses import dataclass
from pydantic.types import PositiveInt

from layline import __version__
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import TableEncoding
from layline.geometry.decoding import Decode, check_decode
from layline.model.calibration import Calibration
from layline.utils.validation import UserError

if TYPE_CHECKING:
    from layline.model.model import OrdinalModel

KEY = "layline"  # in the metadata of a file
FORMAT = 4
_MAX_PIXELS = 8192  # per side; larger images would only exhaust the memory


def _read_inputs(value: Any) -> ImagePreprocessing | TableEncoding:
    if isinstance(value, ImagePreprocessing | TableEncoding):
        return value
    if not isinstance(value, dict) or value.get("kind") not in ("images", "table"):
        raise ValueError("kind must be 'images' or 'table'")
    settings = {name: setting for name, setting in value.items() if name != "kind"}
    if value["kind"] == "table":
        return TableEncoding.from_json(settings)
    try:
        images = ImagePreprocessing(**settings)
    except TypeError as error:
        raise ValueError(f"not a description of image preprocessing: {error}") from None
    if images.resize > _MAX_PIXELS:
        raise ValueError(f"size must be at most {_MAX_PIXELS} pixels, got {images.resize}")
    return images


def _write_inputs(inputs: ImagePreprocessing | TableEncoding) -> dict[str, Any]:
    kind = "table" if isinstance(inputs, TableEncoding) else "images"
    return {"kind": kind, **asdict(inputs)}


def _read_calibration(value: Any) -> Calibration:
    return value if isinstance(value, Calibration) else Calibration.from_json(value)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ModelDescription:
    """Everything that is needed to rebuild a model, except its tensors."""

    backbone: str
    method: str  # the name of the head
    dim: Annotated[PositiveInt, Strict()]  # of the features
    classes: tuple[str, ...]  # lowest first
    inputs: Annotated[
        ImagePreprocessing | TableEncoding,
        PlainValidator(_read_inputs),
        PlainSerializer(_write_inputs),
    ]
    backbone_options: dict[str, Any] = field(default_factory=dict)
    head_options: dict[str, Any] = field(default_factory=dict)
    decode: Annotated[Decode, PlainValidator(check_decode)] = "mode"
    calibration: Annotated[
        Calibration, PlainValidator(_read_calibration), PlainSerializer(Calibration.to_json)
    ] = field(default_factory=Calibration, compare=False)
    # the state of the scikit-learn estimator that wrote the file, if one did
    estimator: dict[str, Any] = field(default_factory=dict, compare=False)
    plugins: dict[str, str] = field(default_factory=dict)  # their versions
    coverage: float | None = None  # of the range that an exported graph outputs

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must be at least 2 different names, got {self.classes}")
        check_decode(self.decode, len(self.classes))
        if np.max(self.calibration.ranks, initial=0) >= len(self.classes):
            raise ValueError(f"calibration ranks must be below {len(self.classes)}")

    @property
    def is_table(self) -> bool:
        """Whether samples are rows of a table; otherwise they are images."""
        return isinstance(self.inputs, TableEncoding)

    def build(self) -> "OrdinalModel":
        """Create the model with untrained weights."""
        from layline import backbones, heads
        from layline.model.model import OrdinalModel

        backbone = backbones.create(self.backbone, dim=self.dim, **self.backbone_options)
        head = heads.create(self.method, len(self.classes), self.dim, **self.head_options)
        return OrdinalModel(self, backbone, head)

    def to_json(self) -> str:
        """Write the description, with its format and the version of Layline."""
        values = TypeAdapter(ModelDescription).dump_python(self, mode="json")
        return json.dumps({"format": FORMAT, "version": __version__, **values}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "ModelDescription":
        """Read a description; anything wrong with it is a UserError."""
        try:
            values = dict(json.loads(text))
            written, version = values.pop("format"), values.pop("version", "?")
            if written == 3:
                values = _convert_format_3(values)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError("the description is damaged or has no format") from None
        if written not in (3, FORMAT):
            raise UserError(
                f"it was written by Layline {version} in format {written}; this is Layline "
                f"{__version__}, which reads formats 3 and {FORMAT}. Upgrade Layline."
            )
        try:
            return TypeAdapter(ModelDescription).validate_python(values)
        except PydanticError as error:
            raise UserError(first_mistake(error)) from None


def _convert_format_3(values: dict[str, Any]) -> dict[str, Any]:
    """Convert a description by Layline 0.2.0; its plug-ins were modules and files."""
    renamed = {"features": "backbone", "features_options": "backbone_options"}
    removed = ("kind", "blake2b", "plugins")
    kept = {renamed.get(k, k): value for k, value in values.items() if k not in removed}
    if kept.get("backbone") == "mlp":  # it had only hidden layers
        plain = {"bins": 0, "dropout": 0.0, "linear": False}
        kept["backbone_options"] = plain | kept["backbone_options"]
    return kept | {"inputs": {"kind": values["kind"], **values["inputs"]}}


def first_mistake(error: PydanticError) -> str:
    """Describe the first error that pydantic found in one line."""
    first = error.errors()[0]
    place, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
