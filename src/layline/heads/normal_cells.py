r"""The probability of cells of the real line under a standard normal, in log space.

.. math::
    \log\big(\Phi(b) - \Phi(a)\big) = \log\Phi(b) + \log\big(1 - e^{\log\Phi(a) - \log\Phi(b)}\big)

A cell right of zero is mirrored first: both values of Φ are then far from 1, where they would be
equal to the last digit. The one cell that holds zero is what its two tails leave. All is in
float64, because narrow cells are differences of neighbours.
"""

import torch
from jaxtyping import Float
from torch import Tensor

TAIL = 40.0
"""So many standard deviations from an edge and from zero, nothing is left in float64."""


def log_normal_cells(edges: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m-1"]:
    """Give the log probability between neighbouring edges.

    Args:
        edges: Finite and strictly increasing along the last axis.
    """
    edges = edges.double()
    negative = edges < 0
    # log Φ of the edge or of its mirror image: where(), as abs() has no gradient at zero
    tails = torch.special.log_ndtr(torch.where(negative, edges, -edges))
    before, after = tails[..., :-1], tails[..., 1:]
    holds_zero = negative[..., :-1] != negative[..., 1:]
    apart = torch.where(holds_zero, 1.0, (before - after).abs())
    one_sided = torch.maximum(before, after) + torch.log(-torch.expm1(-apart))
    return torch.where(holds_zero, torch.log1p(-(before.exp() + after.exp())), one_sided)


def with_tails(edges: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m+2"]:
    """Add an edge on either side that stands for infinity, but has a gradient."""
    first = edges[..., :1].clamp(max=0) - TAIL
    last = edges[..., -1:].clamp(min=0) + TAIL
    return torch.cat([first, edges, last], dim=-1)
