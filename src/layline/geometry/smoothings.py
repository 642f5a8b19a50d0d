r"""Smoothings: the unimodal distribution U(k*) that soft layouts pull Q(k*) towards.

.. math::
    \log U_k(k^*) = E(k; k^*) - \log \sum_{k'} \exp E(k'; k^*) \qquad \text{(10)}

Everything is computed in log space and in float64 (float32 on Apple's GPU, which has no float64),
so nothing overflows for a thousand classes. A smoothing returns the rows of log U for given ranks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layline.geometry.shapes import PerClass, Ranks
from layline.utils.devices import widest_float
from layline.utils.validation import check_above


class Smoothing(ABC):
    """A family of unimodal distributions over the ranks, one around each rank."""

    @abstractmethod
    def log_u(self, ranks: Ranks, num_classes: int) -> PerClass:
        """Return the rows of log U for these ranks, equation (10)."""


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

    def log_u(self, ranks: Ranks, num_classes: int) -> PerClass:
        """Take the softmax of LPMF(k; k* + ½) / τ."""
        k, k_star = _grid(ranks, num_classes)
        rate = k_star + 0.5
        lpmf = k * torch.log(rate) - rate - torch.lgamma(k + 1)
        return torch.log_softmax(lpmf / self.tau, dim=-1)


@dataclass(frozen=True)
class Binomial(_WithTemperature):
    """Equations (16) and (17): K − 1 trials with p = (2k* + 1) / 2K, hence its mode at k*.

    The paper prints 2k + 1 in (17); only k* puts the mode where the text under (16) says it is.
    """

    tau: float = 0.13

    def log_u(self, ranks: Ranks, num_classes: int) -> PerClass:
        """Take the softmax of LPMF(k; K − 1, p) / τ."""
        k, k_star = _grid(ranks, num_classes)
        p = (2 * k_star + 1) / (2 * num_classes)
        failures = num_classes - 1 - k
        log_choose = math.lgamma(num_classes) - torch.lgamma(k + 1) - torch.lgamma(failures + 1)
        lpmf = log_choose + k * torch.log(p) + failures * torch.log1p(-p)
        return torch.log_softmax(lpmf / self.tau, dim=-1)


@dataclass(frozen=True)
class Exponential(_WithTemperature):
    """Equation (18): decay with the distance in ranks. Already normalized, so U = E.

    The paper's temperature is nearly flat: with 8 classes the smallest entry is 0.79 of the
    largest. Lower it for a distribution that prefers its own class clearly.
    """

    tau: float = 30.0

    def log_u(self, ranks: Ranks, num_classes: int) -> PerClass:
        """Normalize exp(−|k − k*| / τ)."""
        k, k_star = _grid(ranks, num_classes)
        return torch.log_softmax(-(k - k_star).abs() / self.tau, dim=-1)


@dataclass(frozen=True)
class Triangular(Smoothing):
    """Equations (19) and (20): a linear fall from a at k* to b at the farthest class. U = E.

    Args:
        a: The highest value, at k*, before normalizing.
        b: The lowest value, at the class farthest from k*, before normalizing.
    """

    a: float = 0.9
    b: float = 0.1

    def __post_init__(self) -> None:
        check_above("b", self.b, 0, "it is the height at the farthest class")
        check_above("a", self.a, self.b, "the height at the label must be above b")

    def log_u(self, ranks: Ranks, num_classes: int) -> PerClass:
        """Normalize f = a − (a − b)·|k − k*| / max(k*, K − k* − 1)."""
        k, k_star = _grid(ranks, num_classes)
        farthest = torch.maximum(k_star, num_classes - 1 - k_star)
        f = self.a - (self.a - self.b) * (k - k_star).abs() / farthest
        return torch.log(f) - torch.log(f.sum(dim=-1, keepdim=True))


def _grid(ranks: Ranks, num_classes: int) -> tuple[Float[Tensor, "1 K"], Float[Tensor, "n 1"]]:
    """Lay out every class k beside every label k*, in the widest precision of the device."""
    dtype = widest_float(ranks.device)
    k = torch.arange(num_classes, dtype=dtype, device=ranks.device)
    return k[None, :], ranks[:, None].to(dtype)


SMOOTHINGS: dict[str, Callable[..., Smoothing]] = {
    "poisson": Poisson,
    "binomial": Binomial,
    "exponential": Exponential,
    "triangular": Triangular,
}
