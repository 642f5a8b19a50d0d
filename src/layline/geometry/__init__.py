"""The mathematics of Constrained Proxies Learning as pure PyTorch.

Layouts place the proxies, similarities compare, smoothings give the unimodal target, losses match
distributions, and decodings choose a rank.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layline.geometry.decoding import DECODINGS
    from layline.geometry.layouts import LAYOUTS, Free, Layout, Linear, Semicircular
    from layline.geometry.similarities import (
        SIMILARITIES,
        Cosine,
        LearnedScale,
        NegativeEuclidean,
        Similarity,
        StudentT,
    )
    from layline.geometry.smoothings import (
        SMOOTHINGS,
        Binomial,
        Exponential,
        Poisson,
        Smoothing,
        Triangular,
    )

__all__ = [
    "DECODINGS",
    "LAYOUTS",
    "SIMILARITIES",
    "SMOOTHINGS",
    "Binomial",
    "Cosine",
    "Exponential",
    "Free",
    "Layout",
    "LearnedScale",
    "Linear",
    "NegativeEuclidean",
    "Poisson",
    "Semicircular",
    "Similarity",
    "Smoothing",
    "StudentT",
    "Triangular",
]
_MODULES = ("decoding", "layouts", "similarities", "smoothings")


def __getattr__(name: str) -> Any:
    """Import on first use: an exported model decodes without PyTorch."""
    if name in __all__:
        for module in _MODULES:
            if hasattr(found := import_module(f"layline.geometry.{module}"), name):
                return getattr(found, name)
    raise AttributeError(f"module 'layline.geometry' has no attribute {name!r}")
