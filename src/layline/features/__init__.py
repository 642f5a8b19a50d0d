"""What maps a sample to a feature vector. To add one: its file, and one line in ``FEATURES``.

A name that is not there is taken for a network of timm.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from layline.arguments import check_known
from layline.features.base import Features, ImageFeatures, InputSpec, TableFeatures
from layline.features.convnet import ConvNet
from layline.features.mlp import MLP
from layline.features.timm_backbone import TimmBackbone, check_model, has_weight_package

Kind = Literal["table", "image"]


@dataclass(frozen=True)
class FeatureSpec:
    """An entry of the registry.

    Attributes:
        build: Makes the module from ``dim`` and its own options.
        summary: What it is, in one line.
        kind: What it takes: the rows of a table, or images.
        weights: The weights to begin with if the user does not say.
        augmentation: How training images vary if the user does not say.
    """

    build: Callable[..., Features]
    summary: str
    kind: Kind
    weights: str = "none"
    augmentation: str = "none"


FEATURES: dict[str, FeatureSpec] = {
    "mlp": FeatureSpec(MLP, "a multilayer perceptron on standardised columns", "table"),
    "convnet": FeatureSpec(
        ConvNet,
        "a small network for small images, from scratch",
        "image",
        augmentation="shift",  # a small part of a small image has too few pixels
    ),
}


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """List the registered features.

    Args:
        kind: Those for one kind of input only.
    """
    return tuple(name for name, spec in FEATURES.items() if kind in (None, spec.kind))


def find(name: str) -> FeatureSpec:
    """Look a name up, here and in timm.

    Args:
        name: One of :func:`names`, or a model of timm such as ``vgg16``.
    """
    if name in FEATURES:
        return FEATURES[name]
    check_model(name, beside=FEATURES)
    weights = "bundled" if has_weight_package(name) else "imagenet"
    return FeatureSpec(partial(TimmBackbone, name), f"timm's {name}", "image", weights, "crop")


def options_of(spec: FeatureSpec) -> tuple[str, ...]:
    """List the options that features take beside ``dim``."""
    return tuple(key for key in inspect.signature(spec.build).parameters if key != "dim")


def create(name: str, dim: int, **options: Any) -> Features:
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
    return spec.build(dim=dim, **options)


__all__ = [
    "FEATURES",
    "MLP",
    "ConvNet",
    "FeatureSpec",
    "Features",
    "ImageFeatures",
    "InputSpec",
    "TableFeatures",
    "TimmBackbone",
    "create",
    "find",
    "names",
    "options_of",
]
