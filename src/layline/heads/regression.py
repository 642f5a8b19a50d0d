r"""Regression: one output f for the rank, and a distribution around it.

.. math::
    L(f, y) &= |f - y| + \log 2b + \frac{|\bar f - y|}{b} && \text{l1, a Laplace of scale } b \\
    L(f, y) &= (f - y)^2 + \log b\sqrt{2\pi} + \frac{(\bar f - y)^2}{2 b^2}
                                                      && \text{l2, a Gaussian of scale } b \\
    P_k &= F\Bigl(\frac{k + ½ - f}{b}\Bigr) - F\Bigl(\frac{k - ½ - f}{b}\Bigr)

:math:`\bar f` is f without gradient: the last terms fit b to the residuals and leave f to its own
loss, so f is that of plain regression. F is the distribution function of the Laplace or Gaussian;
the cells of the first and the last rank reach to infinity. The usual rule, f rounded and clipped,
is the median of P. The distribution is our addition: plain regression has none.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.heads.linear import LinearHead
from layline.registry import check_known

_NARROWEST = 1e-3  # of a rank; keeps log P finite when the training set is fitted exactly


class Regression(LinearHead):
    """The rank as a number.

    f starts at the middle of the scale, and b at what the labels of no knowledge at all would need:
    neither then has far to go, whatever K.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        loss: ``"l1"``, the absolute error, or ``"l2"``, the squared one.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, loss: Literal["l1", "l2"] = "l1"
    ) -> None:
        super().__init__(num_classes, dim, outputs=1)
        check_known("loss", loss, ("l1", "l2"))
        self.error = loss
        self.log_scale = nn.Parameter(torch.empty(()))
        nn.init.constant_(self.linear.bias, (num_classes - 1) / 2)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start the scale at a quarter of the classes."""
        nn.init.constant_(self.log_scale, math.log(self.num_classes / 4))

    def extra_repr(self) -> str:
        """Show the option when the module is printed."""
        return f"{super().extra_repr()}, loss={self.error!r}"

    def _scale(self, dtype: torch.dtype) -> Float[Tensor, ""]:
        return self.log_scale.to(dtype).exp() + _NARROWEST

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        f = self._scores(features)  # (n, 1)
        scale = self._scale(f.dtype)
        log_cdf = _log_laplace_cdf if self.error == "l1" else _log_normal_cdf
        last = self.num_classes - 1
        lowest = log_cdf((0.5 - f) / scale)
        highest = log_cdf((f - (last - 0.5)) / scale)
        # F is symmetric, so a cell above f is taken as its mirror image below: no cancellation
        k = torch.arange(1, last, dtype=f.dtype, device=f.device)
        away = (k - f).abs()  # (n, K − 2)
        upper, lower = log_cdf((0.5 - away) / scale), log_cdf((-0.5 - away) / scale)
        gap = (upper - lower).clamp_min(torch.finfo(f.dtype).tiny)
        between = upper + torch.log(-torch.expm1(-gap))
        return torch.cat([lowest, between, highest], dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        residuals = self._scores(features)[:, 0] - ranks
        scale = self._scale(residuals.dtype)
        in_scales = residuals.detach() / scale
        if self.error == "l1":
            return residuals.abs() + torch.log(2 * scale) + in_scales.abs()
        normaliser = torch.log(scale) + 0.5 * math.log(2 * math.pi)
        return residuals.square() + normaliser + 0.5 * in_scales.square()


def _log_laplace_cdf(z: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    above = torch.log1p(-0.5 * torch.exp(-z.clamp_min(0)))
    return torch.where(z < 0, z - math.log(2), above)


def _log_normal_cdf(z: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    # torch.special.log_ndtr has the same values, but its gradient is wrong in the far tail:
    # in float32 it is 64930 at −1e4, where 1e4 is right, and 0 from about −1e6 on
    low, high = z.clamp_max(0), z.clamp_min(0)
    below = torch.log(0.5 * torch.special.erfcx(-low / math.sqrt(2))) - 0.5 * low.square()
    above = torch.log1p(-0.5 * torch.special.erfc(high / math.sqrt(2)))
    return torch.where(z < 0, below, above)
