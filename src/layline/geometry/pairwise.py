r"""Squared distances and cosines between two sets of vectors: the only place that computes them.

.. math:: D_{ij} = \lVert x_i - y_j \rVert^2, \qquad
          C_{ij} = \frac{x_i^\mathsf{T} y_j}{\lVert x_i \rVert\,\lVert y_j \rVert}

The distance of a vector to itself is exactly zero, and every gradient there is finite.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layline.geometry.precision import in_full_precision


def squared_distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Sum the squared differences, pair by pair, without an (n, m, d) array."""
    squares: Tensor = _SquaredDistances.apply(x, y)  # type: ignore[no-untyped-call]
    return squares


def _squares(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Compute ``x·x + y·y − 2 x·y`` in float64 for vectors in float32; others by differences.

    In float32 the products would leave 1e-2 where zero should be. In float64 they leave less than
    neighbouring float32 vectors differ by, so that much can be taken for the zero that it is.
    """
    if x.dtype != torch.float32 or x.device.type == "mps":  # which has no float64
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square_()
    x, y = x.double(), y.double()
    products = x @ y.T
    x_squares, y_squares = (z.square_().sum(dim=1) for z in (x, y))  # a norm would lose digits
    squares = (x_squares[:, None] + y_squares).sub_(products, alpha=2).float()
    least = x_squares.mul_(2 * x.shape[-1] * torch.finfo(torch.float64).eps).float()
    return squares.masked_fill_(squares <= least[:, None], 0.0)


class _SquaredDistances(torch.autograd.Function):
    """The same with a gradient: 2 (x − y), which needs no more than the precision of x."""

    @staticmethod
    def forward(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Tensor:
        return _squares(x, y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, y, result = ctx.saved_tensors
        twice = (2 * gradients[0]).masked_fill_(result == 0, 0.0)
        with in_full_precision(x.device):
            to_x = torch.addmm(twice.sum(dim=1, keepdim=True) * x, twice, y, alpha=-1)
            to_y = torch.addmm(twice.sum(dim=0)[:, None] * y, twice.T, x, alpha=-1)
        return to_x, to_y


def lengths(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n 1"]:
    """Measure each vector, answering 1 for the zero vector, so that dividing by it is safe."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.masked_fill(length == 0, 1.0)


def unit(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Scale each vector to length one; the zero vector, which has no direction, stays zero."""
    return x / lengths(x)


def cosines(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Take the cosine of the angle between each pair; it is zero wherever a vector is zero.

    The products are divided, not the vectors: that is the smaller array as long as there are fewer
    classes than dimensions, forth and back. Where no square overflows, no product does.
    """
    return x @ y.T / lengths(x) / lengths(y).T
