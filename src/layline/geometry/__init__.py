"""The mathematics of Constrained Proxies Learning as pure PyTorch.

Layouts place the proxies, similarities compare, smoothings give the unimodal target, losses match
distributions, and decodings choose a rank.
"""

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
