r"""The posterior mean of a Gaussian process as a last layer.

Each block m of the features has a kernel of its own, on the inputs :math:`x_i` of n training
samples, with p units each:

.. math:: f_m(x) = b_m + \sum_{i=1}^{n} k_m(x, x_i)\,\alpha_{im}

.. math::
    k_m(x, x') = c^2 + a_0^2\,\frac{x^\mathsf{T} x'}{p}
        + a_1^2 \exp\Bigl(-\frac{\lVert x - x' \rVert_2^2}{2 p \ell_1^2}\Bigr)
        + a_2^2 \exp\Bigl(-\frac{\lVert x - x' \rVert_1}{p \ell_2}\Bigr)

A linear, a smooth and a rough function of the inputs. The columns of a table are limited first, so
that an outlier stays near the other rows: :math:`x / \sqrt{1 + (x / 2)^2}`. The outputs of an image
network are centered and scaled to the same length instead, and have no rough term.
:mod:`layline.training.gaussian_process` computes the weights and the scales of the kernels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layline.geometry.layouts import lengths
from layline.utils.validation import UserError, check_integer

_LIMIT = 2.0  # of standardized columns
_CONSTANT = 0.01  # c², for the mean of the function


class KernelLayer(nn.Module):
    """The posterior mean of a Gaussian process.

    Args:
        in_features: Number of units p of the input.
        rows: Number n of training samples, which the layer contains.
        widths: Number of features in each block.
        unit: Whether inputs are centered and scaled to the same length, or limited.
    """

    rows: Tensor
    center: Tensor
    kernels: Tensor

    def __init__(
        self, in_features: int, rows: int, widths: Sequence[int], unit: bool = False
    ) -> None:
        super().__init__()
        check_integer("rows", rows, 1, "it is a number of training samples")
        if not isinstance(widths, Sequence) or len(widths) == 0:
            raise UserError(f"widths must be a list of numbers, got {widths!r}")
        for width in widths:
            check_integer("widths", width, 1)
        self.in_features, self.widths, self.unit = in_features, list(widths), bool(unit)
        self.register_buffer("rows", torch.zeros(rows, in_features))
        self.register_buffer("center", torch.zeros(in_features))
        # of each block: a_0, a_1, a_2, ℓ_1 and ℓ_2
        self.register_buffer("kernels", torch.ones(len(widths), 5))
        self.weight = nn.Parameter(torch.zeros(rows, sum(widths)))
        self.bias = nn.Parameter(torch.zeros(sum(widths)))

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that rebuild it, apart from ``in_features``, as plain JSON."""
        return {"rows": len(self.rows), "widths": self.widths, "unit": self.unit}

    def prepare(self, x: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
        """Limit columns, or center and scale features."""
        if not self.unit:
            return x / (1 + (x / _LIMIT).square()).sqrt()
        centered = x - self.center
        scaled: Tensor = centered * (self.in_features**0.5 / lengths(centered))
        return scaled

    def forward(self, x: Float[Tensor, "n p"]) -> Float[Tensor, "n d"]:
        """Compute the features of each sample."""
        parts = compare(self.prepare(x), self.rows, rough=not self.unit)
        weights = torch.split(self.weight, self.widths, dim=1)
        pairs = zip(self.kernels, weights, strict=True)
        return torch.cat([kernel(parts, own) @ weight for own, weight in pairs], dim=1) + self.bias


def compare(
    x: Float[Tensor, "n p"], y: Float[Tensor, "m p"], rough: bool
) -> list[Float[Tensor, "n m"]]:
    """Compute products, squared distances and, if ``rough``, distances, all divided by p."""
    count, products = x.shape[1], x @ y.T
    squares = x.square().sum(dim=1, keepdim=True) + y.square().sum(dim=1) - 2 * products
    parts = [products / count, squares.clamp_min(0) / count]
    if not rough:
        return parts
    if torch.compiler.is_compiling():  # an exported graph has no operator for the distance
        return [*parts, (x[:, None] - y).abs().mean(dim=2)]
    return [*parts, torch.cdist(x, y, p=1) / count]


def kernel(
    parts: Sequence[Float[Tensor, "n m"]], scales: Float[Tensor, "5"]
) -> Float[Tensor, "n m"]:
    """Compute the kernel from what :func:`compare` returned."""
    linear, smooth, rough, length, rough_length = scales
    value: Tensor = _CONSTANT + linear**2 * parts[0]
    value = value + smooth**2 * torch.exp(-parts[1] / (2 * length**2))
    if len(parts) > 2:
        value = value + rough**2 * torch.exp(-parts[2] / rough_length)
    return value


def make_kernel_layer(width: int, dim: int, options: Mapping[str, Any]) -> KernelLayer:
    """Make the layer from its options, with ``dim`` features in all."""
    try:
        layer = KernelLayer(width, **options)
    except TypeError:
        raise UserError(f"kernel must have rows, widths and unit, got {dict(options)}") from None
    if layer.weight.shape[1] != dim:
        raise UserError(f"kernel must have widths that sum up to {dim}, got {layer.widths}")
    return layer
