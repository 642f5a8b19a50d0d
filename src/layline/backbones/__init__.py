"""Networks that map a sample to a feature vector.

To add one: its class, and one line in ``BACKBONES``. Other names are networks of timm.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from layline.backbones.base import Backbone, ImageBackbone, InputSpec, TableBackbone
from layline.backbones.convnet import ConvNet
from layline.backbones.mlp import MLP
from layline.backbones.timm import TimmBackbone, import_timm, is_hub_name
from layline.utils.registry import Registry, first_line
from layline.utils.validation import check_known

__all__ = [
    "BACKBONES",
    "MLP",
    "Backbone",
    "BackboneSpec",
    "ConvNet",
    "ImageBackbone",
    "InputSpec",
    "TableBackbone",
    "TimmBackbone",
    "create",
    "find",
    "names",
    "options_of",
]
BUNDLED = "tf_efficientnet_lite0"  # its weights come in a Python package
Kind = Literal["table", "image"]


@dataclass(frozen=True)
class BackboneSpec:
    """An entry of the registry."""

    build: Callable[..., Backbone]  # from ``dim`` and its own options
    summary: str
    kind: Kind
    weights: str = "none"  # the default initial weights
    # the default; a plug-in with "crop" is for photographs, any other for small images
    augmentation: str = "none"


def _adopt(name: str, offer: Any) -> BackboneSpec:
    """Make an entry from an object of a plug-in: an entry, or a class."""
    if isinstance(offer, BackboneSpec):
        return offer
    is_class = isinstance(offer, type) and issubclass(offer, TableBackbone | ImageBackbone)
    if not is_class or inspect.isabstract(offer):
        raise TypeError("a subclass of TableBackbone or ImageBackbone, or a BackboneSpec")
    kind: Kind = "table" if issubclass(offer, TableBackbone) else "image"
    return BackboneSpec(offer, first_line(offer), kind)


BACKBONES: Registry[BackboneSpec] = Registry(
    "backbones",
    "backbone",
    {
        "mlp": BackboneSpec(MLP, "a multilayer perceptron on encoded columns", "table"),
        "convnet": BackboneSpec(
            ConvNet,
            "a small network for small images, from scratch",
            "image",
            augmentation="shift",  # a crop of a small image has too few pixels
        ),
    },
    _adopt,
    reserved=("dim",),
)


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """List the backbones, built-in ones and those of plug-ins; only those of a kind if given."""
    return tuple(name for name, spec in BACKBONES.items() if kind in (None, spec.kind))


def has_bundled_weights(name: str) -> bool:
    """Return whether the weights of a network, tagged or not, come in a Python package."""
    return name.partition(".")[0] == BUNDLED


def find(name: str) -> BackboneSpec:
    """Look up a name: one of :func:`names`, or a model of timm such as ``vgg16``."""
    if name in BACKBONES:
        return BACKBONES[name]
    timm = import_timm()
    if not is_hub_name(name) and ("." in name or not timm.is_model(name)):
        check_known("backbone", name, [*BACKBONES, *timm.list_models(include_tags="." in name)])
    weights = "bundled" if has_bundled_weights(name) else "imagenet"
    return BackboneSpec(partial(TimmBackbone, name), f"timm's {name}", "image", weights, "crop")


def options_of(spec: BackboneSpec) -> tuple[str, ...]:
    """List the options of a backbone; with ``**options`` it takes those of :class:`InputSpec`."""
    options, takes_any = BACKBONES.spec_options(spec)
    if takes_any and spec.kind == "image":
        options += tuple(each.name for each in fields(InputSpec))
    return tuple(dict.fromkeys(options))


def create(name: str, dim: int, **options: Any) -> Backbone:
    """Make a backbone by name, with random weights.

    ``options`` are the module's own, see :func:`options_of`; ``mlp`` needs ``in_features``, the
    number of columns.
    """
    spec = find(name)
    for option in options:
        check_known(f"option of {name}", option, options_of(spec))
    module = spec.build(dim=dim, **options)
    module.name = name
    return module
