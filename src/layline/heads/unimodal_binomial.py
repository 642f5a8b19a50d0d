r"""Unimodal Binomial (Beckham & Pal, ICML 2017): one number places a Binomial over the ranks.

.. math::
    q = \sigma(w \cdot f + b), \qquad
    P(f) = \operatorname{softmax}_k\!\Big(\tfrac1\tau \log \tbinom{K-1}{k} q^k (1-q)^{K-1-k}\Big),
    \qquad L(f, k^*) = -\log P_{k^*}(f)

The logarithm is :math:`\log\binom{K-1}{k} + k\,(w \cdot f + b)` plus what is the same for all k:
neither q nor its logarithm is ever needed, so nothing saturates. The sequence is concave in k,
hence P has one peak, at any temperature :math:`\tau > 0`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layline.heads.linear import LinearHead


class UnimodalBinomial(LinearHead):
    """A Binomial with a learned temperature: unimodal whatever the features.

    One learned temperature for all samples is the paper's plainer variant; τ = exp(t) is ours.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1)
        self.log_tau = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start at the temperature one."""
        nn.init.zeros_(self.log_tau)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        # in float64: the terms cancel to the difference of neighbours when K is in the hundreds
        logit = self._scores(features).double()
        k = torch.arange(self.num_classes, dtype=torch.float64, device=features.device)
        lpmf = k * logit - torch.lgamma(k + 1) - torch.lgamma(self.num_classes - k)
        log_p = torch.log_softmax(lpmf / self.log_tau.double().exp(), dim=-1)
        return log_p.to(features.dtype)
