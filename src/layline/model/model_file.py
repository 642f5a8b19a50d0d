"""Model files: one ``.safetensors`` file with the tensors and a JSON description of the model.

Loading never executes code from the file. The registries rebuild the model from the description,
after its shapes were compared with those of the stored tensors: a file that describes a huge model
is refused before any memory is allocated for it.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from layline.backbones import BACKBONES
from layline.backbones.timm import is_hub_name
from layline.heads import HEADS
from layline.model.description import KEY, ModelDescription
from layline.model.model import OrdinalModel
from layline.utils.devices import check_device
from layline.utils.files import atomic_write
from layline.utils.registry import PluginError, load_plugins
from layline.utils.validation import UserError

Tensors = dict[str, torch.Tensor]
_EXTRA_BYTES = 2**28  # buffers of a model that its file does not store


def copy_tensors(model: OrdinalModel) -> Tensors:
    """Copy the tensors of a model to the memory of the CPU."""
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }


def save_model(model: OrdinalModel, path: str | Path, tensors: Tensors | None = None) -> None:
    """Write a model atomically to a ``.safetensors`` file, with other tensors if given."""
    if tensors is None:  # safetensors refuses tensors that share memory or are not contiguous
        tensors = copy_tensors(model)
    description = replace(model.description, plugins=_find_plugins(model.description))
    with atomic_write(Path(path).expanduser()) as part:
        try:
            save_file(tensors, part, metadata={KEY: description.to_json()})
        except SafetensorError as error:  # a full disk raises this
            raise OSError(None, str(error)) from error


def _find_plugins(description: ModelDescription) -> dict[str, str]:
    plugins = {
        "method": HEADS.plugin_of(description.method),
        "backbone": BACKBONES.plugin_of(description.backbone),
    }
    return {kind: str(plugin) for kind, plugin in plugins.items() if plugin is not None}


def load(
    path: str | Path, device: str | torch.device = "cpu", plugins: Sequence[str | Path] = ()
) -> OrdinalModel:
    """Load a trained model; nothing in the file is executed.

    Args:
        path: A ``.safetensors`` file, or the folder of a run, whose best model is loaded.
        device: The device for the model.
        plugins: Files, packages or modules with the head or the backbone of the model. Only these
            and installed plug-ins are imported, whatever the file names.
    """
    load_plugins(plugins)
    path, device = Path(path).expanduser(), check_device(device)
    if path.is_dir():
        path = path / "best.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.")
    description, tensors = read_model_file(path)
    try:
        model = _rebuild(description, tensors)
    except (ImportError, PluginError):  # a missing library or plug-in
        raise
    except Exception as error:  # options can have any value
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path} does not describe a valid model: {why}") from error
    return model.to(device).eval()


def read_model_file(path: Path) -> tuple[ModelDescription, Tensors]:
    """Read the description and the tensors of a model file."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a .safetensors file, or is damaged: {error}") from None
    if text is None:
        raise UserError(
            f"{path} is not a model written by Layline. Weights of a backbone are passed as "
            "weights when training."
        )
    try:
        description = ModelDescription.from_json(text)
    except UserError as error:
        raise UserError(f"{path} does not describe a valid model: {error}") from None
    # Layline 0.2.0 called the backbone features
    return description, {
        re.sub(r"^features\.", "backbone.", name): t for name, t in tensors.items()
    }


def _rebuild(description: ModelDescription, tensors: Tensors) -> OrdinalModel:
    plugins = description.plugins
    HEADS.require(description.method, plugins.get("method", ""))
    BACKBONES.require(description.backbone, plugins.get("backbone", ""))
    if is_hub_name(description.backbone) and not description.backbone_options.get("architecture"):
        raise UserError(f"the architecture of {description.backbone} is missing")
    with torch.random.fork_rng(devices=[]):  # building draws weights that are overwritten
        try:
            with torch.device("meta"), warnings.catch_warnings(action="ignore"):
                described = description.build()
        except Exception:
            if not _find_plugins(description):
                raise
            described = description.build()  # a plug-in may need the values of its tensors
        _check_shapes(described, tensors)
        model = description.build()
    built = model.state_dict()
    for name, tensor in tensors.items():
        # a buffer that is infinite in an untrained model may also be infinite in the file
        if not tensor.isfinite().all() and not (
            name in built and torch.equal(built[name].to(tensor.dtype), tensor)
        ):
            raise UserError(f"the tensor {name} contains NaN or infinity; train the model again")
    model.load_state_dict(tensors)
    return model


def _check_shapes(model: OrdinalModel, tensors: Tensors) -> None:
    """Compare a model on the meta device, which needs no memory, with the tensors of a file."""
    expected = model.state_dict()
    for name in sorted({*expected, *tensors}):
        wanted, got = _describe_tensor(expected.get(name)), _describe_tensor(tensors.get(name))
        if wanted != got:
            raise UserError(f"the tensor {name} must be {wanted}, got {got}")
    needed = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    stored = sum(tensor.numel() for tensor in tensors.values()) * 8
    if needed > stored + _EXTRA_BYTES:
        raise UserError(f"the model needs {needed:,} bytes, the file stores {stored:,}")


def _describe_tensor(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "absent"
    kind = "floats" if tensor.is_floating_point() else str(tensor.dtype)
    return f"{kind} of shape {tuple(tensor.shape)}"
