r"""Distributions with one peak by construction.

**Poisson and Binomial** (Beckham & Pal, ICML 2017): one number places a distribution over the
ranks, whose sharpness is a temperature τ that is learned for all samples.

.. math::
    P(f) = \operatorname{softmax}_k\!\Big(\tfrac1\tau \log p_k\Big), \qquad
    p_k = \frac{\lambda^k e^{-\lambda}}{k!}, \; \lambda = \operatorname{softplus}(w \cdot f + b)
    \quad\text{or}\quad
    p_k = \tbinom{K-1}{k} q^k (1-q)^{K-1-k}, \; q = \sigma(w \cdot f + b)

The loss is :math:`-\log P_y(f)`. Both are log-concave in k, and the softmax of a concave sequence
has one peak, at any τ > 0. Factors that are the same for all k cancel.

**Normal** (Shaham et al., 2020, as POM): the line from −1 to 1 is cut into K equal cells with the
edges :math:`t_0 < \dots < t_K`. The feature gives a normal distribution; its mass in a cell,
renormalized, is the rank's probability.

.. math::
    \mu = \tanh(w_\mu \cdot f + b_\mu), \quad
    \sigma = \operatorname{softplus}(w_\sigma \cdot f + b_\sigma), \quad
    P_k(f) \propto \Phi\big((t_{k+1} - \mu) / \sigma\big) - \Phi\big((t_k - \mu) / \sigma\big)

.. math:: L(f, y) = \sum_k |k - y|\, P_k(f)
    = \sum_{k < y} F_k(f) + \sum_{k \ge y} \big(1 - F_k(f)\big), \qquad
    F_k = P_0 + \dots + P_k

The loss is the earth mover's distance to the label. σ is bounded: a sharp distribution has no
gradient.

**Regression**: one output r for the rank, and a distribution of scale b around it.

.. math::
    L(f, y) &= |r - y| + \log 2b + \frac{|\bar r - y|}{b} && \text{l1, a Laplace} \\
    L(f, y) &= (r - y)^2 + \log b\sqrt{2\pi} + \frac{(\bar r - y)^2}{2 b^2}
                                                      && \text{l2, a Gaussian} \\
    P_k &= F\Bigl(\frac{k + ½ - r}{b}\Bigr) - F\Bigl(\frac{k - ½ - r}{b}\Bigr)

:math:`\bar r` is r without gradient: the last terms fit b to the residuals, and r is trained by its
own loss as in plain regression. The cells of the first and the last rank extend to infinity.

The first three compute in float64 (float32 on a device without it): neighboring terms cancel when K
is in the hundreds.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.similarities import Features, PerClass, PerSample, Ranks, Scalar
from layline.heads.base import LinearHead
from layline.utils.devices import widest_float
from layline.utils.validation import check_above, check_known

WIDEST = 10.0  # largest σ, in half lines: the distribution is then flat to three digits
LEAST_SCALE = 1e-3  # of a rank; keeps log P finite when the training set is fitted exactly


def log_laplace_cdf(z: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m"]:
    """Compute log F of the Laplace distribution with scale one."""
    above = torch.log1p(-0.5 * torch.exp(-z.clamp_min(0)))
    return torch.where(z < 0, z - math.log(2), above)


def log_normal_cdf(z: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m"]:
    """Compute log Φ.

    ``torch.special.log_ndtr`` has the same values, but wrong gradients in the far tail: in float32
    64930 at −1e4 instead of 1e4, and 0 below about −1e6.
    """
    low, high = z.clamp_max(0), z.clamp_min(0)
    below = torch.log(0.5 * torch.special.erfcx(-low / math.sqrt(2))) - 0.5 * low.square()
    above = torch.log1p(-0.5 * torch.special.erfc(high / math.sqrt(2)))
    return torch.where(z < 0, below, above)


def log_cells(
    edges: Float[Tensor, "*n m"], log_cdf: Callable[[Tensor], Tensor] = log_normal_cdf
) -> Float[Tensor, "*n m-1"]:
    """Compute log(F(b) − F(a)) of neighboring edges, which are finite and increase.

    ``log_cdf`` is log F of a symmetric distribution. A cell right of zero is mirrored: near 1 the
    two values of F would be equal in floating point.
    """
    left, right = edges[..., :-1], edges[..., 1:]
    mirrored = left + right > 0
    upper = log_cdf(torch.where(mirrored, -left, right))
    lower = log_cdf(torch.where(mirrored, -right, left))
    gap = (upper - lower).clamp_min(torch.finfo(edges.dtype).tiny)  # avoids log 0 in the far tail
    return upper + torch.log(-torch.expm1(-gap))


class _TemperatureHead(LinearHead):
    """A distribution over the ranks from one number and a learned temperature."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1)
        self.log_tau = nn.Parameter(torch.zeros(()))

    @abstractmethod
    def _log_masses(self, score: Float[Tensor, "n 1"], k: Float[Tensor, " K"]) -> PerClass:
        """Compute log p_k, up to terms that are equal for all k."""

    def _log_probs(self, features: Features) -> PerClass:
        dtype = widest_float(features.device)
        k = torch.arange(self.num_classes, dtype=dtype, device=features.device)
        log_masses = self._log_masses(self._scores(features).to(dtype), k)
        log_p = torch.log_softmax(log_masses / self.log_tau.to(dtype).exp(), dim=-1)
        return log_p.to(features.dtype)


class UnimodalPoisson(_TemperatureHead):
    """A Poisson with a learned temperature."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim)
        # a rate that starts near zero would have to pass all ranks first
        nn.init.constant_(self.linear.bias, num_classes / 2)

    def _log_masses(self, score: Float[Tensor, "n 1"], k: Float[Tensor, " K"]) -> PerClass:
        # log softplus(x) is x itself far below zero, where eˣ would vanish
        far = score < -30
        log_rate = torch.where(far, score, F.softplus(torch.where(far, 0.0, score)).log())
        return k * log_rate - torch.lgamma(k + 1)


class UnimodalBinomial(_TemperatureHead):
    """A Binomial with a learned temperature."""

    def _log_masses(self, score: Float[Tensor, "n 1"], k: Float[Tensor, " K"]) -> PerClass:
        return k * score - torch.lgamma(k + 1) - torch.lgamma(self.num_classes - k)


class UnimodalPOM(LinearHead):
    """A normal over equal cells, optimal transport loss.

    Args:
        narrowest: Least σ, in cells. With 0.4, a mean in the middle of a cell puts 79 % into it.
            The loss always rewards a narrower σ, and the gradient would vanish too early.
    """

    def __init__(self, num_classes: int, dim: int = 512, *, narrowest: float = 0.4) -> None:
        super().__init__(num_classes, dim, outputs=2)
        check_above("narrowest", narrowest, 0, "it is a width")
        self.narrowest = narrowest

    def _log_probs(self, features: Features) -> PerClass:
        log_masses = log_cells(self._edges(features))
        return torch.log_softmax(log_masses, dim=-1).to(features.dtype)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        # the area between the cumulative distributions: Φ is far cheaper than its logarithm, and
        # the divisor is not small, as at least a thirteenth of the mass is on the line
        masses = torch.special.ndtr(self._edges(features))
        first, inner, last = masses.split([1, self.num_classes - 1, 1], dim=-1)
        cumulative = (inner - first) / (last - first)  # F_k for k = 0…K−2
        k = torch.arange(self.num_classes - 1, device=features.device)
        areas = torch.where(k < ranks[:, None], cumulative, 1 - cumulative)
        return areas.sum(dim=-1).to(features.dtype)

    def _edges(self, features: Features) -> Float[Tensor, "n K+1"]:
        """Return the cells' edges as multiples of σ from μ."""
        dtype = widest_float(features.device)
        raw_mean, raw_spread = self._scores(features).to(dtype).chunk(2, dim=-1)
        spread = F.softplus(raw_spread).clamp(self.narrowest * 2 / self.num_classes, WIDEST)
        cells = torch.arange(self.num_classes + 1, dtype=dtype, device=features.device)
        return (2 * cells / self.num_classes - 1 - torch.tanh(raw_mean)) / spread


class Regression(LinearHead):
    """The rank as a number, a Laplace or Gaussian around it.

    Args:
        loss: ``"l1"``, the absolute error, or ``"l2"``, the squared error.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, loss: Literal["l1", "l2"] = "l1"
    ) -> None:
        super().__init__(num_classes, dim, outputs=1)
        check_known("loss", loss, ("l1", "l2"))
        self.error = loss
        nn.init.constant_(self.linear.bias, (num_classes - 1) / 2)
        self.log_scale = nn.Parameter(torch.tensor(math.log(num_classes / 4)))

    def _scale(self, dtype: torch.dtype) -> Scalar:
        return self.log_scale.to(dtype).exp() + LEAST_SCALE

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
