r"""Spacing: where on a line or an arc the proxies stand, as increasing positions.

.. math::
    t_k &= \frac{k}{K-1}\, T                                   && \text{even: the paper's} \\
    t_k &= T \sum_{j < k} \operatorname{softmax}_j(w)          && \text{elastic: learned}

T is the whole span. Ranks say nothing about how far apart two classes are; the elastic spacing
learns it, keeps the order, and starts even (w = 0). It pays for every step that it takes away from
even, as a spring does, with its stiffness times

.. math:: D_\text{KL}[\text{uniform} \,\Vert\, \operatorname{softmax}(w)]

Without it neighbouring proxies run into each other: two classes at one place cost no basic loss,
since Q then does not tell them apart either.
"""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.utils.validation import check_at_least


class Spacing(nn.Module, ABC):
    """Increasing positions t_0 = 0 < t_1 < … < t_{K−1} = span.

    Args:
        num_classes: K.
    """

    learned: bool

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def reset_parameters(self) -> None:
        """Go back to even steps."""

    @abstractmethod
    def positions(self, span: Float[Tensor, ""]) -> Float[Tensor, " K"]:
        """Place the K positions over the span."""

    @abstractmethod
    def nearest(self, where: Float[Tensor, " n"], span: Float[Tensor, ""]) -> Int[Tensor, " n"]:
        """Find the rank of the nearest position; half-way goes to the lower rank."""

    def penalty(self) -> Float[Tensor, ""] | None:
        """Give what the spacing adds to the loss, or None if it has nothing to learn."""


class Even(Spacing):
    """Equal steps. The nearest position is found by rounding, whatever K."""

    learned = False

    def positions(self, span: Float[Tensor, ""]) -> Float[Tensor, " K"]:
        """Count off equal steps."""
        ranks = torch.arange(self.num_classes, dtype=span.dtype, device=span.device)
        return ranks * (span / (self.num_classes - 1))

    def nearest(self, where: Float[Tensor, " n"], span: Float[Tensor, ""]) -> Int[Tensor, " n"]:
        """Round to the nearest step."""
        last = self.num_classes - 1
        steps = torch.ceil(where / span * last - 0.5)
        return steps.nan_to_num(nan=0.0).clamp(0, last).long()  # NaN goes to 0, as by arg max


class Elastic(Spacing):
    """Learned steps: shares of the span, positive because they come from a softmax.

    Args:
        num_classes: K.
        stiffness: How much uneven steps cost.
    """

    learned = True

    def __init__(self, num_classes: int, stiffness: float) -> None:
        super().__init__(num_classes)
        check_at_least("stiffness", stiffness, 0, "it is what uneven steps cost")
        self.stiffness = stiffness
        self.weights = nn.Parameter(torch.zeros(num_classes - 1))

    def reset_parameters(self) -> None:
        """Go back to even steps."""
        nn.init.zeros_(self.weights)

    def positions(self, span: Float[Tensor, ""]) -> Float[Tensor, " K"]:
        """Add up the learned steps."""
        shares = torch.softmax(self.weights.to(span.dtype), dim=0).cumsum(dim=0)
        return span * nn.functional.pad(shares, (1, 0))

    def nearest(self, where: Float[Tensor, " n"], span: Float[Tensor, ""]) -> Int[Tensor, " n"]:
        """Search among the midpoints."""
        positions = self.positions(span)
        midpoints = (positions[1:] + positions[:-1]) / 2
        return torch.searchsorted(midpoints, where.nan_to_num(nan=0.0))

    def penalty(self) -> Float[Tensor, ""]:
        """Compute the divergence of the steps from even ones, times the stiffness."""
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        log_shares = torch.log_softmax(weights, dim=0)
        return -self.stiffness * (log_shares.mean() + math.log(self.num_classes - 1))


def make_spacing(num_classes: int, stiffness: float | None) -> Spacing:
    """Make equal steps, or learned ones where a stiffness is given."""
    return Even(num_classes) if stiffness is None else Elastic(num_classes, stiffness)
