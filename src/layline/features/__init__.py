"""What maps a sample to a feature vector. To add one: its file, and one line in ``FEATURES``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from layline.features.mlp import MLP
from layline.registry import find


@dataclass(frozen=True)
class FeatureSpec:
    """An entry of the registry.

    Attributes:
        build: Makes the module from ``in_features``, ``dim`` and its own options.
        summary: What it is, in one line.
    """

    build: Callable[..., nn.Module]
    summary: str


FEATURES: dict[str, FeatureSpec] = {
    "mlp": FeatureSpec(MLP, "a multilayer perceptron on standardised columns"),
}


def names() -> tuple[str, ...]:
    """List the registered features."""
    return tuple(FEATURES)


def create(name: str, in_features: int, dim: int, **options: Any) -> nn.Module:
    """Make a features module by name.

    Args:
        name: One of :func:`names`.
        in_features: Number of columns of the input.
        dim: Dimension d of the features.
        **options: The module's own options, such as ``hidden``.
    """
    return find("features", name, FEATURES).build(in_features, dim, **options)


__all__ = ["FEATURES", "MLP", "FeatureSpec", "create", "names"]
