r"""The two usual baselines: the classes without their order, and the rank as a number.

**Classification**: a linear layer and cross entropy.

.. math:: P(f) = \operatorname{softmax}(W f + b), \qquad L(f, y) = -\log P_y(f)

**Regression**: one output r for the rank, and a distribution of scale b around it.

.. math::
    L(f, y) &= |r - y| + \log 2b + \frac{|\bar r - y|}{b} && \text{l1, a Laplace} \\
    L(f, y) &= (r - y)^2 + \log b\sqrt{2\pi} + \frac{(\bar r - y)^2}{2 b^2}
                                                      && \text{l2, a Gaussian} \\
    P_k &= F\Bigl(\frac{k + ½ - r}{b}\Bigr) - F\Bigl(\frac{k - ½ - r}{b}\Bigr)

:math:`\bar r` is r without gradient: the last terms fit b to the residuals, and r is trained by its
own loss as in plain regression. F is the distribution function of the Laplace or Gaussian; the
cells of the first and the last rank extend to infinity. The usual rule, r rounded and clipped, is
the median of P. The distribution is our addition: plain regression has none.
"""

import math
from typing import Literal

import torch
from torch import nn

from layline.geometry.shapes import Features, PerClass, PerSample, Ranks, Scalar
from layline.heads.base import LinearHead, SoftmaxHead
from layline.heads.cells import log_cells, log_laplace_cdf, log_normal_cdf
from layline.utils.validation import check_known

_LEAST_SCALE = 1e-3  # of a rank; keeps log P finite when the training set is fitted exactly


class Classification(SoftmaxHead):
    """Plain classification, which ignores the order of the classes."""


class Regression(LinearHead):
    """The rank as a number.

    r starts at the middle of the scale and b at a width that suits uninformed predictions.

    Args:
        loss: ``"l1"``, the absolute error, or ``"l2"``, the squared error.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, loss: Literal["l1", "l2"] = "l1"
    ) -> None:
        super().__init__(num_classes, dim, outputs=1)
        check_known("loss", loss, ("l1", "l2"))
        self.error = loss
        self.log_scale = nn.Parameter(torch.empty(()))
        self._set_start_values()

    def _set_start_values(self) -> None:
        nn.init.constant_(self.linear.bias, (self.num_classes - 1) / 2)
        nn.init.constant_(self.log_scale, math.log(self.num_classes / 4))

    def _scale(self, dtype: torch.dtype) -> Scalar:
        return self.log_scale.to(dtype).exp() + _LEAST_SCALE

    def _log_probs(self, features: Features) -> PerClass:
        r = self._scores(features)  # (n, 1)
        log_cdf = log_laplace_cdf if self.error == "l1" else log_normal_cdf
        k = torch.arange(self.num_classes - 1, dtype=r.dtype, device=r.device)
        edges = (k + 0.5 - r) / self._scale(r.dtype)  # (n, K − 1)
        lowest, highest = log_cdf(edges[:, :1]), log_cdf(-edges[:, -1:])
        return torch.cat([lowest, log_cells(edges, log_cdf), highest], dim=-1)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        residuals = self._scores(features)[:, 0] - ranks
        scale = self._scale(residuals.dtype)
        in_scales = residuals.detach() / scale
        if self.error == "l1":
            return residuals.abs() + torch.log(2 * scale) + in_scales.abs()
        normalizer = torch.log(scale) + 0.5 * math.log(2 * math.pi)
        return residuals.square() + normalizer + 0.5 * in_scales.square()
