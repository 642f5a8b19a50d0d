r"""Similarities of a feature to a proxy, elementwise in their squared distance or their cosine.

.. math::
    \mathrm{sim_E} &= -\log(1 + \lVert f - p_k \rVert^2) && \text{(5) Student-t} \\
    \mathrm{sim_C} &= s \cdot \cos(f, p_k)               && \text{(6) cosine} \\
    \mathrm{sim_E} &= -\lVert f - p_k \rVert             && \text{(21) negative Euclidean}

A similarity never sees a proxy: ``measure`` names the quantity that it needs, and the layout
computes it. Beyond the paper a scale :math:`e^w` can be learned, with w = 0 at the start.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.utils.validation import check_above

# Shapes of tensors: n samples, K classes, features of length d. Tests check them.
Scalar = Float[Tensor, ""]
Features = Float[Tensor, "n d"]
Proxies = Float[Tensor, "K d"]
Ranks = Int[Tensor, " n"]
PerSample = Float[Tensor, " n"]
PerClass = Float[Tensor, "n K"]

Measure = Literal["squared_distances", "cosines"]


class Similarity(ABC):
    """A function that turns a squared distance, or a cosine, into a logit."""

    measure: ClassVar[Measure]

    @abstractmethod
    def __call__(self, measured: PerClass) -> PerClass:
        """Turn distances or cosines into logits, element by element."""


@dataclass(frozen=True)
class StudentT(Similarity):
    """Equation (5): heavy tails, so that distant proxies keep some influence."""

    measure: ClassVar[Measure] = "squared_distances"

    def __call__(self, measured: PerClass) -> PerClass:
        """Compute −log(1 + D)."""
        return -torch.log1p(measured)


@dataclass(frozen=True)
class Cosine(Similarity):
    """Equation (6): only directions count.

    Args:
        scale: s, which stretches [−1, 1] to the range of logits. It must be above 1.
    """

    scale: float = 6.0
    measure: ClassVar[Measure] = "cosines"

    def __post_init__(self) -> None:
        check_above("scale", self.scale, 1, "cosines alone span too little for a softmax")

    def __call__(self, measured: PerClass) -> PerClass:
        """Compute s·C."""
        return self.scale * measured


@dataclass(frozen=True)
class NegativeEuclidean(Similarity):
    """Equation (21): the plain distance, for comparison with Student-t."""

    measure: ClassVar[Measure] = "squared_distances"

    def __call__(self, measured: PerClass) -> PerClass:
        """Compute −√D, with gradient 0 instead of infinity where D is 0."""
        apart = measured > 0
        return -measured.where(apart, 1.0).sqrt().where(apart, 0.0)


class LearnedScale(nn.Module, Similarity):
    """Another similarity times a learned factor, which is 1 at the start."""

    measure: Measure  # type: ignore[misc]  # of the other one, so not of the class

    def __init__(self, similarity: Similarity) -> None:
        super().__init__()
        self.start = similarity
        self.measure = similarity.measure
        self.log_factor = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        """Return to the similarity at the start."""
        nn.init.zeros_(self.log_factor)

    @property
    def scale(self) -> float:
        """The present factor of a cosine, or of the logit of another similarity."""
        at_start = self.start.scale if isinstance(self.start, Cosine) else 1.0
        return at_start * self.log_factor.exp().item()

    def forward(self, measured: PerClass) -> PerClass:
        """Scale the logits of the other similarity."""
        return self.log_factor.to(measured.dtype).exp() * self.start(measured)


SIMILARITIES: dict[str, Callable[..., Similarity]] = {
    "student-t": StudentT,
    "cosine": Cosine,
    "negative-euclidean": NegativeEuclidean,
}
