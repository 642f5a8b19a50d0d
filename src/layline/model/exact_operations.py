r"""Functions that other runtimes lack, of operations that they have, to the last digits.

ONNX has no :math:`\log\Gamma`, erfc, erfcx or search in a sorted list, and what its exporters write
for ``log1p`` and ``expm1`` loses the digits that these exist for. onnxruntime moreover has no
softplus in float64. A graph is traced within :class:`ExactOperations`: heads are written with
PyTorch's own functions, and only their exported graph has these.

.. math::
    e^x - 1 &= \tanh(x / 2)\,(e^x + 1) &
    \log(1 + x) &= \frac{x \log u}{u - 1}, \; u = 1 + x \\
    \operatorname{erfcx}(x) &= \frac{C(t)}{1 + 2x}, \; t = \frac{x - c}{x + c} &
    \log\Gamma(x) &= \log\Gamma(x + m) - \sum_{i < m} \log(x + i)

C is a polynomial, interpolated at Chebyshev's points (after Shepherd and Laframboise, 1981) from
SciPy's erfcx; :math:`\log\Gamma(x + m)` is Stirling's series. Both are products of a matrix of
powers: a graph of few operations is quicker to trace and to run than one of many.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial.chebyshev import cheb2poly, chebinterpolate
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_MIDDLE = 3.75  # c: where the series is best
_DEGREE = 30
_SHIFT = 10  # m: Stirling's series then has sixteen digits
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def expm1(x: Tensor) -> Tensor:
    """Give eˣ − 1 for small x too."""
    return torch.tanh(x / 2) * (torch.exp(x) + 1)


def log1p(x: Tensor) -> Tensor:
    """Give log(1 + x) for small x too: what 1 + x was rounded by is divided out."""
    one_more = 1 + x
    rounded = one_more - 1
    nothing = rounded == 0
    ratio = x / torch.where(nothing, torch.ones_like(x), rounded)
    return torch.where(nothing, x, torch.log(one_more) * ratio)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Give log(1 + eˣ); above the threshold that is x, as PyTorch has it."""
    scaled = beta * x
    curved = (scaled.clamp_min(0) + log1p(torch.exp(-scaled.abs()))) / beta
    return torch.where(scaled > threshold, x, curved)


def log_sigmoid(x: Tensor) -> Tensor:
    """Give log σ(x)."""
    return x.clamp_max(0) - log1p(torch.exp(-x.abs()))


def erfcx(x: Tensor) -> Tensor:
    """Give the scaled complementary error function."""
    exact = x.double()
    size = exact.abs()
    right = _powers((size - _MIDDLE) / (size + _MIDDLE), range(_DEGREE + 1), _coefficients())
    right = right / (1 + 2 * size)
    # where the other side is not meant, its exponential must not overflow
    left = 2 * torch.exp(exact.clamp_max(0).square()) - right
    return torch.where(exact < 0, left, right).to(x.dtype)


def erfc(x: Tensor) -> Tensor:
    """Give the complementary error function, its tail too."""
    exact = x.double()
    tail = erfcx(exact.abs()) * torch.exp(-exact.square())
    return torch.where(exact < 0, 2 - tail, tail).to(x.dtype)


def lgamma(x: Tensor) -> Tensor:
    """Give log Γ of positive numbers."""
    exact = x.double()
    large = exact + _SHIFT
    series = (large - 0.5) * torch.log(large) - large + 0.5 * math.log(2 * math.pi)
    series = series + _powers(large, range(-1, -2 * len(_STIRLING), -2), _STIRLING)
    steps = torch.arange(_SHIFT, dtype=torch.float64, device=x.device)
    return (series - torch.log(exact[..., None] + steps).sum(dim=-1)).to(x.dtype)


def logsumexp(x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """Add in log space, from the largest term."""
    over = (dim,) if isinstance(dim, int) else tuple(dim)
    largest = x.amax(dim=over, keepdim=True)
    total = torch.log(torch.exp(x - largest).sum(dim=over, keepdim=True)) + largest
    return total if keepdim else total.squeeze(over)


def searchsorted(
    ordered: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Count the ordered numbers below each value; there are as few as classes."""
    places = ordered if ordered.ndim == 1 else ordered[..., None, :]
    if sorter is not None:
        places = torch.take_along_dim(places, sorter, dim=-1)
    at = values[..., None]
    below = places <= at if right or side == "right" else places < at
    return below.sum(dim=-1, dtype=torch.int32 if out_int32 else torch.int64)


@cache
def _coefficients() -> tuple[float, ...]:
    from scipy.special import erfcx as exact

    def scaled(t: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
        x = _MIDDLE * (1 + t) / (1 - t)
        return (1 + 2 * x) * exact(x)

    return tuple(float(number) for number in cheb2poly(chebinterpolate(scaled, _DEGREE)))


def _powers(x: Tensor, exponents: Sequence[int], factors: Sequence[float]) -> Tensor:
    """Sum powers of numbers in float64."""
    each, weights = (torch.tensor(v, dtype=x.dtype, device=x.device) for v in (exponents, factors))
    return torch.pow(x[..., None], each) @ weights


_SUBSTITUTES: dict[Any, Callable[..., Tensor]] = {
    **dict.fromkeys((torch.expm1, torch.special.expm1, Tensor.expm1), expm1),
    **dict.fromkeys((torch.log1p, torch.special.log1p, Tensor.log1p), log1p),
    **dict.fromkeys((torch.erfc, torch.special.erfc, Tensor.erfc), erfc),
    **dict.fromkeys((torch.lgamma, torch.special.gammaln, Tensor.lgamma), lgamma),
    **dict.fromkeys((torch.logsumexp, torch.special.logsumexp, Tensor.logsumexp), logsumexp),
    torch.special.erfcx: erfcx,
    torch.searchsorted: searchsorted,
    F.softplus: softplus,
    F.logsigmoid: log_sigmoid,
}


class ExactOperations(TorchFunctionMode):
    """Within it, PyTorch's functions are computed by those of this module."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        """Call a function, or what stands for it."""
        return _SUBSTITUTES.get(func, func)(*args, **(kwargs or {}))
