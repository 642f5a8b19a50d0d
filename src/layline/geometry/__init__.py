"""The mathematics of Constrained Proxies Learning, pure: torch in, torch out.

One module per noun of the paper: layouts place the proxies, similarities compare, smoothings
give the unimodal target, the divergence makes a loss of it, and a decoding makes a rank.
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
