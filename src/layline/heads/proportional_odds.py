r"""Proportional odds: one score against ordered cut points, with logistic noise.

.. math::
    P(y > k) = \sigma(w^\top f - c_k), \qquad c_0 < c_1 < \dots < c_{K-2}, \qquad
    L(f, y) = -\log P(y)

The cut points are learned. They stay in order because their distances are:

.. math:: c_k = c_0 + \sum_{j=1}^{k} \operatorname{softplus}(\delta_j)

They start at :math:`c_k = \operatorname{logit}\frac{k+1}{K}`: a score of zero gives every class the
same probability. The model is textbook; parametrisation and start are our choice. The median is the
number of cut points below the score.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads.cumulative import log_differences
from layline.heads.linear import LinearHead


class ProportionalOdds(LinearHead):
    """The cumulative link model with the logistic link, by maximum likelihood.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1, bias=False)
        self.first_cut = nn.Parameter(torch.empty(1))
        self.steps = nn.Parameter(torch.empty(num_classes - 2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start the cut points where a score of zero gives every class the same probability."""
        shares = torch.arange(1, self.num_classes, dtype=torch.float64) / self.num_classes
        start = torch.logit(shares)
        self.first_cut.copy_(start[:1])
        self.steps.copy_(start.diff().expm1().log())  # softplus undone

    def cut_points(self) -> Float[Tensor, " K-1"]:
        """Give the cut points, in ascending order."""
        return self._cuts_and_gaps(torch.promote_types(self.steps.dtype, torch.float32))[0]

    def _cuts_and_gaps(
        self, dtype: torch.dtype
    ) -> tuple[Float[Tensor, " K-1"], Float[Tensor, " K-2"]]:
        gaps = F.softplus(self.steps.to(dtype))
        return torch.cat([self.first_cut.to(dtype), gaps]).cumsum(dim=0), gaps

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        cuts, gaps = self._cuts_and_gaps(features.dtype)
        return log_differences(self._scores(features) - cuts, gaps)
