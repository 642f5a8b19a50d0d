r"""Unimodal Poisson (Beckham & Pal, ICML 2017): one number places a Poisson over the ranks.

.. math::
    \lambda = \operatorname{softplus}(w \cdot f + b), \qquad
    P(f) = \operatorname{softmax}_k\!\Big(\tfrac1\tau \log \tfrac{\lambda^k e^{-\lambda}}{k!}\Big),
    \qquad L(f, k^*) = -\log P_{k^*}(f)

A Poisson is log-concave, and the softmax of a concave sequence has one peak, at any temperature
:math:`\tau > 0`. The factor :math:`e^{-\lambda}` is the same for all k and falls out.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads.linear import LinearHead


class UnimodalPoisson(LinearHead):
    """A Poisson with a learned temperature: unimodal whatever the features.

    One learned temperature for all samples is the paper's plainer variant. Ours are its
    parametrisation, τ = exp(t), and the start of the bias at the middle rank: a rate that begins
    near zero would have to climb all ranks first.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1)
        nn.init.constant_(self.linear.bias, num_classes / 2)
        self.log_tau = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start at the temperature one."""
        nn.init.zeros_(self.log_tau)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        # in float64: k·log λ − log k! loses the difference of neighbours when k is in the hundreds
        log_rate = _log_softplus(self._scores(features).double())
        k = torch.arange(self.num_classes, dtype=torch.float64, device=features.device)
        lpmf = k * log_rate - torch.lgamma(k + 1)
        log_p = torch.log_softmax(lpmf / self.log_tau.double().exp(), dim=-1)
        return log_p.to(features.dtype)


def _log_softplus(x: Tensor) -> Tensor:
    """Compute log log(1 + eˣ), which is x itself far below zero, where eˣ would vanish."""
    far = x < -30
    return torch.where(far, x, F.softplus(torch.where(far, 0.0, x)).log())
