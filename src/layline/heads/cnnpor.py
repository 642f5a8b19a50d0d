r"""CNNPOR (Liu et al., CVPR 2018): classification whose features also rank neighbouring classes.

.. math::
    L = -\log \operatorname{softmax}(W f + b)_y + \lambda\,
    \operatorname{mean}_{(i, j):\, y_i = y_j + 1} \max\big(0,\, m - (g(f_i) - g(f_j))\big)

What is certain: the softmax with cross entropy, the pairs from adjacent classes, and that a pair in
the wrong order is penalised. Our reading: what is ordered is a scalar score, one more linear output
:math:`g(f) = w \cdot f`; the pairs are all that the batch has; the penalty is a hinge, averaged
over the pairs, so that λ means the same at any batch size.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.heads.linear import LinearHead
from layline.utils.validation import check_at_least


class CNNPOR(LinearHead):
    """Cross entropy with a pairwise constraint between adjacent classes.

    Args:
        lam: Weight λ of the pairwise term.
        margin: By how much the higher class of a pair must score above the lower one.
    """

    shown_options = ("lam", "margin")

    def __init__(
        self, num_classes: int, dim: int = 512, *, lam: float = 1.0, margin: float = 1.0
    ) -> None:
        super().__init__(num_classes, dim, outputs=num_classes + 1)
        for name, value in (("lam", lam), ("margin", margin)):
            check_at_least(name, value, 0)
        self.lam = lam
        self.margin = margin

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self._scores(features)[:, :-1], dim=-1)

    def _batch_loss(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""]:
        # the bias of g cancels in every pair
        score = features @ self.linear.weight[-1].to(features.dtype)
        hinge = F.relu(self.margin - (score[:, None] - score))  # (n, n): row above, column below
        pairs = (ranks[:, None] == ranks + 1).to(features.dtype)
        if weights is not None:
            pairs = pairs * weights[:, None] * weights
        total = pairs.sum()
        return self.lam * (pairs * hinge).sum() / torch.where(total > 0, total, 1)
