r"""Smoothings: the unimodal distribution U(k*) that soft layouts pull Q(k*) towards.

.. math::
    \log U_k(k^*) = E(k; k^*) - \log \sum_{k'} \exp E(k'; k^*) \qquad \text{(10)}

A smoothing defines the energy E. It is computed in log space and in float64 (float32 on Apple's
GPU, which has no float64), so nothing overflows for a thousand classes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from layline.geometry.similarities import PerClass, Ranks
from layline.utils.devices import widest_float
from layline.utils.validation import check_above


class Smoothing(ABC):
    """A family of unimodal distributions over the ranks, one around each rank."""

    @abstractmethod
    def energy(self, k: Tensor, k_star: Tensor, num_classes: int) -> Tensor:
        """Compute E for every class k, (1, K), and every label k*, (n, 1)."""

    def log_u(self, ranks: Ranks, num_classes: int) -> PerClass:
        """Return the rows of log U for these ranks, equation (10)."""
        k = torch.arange(num_classes, dtype=widest_float(ranks.device), device=ranks.device)
        return torch.log_softmax(self.energy(k[None], ranks[:, None].to(k), num_classes), dim=-1)


@dataclass(frozen=True)
class _WithTemperature(Smoothing):
    """A smoothing with a temperature: towards 0 it becomes one-hot, towards infinity uniform."""

    tau: float

    def __post_init__(self) -> None:
        check_above("tau", self.tau, 0, "it divides the log probabilities")


@dataclass(frozen=True)
class Poisson(_WithTemperature):
    """Equations (14) and (15): a Poisson with its rate at k* + ½, hence its mode at k*."""

    tau: float = 0.11

    def energy(self, k: Tensor, k_star: Tensor, num_classes: int) -> Tensor:
        """Compute LPMF(k; k* + ½) / τ."""
        rate = k_star + 0.5
        return (k * torch.log(rate) - rate - torch.lgamma(k + 1)) / self.tau


@dataclass(frozen=True)
class Binomial(_WithTemperature):
    """Equations (16) and (17): K − 1 trials with p = (2k* + 1) / 2K, hence its mode at k*.

    The paper prints 2k + 1 in (17); only k* puts the mode where the text under (16) says it is.
    """

    tau: float = 0.13

    def energy(self, k: Tensor, k_star: Tensor, num_classes: int) -> Tensor:
        """Compute LPMF(k; K − 1, p) / τ."""
        p, failures = (2 * k_star + 1) / (2 * num_classes), num_classes - 1 - k
        log_choose = math.lgamma(num_classes) - torch.lgamma(k + 1) - torch.lgamma(failures + 1)
        return (log_choose + k * torch.log(p) + failures * torch.log1p(-p)) / self.tau


@dataclass(frozen=True)
class Exponential(_WithTemperature):
    """Equation (18): decay with the distance in ranks.

    The paper's temperature is nearly flat: with 8 classes the smallest entry is 0.79 of the
    largest. Lower it for a distribution that prefers its own class clearly.
    """

    tau: float = 30.0

    def energy(self, k: Tensor, k_star: Tensor, num_classes: int) -> Tensor:
        """Compute −|k − k*| / τ."""
        return -(k - k_star).abs() / self.tau


@dataclass(frozen=True)
class Triangular(Smoothing):
    """Equations (19) and (20): a linear fall from a at k* to b at the farthest class."""

    a: float = 0.9
    b: float = 0.1

    def __post_init__(self) -> None:
        check_above("b", self.b, 0, "it is the height at the farthest class")
        check_above("a", self.a, self.b, "the height at the label must be above b")

    def energy(self, k: Tensor, k_star: Tensor, num_classes: int) -> Tensor:
        """Compute log(a − (a − b)·|k − k*| / max(k*, K − k* − 1))."""
        farthest = torch.maximum(k_star, num_classes - 1 - k_star)
        return torch.log(self.a - (self.a - self.b) * (k - k_star).abs() / farthest)


SMOOTHINGS: dict[str, Callable[..., Smoothing]] = {
    "poisson": Poisson,
    "binomial": Binomial,
    "exponential": Exponential,
    "triangular": Triangular,
}
