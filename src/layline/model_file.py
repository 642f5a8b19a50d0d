"""The file of a model: one ``.safetensors``, read without running anything that is in it.

The header has a description, plain JSON, from which the registries rebuild the model; the tensors
are then filled in.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

import layline
from layline.data.images.preprocessing import ImagePreprocessing
from layline.data.tables.encoding import TableEncoding
from layline.files import whole_file
from layline.model import ModelSpec, OrdinalModel

FORMAT = 1
_KEY = "layline"
_PICKLES = (b"PK", b"\x80")  # PyTorch's own files, new and old


class _Description(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: int
    version: str
    features: str
    features_options: dict[str, Any]
    method: str
    head_options: dict[str, Any]
    dim: PositiveInt
    classes: list[str]
    kind: Literal["images", "table"]
    inputs: dict[str, Any]


def save(model: OrdinalModel, path: Path) -> None:
    """Write a model; the file is whole or it is not there."""
    spec = model.spec
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
    )
    # copies: safetensors refuses tensors that share memory or are not contiguous
    tensors = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    with whole_file(path) as part:
        try:
            save_file(tensors, part, metadata={_KEY: description.model_dump_json()})
        except SafetensorError as error:  # a full disk comes as this
            raise OSError(None, str(error)) from error


def load(path: str | Path, device: str | torch.device = "cpu") -> OrdinalModel:
    """Read a model that was trained before; nothing in the file is executed.

    Args:
        path: A ``.safetensors`` file, or the folder of a run, whose best model is taken.
        device: Where to put the model.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / "best.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"path must be a model file, got {path}: it is not there")
    description, tensors = _read(path)
    with torch.random.fork_rng(devices=[]):  # weights are drawn, and thrown away
        model = _spec(description, path).build()
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        what = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path} must have the tensors that it describes: {what}") from None
    return model.to(device).eval()


def _read(path: Path) -> tuple[_Description, dict[str, torch.Tensor]]:
    """Read the description, and the tensors if this version understands it."""
    with path.open("rb") as file:
        if file.read(2).startswith(_PICKLES):
            raise ValueError(
                f"{path} must be a .safetensors file, got a pickle: reading one can run code"
            )
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise ValueError(
                    f"{path} must be a model of Layline, got another safetensors file: as weights "
                    "of a backbone it goes to --weights"
                )
            description = _description(text, path)
            return description, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} must be a whole .safetensors file, got a damaged one: {error}"
        ) from None


def _description(text: str, path: Path) -> _Description:
    try:
        values = json.loads(text)
        written = values["format"]
        if not isinstance(written, int) or written > FORMAT:
            raise ValueError(
                f"{path} must have the format {FORMAT}, got {written}, of layline "
                f"{values.get('version', '?')}: this is {layline.__version__}, upgrade it"
            )
        return _Description.model_validate(values)
    except (json.JSONDecodeError, ValidationError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must describe its model, got: {error}") from None


def _spec(description: _Description, path: Path) -> ModelSpec:
    try:
        kind = TableEncoding.from_json if description.kind == "table" else _images
        return ModelSpec(
            features=description.features,
            method=description.method,
            dim=description.dim,
            classes=tuple(description.classes),
            inputs=kind(description.inputs),
            features_options=description.features_options,
            head_options=description.head_options,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} must describe its model, got: {error}") from None


def _images(values: dict[str, Any]) -> ImagePreprocessing:
    return ImagePreprocessing(**values)
