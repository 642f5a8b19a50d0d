r"""Unimodal output with an optimal transport loss (Shaham et al., 2020).

The line from −1 to 1 is cut into K equal cells with the edges :math:`t_0 < \dots < t_K`. The
feature gives a normal distribution; its mass in a cell, renormalised, is the rank's probability.

.. math::
    \mu = \tanh(w_\mu \cdot f + b_\mu), \quad
    \sigma = \operatorname{softplus}(w_\sigma \cdot f + b_\sigma), \quad
    P_k(f) \propto \Phi\big((t_{k+1} - \mu) / \sigma\big) - \Phi\big((t_k - \mu) / \sigma\big)

.. math:: L(f, k^*) = \sum_k |k - k^*|\, P_k(f)

The loss is the earth mover's distance to the label. A normal is log-concave, and so are its masses
in equal cells: P has one peak.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.heads.linear import LinearHead
from layline.heads.normal_cells import log_normal_cells

NARROWEST = 0.02
"""Least σ, in cells: then the distribution is one-hot to all digits unless μ is on an edge."""
WIDEST = 10.0
"""Largest σ, in half lines: then the distribution is flat to three digits."""


class UnimodalPOM(LinearHead):
    """A normal distribution over equal cells: unimodal whatever the features.

    Cells, the squashed mean and the loss are the paper's. That σ is kept between a small part of a
    cell and many times the line is ours; without it a sharp distribution has no gradient.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=2)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        raw_mean, raw_spread = self._scores(features).double().chunk(2, dim=-1)
        narrowest = NARROWEST * 2 / self.num_classes
        spread = F.softplus(raw_spread).clamp(narrowest, WIDEST)
        cells = torch.arange(self.num_classes + 1, dtype=torch.float64, device=features.device)
        edges = 2 * cells / self.num_classes - 1
        log_masses = log_normal_cells((edges - torch.tanh(raw_mean)) / spread)
        return torch.log_softmax(log_masses, dim=-1).to(features.dtype)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        k = torch.arange(self.num_classes, device=features.device)
        distances = (k - ranks[:, None]).abs().to(features.dtype)
        return (distances * self._log_probs(features).exp()).sum(dim=-1)
