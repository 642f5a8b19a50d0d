r"""Distributions with one peak by construction.

**Poisson and Binomial** (Beckham & Pal, ICML 2017): one number places a distribution over the
ranks, whose sharpness is a temperature τ that is learned for all samples.

.. math::
    P(f) = \operatorname{softmax}_k\!\Big(\tfrac1\tau \log p_k\Big), \qquad
    p_k = \frac{\lambda^k e^{-\lambda}}{k!}, \; \lambda = \operatorname{softplus}(w \cdot f + b)
    \quad\text{or}\quad
    p_k = \tbinom{K-1}{k} q^k (1-q)^{K-1-k}, \; q = \sigma(w \cdot f + b)

The loss is :math:`-\log P_y(f)`. Both are log-concave in k, and the softmax of a concave sequence
has one peak, at any τ > 0. Factors that are the same for all k fall out: :math:`e^{-\lambda}`, and
for the Binomial all but :math:`\log\binom{K-1}{k} + k\,(w \cdot f + b)`, so that neither q nor its
logarithm is ever needed and nothing saturates. One temperature for all samples is the paper's
plainer variant; τ = exp(t) is ours.

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

The loss is the earth mover's distance to the label; the second form is the one computed. A normal
is log-concave, and so are its masses in equal cells: P has one peak. Cells, the squashed mean and
the loss are the paper's. That σ is kept between a part of a cell and many times the line is ours;
without it a sharp distribution has no gradient.

All three compute in float64 (float32 on a device without it): neighboring terms cancel when K is in
the hundreds.
"""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.shapes import Features, PerClass, PerSample, Ranks
from layline.heads.base import LinearHead
from layline.heads.cells import log_cells
from layline.utils.devices import widest_float
from layline.utils.validation import check_above

WIDEST = 10.0  # largest σ, in half lines: the distribution is then flat to three digits


class _TemperatureHead(LinearHead):
    """A distribution over the ranks from one number and a learned temperature."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1)
        self.log_tau = nn.Parameter(torch.empty(()))
        self._set_start_values()

    def _set_start_values(self) -> None:
        nn.init.zeros_(self.log_tau)

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
    """A Poisson with a learned temperature: unimodal whatever the features.

    The bias starts at the middle rank (our choice): a rate that begins near zero would have to
    climb all ranks first.
    """

    def _set_start_values(self) -> None:
        super()._set_start_values()
        nn.init.constant_(self.linear.bias, self.num_classes / 2)

    def _log_masses(self, score: Float[Tensor, "n 1"], k: Float[Tensor, " K"]) -> PerClass:
        # log softplus(x) is x itself far below zero, where eˣ would vanish
        far = score < -30
        log_rate = torch.where(far, score, F.softplus(torch.where(far, 0.0, score)).log())
        return k * log_rate - torch.lgamma(k + 1)


class UnimodalBinomial(_TemperatureHead):
    """A Binomial with a learned temperature: unimodal whatever the features."""

    def _log_masses(self, score: Float[Tensor, "n 1"], k: Float[Tensor, " K"]) -> PerClass:
        return k * score - torch.lgamma(k + 1) - torch.lgamma(self.num_classes - k)


class UnimodalPOM(LinearHead):
    """A normal distribution over equal cells: unimodal whatever the features.

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
        narrowest = self.narrowest * 2 / self.num_classes
        spread = F.softplus(raw_spread).clamp(narrowest, WIDEST)
        cells = torch.arange(self.num_classes + 1, dtype=dtype, device=features.device)
        edges = 2 * cells / self.num_classes - 1
        return (edges - torch.tanh(raw_mean)) / spread
