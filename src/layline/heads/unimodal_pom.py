r"""Unimodal output with an optimal transport loss (Shaham et al., 2020).

The line from −1 to 1 is cut into K equal cells with the edges :math:`t_0 < \dots < t_K`. The
feature gives a normal distribution; its mass in a cell, renormalised, is the rank's probability.

.. math::
    \mu = \tanh(w_\mu \cdot f + b_\mu), \quad
    \sigma = \operatorname{softplus}(w_\sigma \cdot f + b_\sigma), \quad
    P_k(f) \propto \Phi\big((t_{k+1} - \mu) / \sigma\big) - \Phi\big((t_k - \mu) / \sigma\big)

.. math:: L(f, k^*) = \sum_k |k - k^*|\, P_k(f)
    = \sum_{k < k^*} F_k(f) + \sum_{k \ge k^*} \big(1 - F_k(f)\big), \qquad
    F_k = P_0 + \dots + P_k

The loss is the earth mover's distance to the label; the second form is the one computed. A normal
is log-concave, and so are its masses in equal cells: P has one peak.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.heads.linear import LinearHead
from layline.heads.normal_cells import log_normal_cells

NARROWEST = 0.25
"""Least σ, in cells: a mean in the middle of one puts 95 % into it. The loss always rewards a
narrower σ, and below this its gradient is gone before the mean is where it should be."""
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
        log_masses = log_normal_cells(self._edges(features))
        return torch.log_softmax(log_masses, dim=-1).to(features.dtype)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        # as the area between the cumulative distributions: Φ is far cheaper than its logarithm,
        # and no small number is divided by, as at least a thirteenth of the mass is on the line
        masses = torch.special.ndtr(self._edges(features))
        first, inner, last = masses.split([1, self.num_classes - 1, 1], dim=-1)
        up_to = (inner - first) / (last - first)  # P(rank ≤ k) for k = 0…K−2
        k = torch.arange(self.num_classes - 1, device=features.device)
        areas = torch.where(k < ranks[:, None], up_to, 1 - up_to)
        return areas.sum(dim=-1).to(features.dtype)

    def _edges(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K+1"]:
        """Give the cells' edges as multiples of σ from μ, in float64."""
        raw_mean, raw_spread = self._scores(features).double().chunk(2, dim=-1)
        narrowest = NARROWEST * 2 / self.num_classes
        spread = F.softplus(raw_spread).clamp(narrowest, WIDEST)
        cells = torch.arange(self.num_classes + 1, dtype=torch.float64, device=features.device)
        edges = 2 * cells / self.num_classes - 1
        return (edges - torch.tanh(raw_mean)) / spread
