"""What maps a sample to a feature vector. To add one: its file, and one line in ``BACKBONES``.

An unknown name is taken for a network of timm.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from layline.backbones.base import Backbone, ImageFeatures, InputSpec, TableFeatures
from layline.backbones.convnet import ConvNet
from layline.backbones.mlp import MLP
from layline.backbones.timm import TimmBackbone, check_model, has_weight_package
from layline.utils.errors import UserError
from layline.utils.registry import Registry, first_line
from layline.utils.validation import check_known

Kind = Literal["table", "image"]


@dataclass(frozen=True)
class BackboneSpec:
    """An entry of the registry.

    Attributes:
        build: Makes the module from ``dim`` and its own options.
        summary: What it is, in one line.
        kind: What it takes: the rows of a table, or images.
        weights: The weights to begin with if the user does not say.
        augmentation: How training images vary if the user does not say. A network of a plug-in
            with ``"crop"`` counts as one for photographs, with another as one for small images.
    """

    build: Callable[..., Backbone]
    summary: str
    kind: Kind
    weights: str = "none"
    augmentation: str = "none"


_BUILT_IN: dict[str, BackboneSpec] = {
    "mlp": BackboneSpec(MLP, "a multilayer perceptron on standardised columns", "table"),
    "convnet": BackboneSpec(
        ConvNet,
        "a small network for small images, from scratch",
        "image",
        augmentation="shift",  # a small part of a small image has too few pixels
    ),
}


def _adopt(name: str, found: Any) -> BackboneSpec:
    """Make an entry from what a plug-in has: an entry, or a class of features."""
    if isinstance(found, BackboneSpec):
        return found
    for base, kind in _KINDS.items():
        if isinstance(found, type) and issubclass(found, base):
            if inspect.isabstract(found):
                missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
                raise TypeError(f"a subclass of {base.__name__} that has {missing}")
            return BackboneSpec(found, first_line(found), kind)
    raise TypeError("a subclass of TableFeatures or ImageFeatures, or a BackboneSpec")


_KINDS: dict[Any, Kind] = {TableFeatures: "table", ImageFeatures: "image"}
BACKBONES: Registry[BackboneSpec] = Registry(
    "backbones", "backbone", _BUILT_IN, _adopt, reserved=("dim",)
)


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """List the features: those that are built in, and those of plug-ins.

    Args:
        kind: Those for one kind of input only.
    """
    return tuple(name for name, spec in BACKBONES.items() if kind in (None, spec.kind))


def find(name: str) -> BackboneSpec:
    """Look a name up, here and in timm.

    Args:
        name: One of :func:`names`, or a model of timm such as ``vgg16``.
    """
    if name in BACKBONES:
        return BACKBONES[name]
    check_model(name, beside=BACKBONES)
    weights = "bundled" if has_weight_package(name) else "imagenet"
    return BackboneSpec(partial(TimmBackbone, name), f"timm's {name}", "image", weights, "crop")


def options_of(spec: BackboneSpec) -> tuple[str, ...]:
    """List the options that features take beside ``dim``.

    Those that take any take how images are prepared.
    """
    parameters = inspect.signature(spec.build).parameters.values()
    named = [each.name for each in parameters if each.name != "dim" and each.kind not in _ANY]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        named += [each.name for each in fields(InputSpec)] if spec.kind == "image" else []
    return tuple(dict.fromkeys(named))


_ANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def create(name: str, dim: int, **options: Any) -> Backbone:
    """Make a features module by name, with random weights.

    Args:
        name: One of :func:`names`, or a model of timm such as ``vgg16``.
        dim: Dimension d of the features.
        **options: The module's own options, see :func:`options_of`; ``mlp`` must be told
            ``in_features``, the number of columns.
    """
    spec = find(name)
    for option in options:
        check_known(f"option of {name}", option, options_of(spec))
    module = spec.build(dim=dim, **options)
    if BACKBONES.plugin_of(name) is not None:
        base = next(base for base, kind in _KINDS.items() if kind == spec.kind)
        if not isinstance(module, base):
            raise UserError(
                f"{name} must give {base.__name__}, got {type(module).__name__}: derive it from "
                f"layline.backbones.{base.__name__}"
            )
        module.name = name  # what the registry calls it
    return module


__all__ = [
    "BACKBONES",
    "MLP",
    "Backbone",
    "BackboneSpec",
    "ConvNet",
    "ImageFeatures",
    "InputSpec",
    "TableFeatures",
    "TimmBackbone",
    "create",
    "find",
    "names",
    "options_of",
]
