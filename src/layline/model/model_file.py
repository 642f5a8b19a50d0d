"""The file of a model: one ``.safetensors``, read without running anything that is in it.

The header has a description in JSON, from which the registries rebuild the model; the tensors are
then filled in. A description may be anyone's and say anything, so whatever is wrong with it is a
``ValueError``, and no module is imported because it names one.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from layline.backbones import BACKBONES
from layline.backbones.timm import is_hub_name
from layline.heads import HEADS
from layline.model.description import KEY, Description, check_pixels
from layline.model.model import ModelSpec, OrdinalModel
from layline.utils.devices import check_device
from layline.utils.errors import UserError
from layline.utils.files import atomic_write
from layline.utils.plugins import PluginError, load_plugins

FORMAT = 3  # 1 had no calibration, 2 no digest
Tensors = dict[str, torch.Tensor]
_DIGEST = ',"blake2b":"'  # where it begins, at the end of the description
_PICKLES = (b"PK", b"\x80")  # PyTorch's own files, new and old


def save_model(model: OrdinalModel, path: Path) -> None:
    """Write a model; the file is whole or it is not there."""
    # copies: safetensors refuses tensors that share memory or are not contiguous
    tensors = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    text = describe_model(model.spec)
    # within the description: the order of several entries would differ from file to file
    signed = f'{text[:-1]}{_DIGEST}{_digest(text, tensors)}"}}'
    with atomic_write(path) as part:
        try:
            save_file(tensors, part, metadata={KEY: signed})
        except SafetensorError as error:  # a full disk comes as this
            raise OSError(None, str(error)) from error


def load(
    path: str | Path,
    device: str | torch.device = "cpu",
    plugins: Sequence[str | Path] = (),
) -> OrdinalModel:
    """Read a model that was trained before; nothing in the file is executed.

    A model may need a plug-in, which is a program. Only installed ones are imported, and those that
    you name or have used in this process, whatever the file says.

    Args:
        path: A ``.safetensors`` file, or the folder of a run, whose best model is taken.
        device: Where to put the model.
        plugins: Files, packages or modules with the method or the features of the model.
    """
    load_plugins(plugins)
    path, device = Path(path).expanduser(), check_device(device)
    if path.is_dir():
        path = path / "best.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"path must be a model file, got {path}: it is not there")
    text, tensors = read_tensors(path)
    try:
        model = _rebuild(read_description(text), tensors)
    except (ImportError, PluginError):  # a library that the method needs
        raise
    except Exception as error:  # whoever wrote the description may have written anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path} must describe its model: {why}") from error
    return model.to(device).eval()


def read_tensors(path: Path) -> tuple[str, Tensors]:
    """Read the description and the tensors, as they were given to be written."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise UserError(
                    f"{path} must be a model of Layline, got another safetensors file: as weights "
                    "of a backbone it goes to --weights"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        what = "a pickle, which can run code" if _is_pickle(path) else f"a damaged one: {error}"
        raise UserError(f"{path} must be a whole .safetensors file, got {what}") from None
    before, begins, digest = text.rpartition(_DIGEST)
    if begins and digest != f'{_digest(before + "}", tensors)}"}}':
        raise UserError(
            f"{path} must be as it was written, got other bytes: it is damaged; copy it again, or "
            "train again"
        )
    return (before + "}" if begins else text), tensors


def _digest(text: str, tensors: Tensors) -> str:
    """Tell whether a file still has what was written."""
    digest = hashlib.blake2b(text.encode(), digest_size=20)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"|{name} {tensor.dtype} {tuple(tensor.shape)}|".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _is_pickle(path: Path) -> bool:
    """Tell a pickle among files that cannot be read; a sound file may begin with the same bytes."""
    with path.open("rb") as file:
        return file.read(2).startswith(_PICKLES)


def _rebuild(spec: ModelSpec, tensors: Tensors) -> OrdinalModel:
    with torch.random.fork_rng(devices=[]):  # weights are drawn, and thrown away
        if "meta" not in HEADS.find(spec.method).unsupported:
            with torch.device("meta"):  # costs no memory, however absurd the numbers are
                _check_tensors(spec.build().state_dict(), tensors)
        model = spec.build()
    _check_finite(model.state_dict(), tensors)
    model.load_state_dict(tensors)
    return model


def _check_finite(built: Tensors, found: Tensors) -> None:
    """Refuse weights that are no numbers; a bound that is infinite by construction is none."""
    for name, tensor in found.items():
        if tensor.isfinite().all():
            continue
        if name not in built or not torch.equal(built[name].to(tensor.dtype), tensor):
            got = "NaN" if tensor.isnan().any() else "infinity"
            raise UserError(f"the tensor {name} must be finite, got {got}: train again")


def _check_tensors(expected: Tensors, found: Tensors) -> None:
    for name in sorted({*expected, *found}):
        wanted, got = _kind(expected.get(name)), _kind(found.get(name))
        if wanted != got:
            raise UserError(f"the tensor {name} must be {wanted}, got {got}")


def _kind(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "absent"
    numbers = "numbers" if tensor.is_floating_point() else str(tensor.dtype)
    return f"{numbers} of shape {tuple(tensor.shape)}"


# --- the description


_Text = Annotated[str, Field(max_length=200, pattern=r"^[\w.+ -]+$")]


class _Description(Description):
    """What a model is rebuilt from, beside the sections of every description."""

    backbone_options: dict[str, Any]
    head_options: dict[str, Any]
    dim: PositiveInt
    estimator: dict[str, Any] = Field(default={})  # checked where an estimator is made of it
    plugins: dict[Literal["method", "backbone"], _Text] = Field(default={})
    blake2b: str = Field(default="", exclude=True)  # checked before


def describe_model(spec: ModelSpec) -> str:
    """Write down what a model is rebuilt from."""
    description = _Description.of(
        spec,
        FORMAT,
        backbone_options=spec.backbone_options,
        head_options=spec.head_options,
        dim=spec.dim,
        estimator=spec.estimator,
        plugins=_needed_plugins(spec),
    )
    # where there are none, versions that do not know them read the model
    empty = {name for name in ("estimator", "plugins") if not getattr(description, name)}
    return description.model_dump_json(exclude=empty)


def _needed_plugins(spec: ModelSpec) -> dict[Literal["method", "backbone"], str]:
    """Name the plug-ins that a model needs, with their versions."""
    needed: dict[Literal["method", "backbone"], str] = {}
    if (plugin := HEADS.plugin_of(spec.method)) is not None:
        needed["method"] = str(plugin)
    if (plugin := BACKBONES.plugin_of(spec.backbone)) is not None:
        needed["backbone"] = str(plugin)
    return needed


def read_description(text: str) -> ModelSpec:
    """Read what :func:`describe_model` wrote, unless a newer version did."""
    description = _Description.parse(text, FORMAT)
    HEADS.require(description.method, description.plugins.get("method", ""))
    BACKBONES.require(description.backbone, description.plugins.get("backbone", ""))
    options = description.backbone_options
    if is_hub_name(description.backbone) and not options.get("architecture"):
        raise UserError(f"{description.backbone} must come with its architecture: no hub is asked")
    if description.kind == "images":
        check_pixels(options.get("size") or 0)
    return ModelSpec(
        **vars(description.checked()),
        dim=description.dim,
        backbone_options=options,
        head_options=description.head_options,
        estimator=description.estimator,
    )
