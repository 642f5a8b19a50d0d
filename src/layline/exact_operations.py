r"""Functions that other runtimes lack, of operations that they have, to the last digits.

ONNX has no :math:`\log\Gamma`, erfc or erfcx, and what its exporters write for ``log1p`` and
``expm1`` loses the digits that these exist for. onnxruntime moreover has no softplus in float64.
:data:`DECOMPOSITIONS` is given to ``torch.export``: heads are written with PyTorch's own functions,
and only their exported graph has these.

.. math::
    e^x - 1 &= \tanh(x / 2)\,(e^x + 1) &
    \log(1 + x) &= \frac{x \log u}{u - 1}, \; u = 1 + x \\
    \operatorname{erfcx}(x) &= \frac{C(t)}{1 + 2x}, \; t = \frac{x - c}{x + c} &
    \log\Gamma(x) &= \log\Gamma(x + m) - \sum_{i < m} \log(x + i)

C is a Chebyshev series (after Shepherd and Laframboise, 1981), whose coefficients are computed here
from SciPy's erfcx; :math:`\log\Gamma(x + m)` is Stirling's series.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial.chebyshev import chebinterpolate
from torch import Tensor

_MIDDLE = 3.75  # c: where the series is best
_DEGREE = 30
_SHIFT = 10  # m: Stirling's series then has sixteen digits
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_ATEN: Any = torch.ops.aten


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
    right = _clenshaw((size - _MIDDLE) / (size + _MIDDLE), _coefficients()) / (1 + 2 * size)
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
    inverse = 1 / large
    for factor in _STIRLING:
        series = series + factor * inverse
        inverse = inverse / (large * large)
    for step in range(_SHIFT):
        series = series - torch.log(exact + step)
    return series.to(x.dtype)


def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """Add in log space, from the largest term."""
    largest = x.amax(dim=tuple(dim), keepdim=True)
    total = torch.log(torch.exp(x - largest).sum(dim=tuple(dim), keepdim=True)) + largest
    return total if keepdim else total.squeeze(tuple(dim))


@cache
def _coefficients() -> tuple[float, ...]:
    from scipy.special import erfcx as exact

    def scaled(t: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
        x = _MIDDLE * (1 + t) / (1 - t)
        return (1 + 2 * x) * exact(x)

    return tuple(float(number) for number in chebinterpolate(scaled, _DEGREE))


def _clenshaw(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Sum a Chebyshev series, backwards."""
    last, before = torch.zeros_like(t), torch.zeros_like(t)
    for coefficient in reversed(coefficients[1:]):
        last, before = 2 * t * last - before + coefficient, last
    return t * last - before + coefficients[0]


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    return log_sigmoid(x), x.new_zeros(0)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.expm1.default: expm1,
    _ATEN.log1p.default: log1p,
    _ATEN.softplus.default: softplus,
    _ATEN.log_sigmoid.default: log_sigmoid,
    _ATEN.log_sigmoid_forward.default: _log_sigmoid_forward,
    _ATEN.special_erfcx.default: erfcx,
    _ATEN.special_erfc.default: erfc,
    _ATEN.erfc.default: erfc,
    _ATEN.lgamma.default: lgamma,
    _ATEN.logsumexp.default: logsumexp,
}
