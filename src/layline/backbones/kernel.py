r"""The posterior mean of a Gaussian process as a last layer.

Each block m of the features has a kernel of its own, on the inputs :math:`x_i` of n training
samples, with p units each:

.. math:: f_m(x) = b_m + \sum_{i=1}^{n} k_m(x, x_i)\,\alpha_{im}

.. math::
    k_m(x, x') = c^2 + a_0^2\,\frac{u^\mathsf{T} u'}{p}
        + a_1^2 \exp\Bigl(-\frac{\lVert u - u' \rVert_2^2}{2 p \ell_1^2}\Bigr)
        + a_2^2 \exp\Bigl(-\frac{\lVert v - v' \rVert_1}{p \ell_2}\Bigr)

A linear, a smooth and a rough function of the inputs. Each standardized column x of a table becomes
two inputs. In u an outlier stays near the other rows; v is the normal score, for columns that are
skewed. F is the share of the training rows below x, interpolated between knots:

.. math:: u = x / \sqrt{1 + (x / 2)^2}, \qquad v = \Phi^{-1}(F(x))

For the outputs x of an image network u is centered and scaled to the same length for all samples,
and there is no rough term.
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
_KNOTS = 16  # of the normal scores of a column
_CONSTANT = 0.01  # c², for the mean of the function


class KernelLayer(nn.Module):
    """The posterior mean of a Gaussian process.

    Args:
        in_features: Number of units p of the input.
        rows: Number n of training samples, which the layer contains.
        widths: Number of features in each block.
        unit: Whether inputs are centered and scaled to the same length, or columns of a table.
    """

    rows: Tensor
    center: Tensor
    knots: Tensor
    scores: Tensor
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
        self.register_buffer("rows", torch.zeros(rows, in_features if unit else 2 * in_features))
        self.register_buffer("center", torch.zeros(in_features))
        knots = 0 if unit else _KNOTS
        self.register_buffer("knots", torch.zeros(in_features, knots))
        self.register_buffer("scores", torch.zeros(in_features, knots))
        # of each block: a_0, a_1, a_2, ℓ_1 and ℓ_2
        self.register_buffer("kernels", torch.ones(len(widths), 5))
        self.weight = nn.Parameter(torch.zeros(rows, sum(widths)))
        self.bias = nn.Parameter(torch.zeros(sum(widths)))

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that rebuild it, apart from ``in_features``, as plain JSON."""
        return {"rows": len(self.rows), "widths": self.widths, "unit": self.unit}

    @torch.no_grad()
    def fit_inputs(self, x: Float[Tensor, "n p"], share: Float[Tensor, " n"]) -> None:
        """Learn the center or the normal scores of training samples; shares sum up to one."""
        self.center.copy_(share.to(x) @ x)
        if not self.unit:
            for place, column in enumerate(x.T):
                knots, scores = _find_scores(column, share.to(x))
                self.knots[place], self.scores[place] = knots, scores

    def prepare(self, x: Float[Tensor, "n p"]) -> Float[Tensor, "n q"]:
        """Compute the inputs of the kernels."""
        if self.unit:
            centered = x - self.center
            scaled: Tensor = centered * (self.in_features**0.5 / lengths(centered))
            return scaled
        limited = x / (1 + (x / _LIMIT).square()).sqrt()
        widths = self.knots.diff(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
        scores = self.scores[:, 0].expand_as(x)
        steps = zip(self.knots.T, widths.T, self.scores.diff(dim=1).T, strict=False)
        for left, width, rise in steps:  # one by one, for tables with many columns
            scores = scores + ((x - left) / width).clamp(0, 1) * rise
        return torch.cat([limited, scores], dim=1)

    def forward(self, x: Float[Tensor, "n p"]) -> Float[Tensor, "n d"]:
        """Compute the features of each sample."""
        parts = compare(self.prepare(x), self.rows, rough=not self.unit)
        weights = torch.split(self.weight, self.widths, dim=1)
        pairs = zip(self.kernels, weights, strict=True)
        return torch.cat([kernel(parts, own) @ weight for own, weight in pairs], dim=1) + self.bias


def _find_scores(
    column: Float[Tensor, " n"], share: Float[Tensor, " n"]
) -> tuple[Float[Tensor, " knots"], Float[Tensor, " knots"]]:
    """Find values of a column, evenly spread over its samples, and their normal scores."""
    values, place = torch.unique(column, return_inverse=True)
    mass = torch.zeros_like(values).index_add(0, place, share)
    below = mass.cumsum(dim=0) - mass / 2
    wanted = torch.linspace(below[0].item(), below[-1].item(), _KNOTS).to(below)
    chosen = torch.searchsorted(below, wanted).clamp(max=len(values) - 1)
    return values[chosen], torch.special.ndtri(below[chosen].clamp(1e-6, 1 - 1e-6))


def compare(
    x: Float[Tensor, "n q"], y: Float[Tensor, "m q"], rough: bool
) -> list[Float[Tensor, "n m"]]:
    """Compute products, squared distances and, if ``rough``, distances, all divided by p."""
    if rough:  # of a table
        x, x_scores = x.chunk(2, dim=1)
        y, y_scores = y.chunk(2, dim=1)
    count, products = x.shape[1], x @ y.T
    squares = x.square().sum(dim=1, keepdim=True) + y.square().sum(dim=1) - 2 * products
    parts = [products / count, squares.clamp_min(0) / count]
    if not rough:
        return parts
    if torch.compiler.is_compiling():  # an exported graph has no operator for the distance
        return [*parts, (x_scores[:, None] - y_scores).abs().mean(dim=2)]
    return [*parts, torch.cdist(x_scores, y_scores, p=1) / count]


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
