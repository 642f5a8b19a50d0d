"""The mathematics of Constrained Proxies Learning as pure PyTorch.

Layouts place the proxies, similarities compare, smoothings give the unimodal target, losses match
distributions, and decodings choose a rank.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layline.geometry.decoding import *  # noqa: F403
    from layline.geometry.layouts import *  # noqa: F403
    from layline.geometry.similarities import *  # noqa: F403
    from layline.geometry.smoothings import *  # noqa: F403

_NAMES = {
    "decoding": "DECODINGS",
    "layouts": "LAYOUTS Free Layout Linear Semicircular",
    "similarities": "SIMILARITIES Similarity Cosine LearnedScale NegativeEuclidean StudentT",
    "smoothings": "SMOOTHINGS Smoothing Binomial Exponential Poisson Triangular",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import on first use: an exported model decodes without PyTorch."""
    if name in _HOMES:
        return getattr(import_module(f"layline.geometry.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'layline.geometry' has no attribute {name!r}")
