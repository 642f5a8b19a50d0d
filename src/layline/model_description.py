"""What the file of a model says about it: plain JSON, from which the registries rebuild it.

A description may be anyone's and say anything, so whatever is wrong with it is a ``ValueError``.
"""

import json
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

import layline
from layline.data.images.preprocessing import ImagePreprocessing
from layline.data.table import TableEncoding
from layline.geometry.decoding import DECODINGS
from layline.model import ModelSpec
from layline.registry import check_known

FORMAT = 1
_MOST_PIXELS = 8192  # at a side; a file that asks for more would only fill the memory


class _Description(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    format: PositiveInt
    version: str
    features: str
    features_options: dict[str, Any]
    method: str
    head_options: dict[str, Any]
    dim: PositiveInt
    classes: list[str]
    kind: Literal["images", "table"]
    inputs: dict[str, Any]
    decode: str


def describe(spec: ModelSpec) -> str:
    """Write down what a model is rebuilt from."""
    table = isinstance(spec.inputs, TableEncoding)
    description = _Description(
        format=FORMAT,
        version=layline.__version__,
        features=spec.features,
        features_options=spec.features_options,
        method=spec.method,
        head_options=spec.head_options,
        dim=spec.dim,
        classes=list(spec.classes),
        kind="table" if table else "images",
        inputs=spec.inputs.to_json() if table else asdict(spec.inputs),  # type: ignore[union-attr]
        decode=spec.decode,
    )
    return description.model_dump_json()


def read(text: str) -> ModelSpec:
    """Read what :func:`describe` wrote, unless a newer version did."""
    description = _parsed(text)
    if len(set(description.classes)) < len(description.classes):
        raise ValueError(f"classes must have different names, got {description.classes}")
    check_known("decode", description.decode, DECODINGS)
    return ModelSpec(
        features=description.features,
        method=description.method,
        dim=description.dim,
        classes=tuple(description.classes),
        inputs=_inputs(description),
        features_options=description.features_options,
        head_options=description.head_options,
        decode=description.decode,
    )


def _parsed(text: str) -> _Description:
    try:
        values = json.loads(text)
        written, version = values["format"], values.get("version", "?")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("format must be there, got none: the description is damaged") from None
    if isinstance(written, int) and written > FORMAT:
        raise ValueError(
            f"format must be at most {FORMAT}, got {written}, of layline {version}: this is "
            f"{layline.__version__}, upgrade it"
        )
    try:
        return _Description.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ValueError(f"{name} must be right, got: {first['msg']}") from None


def _inputs(description: _Description) -> ImagePreprocessing | TableEncoding:
    if description.kind == "table":
        return TableEncoding.from_json(description.inputs)
    try:
        images = ImagePreprocessing(**description.inputs)
    except TypeError as error:
        raise ValueError(f"inputs must be how images are prepared, got: {error}") from None
    for pixels in (images.resize, description.features_options.get("size") or 0):
        if pixels > _MOST_PIXELS:
            raise ValueError(f"size must be at most {_MOST_PIXELS} pixels, got {pixels}")
    return images
