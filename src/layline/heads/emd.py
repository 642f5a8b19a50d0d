r"""Squared earth mover's distance between the predicted distribution and the label.

.. math:: L(f, y) = \sum_{k=0}^{K-2} \bigl(F_k - \mathbb 1\{k \ge y\}\bigr)^2, \qquad
    F_k = \sum_{j \le k} P_j(f)

The sum is not divided: the ranked probability score of :mod:`layline.metrics` is this over K − 1,
which is the number of terms that can differ from zero.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.heads.softmax import SoftmaxHead


class Emd(SoftmaxHead):
    """Squared differences of cumulative probabilities.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        cumulative = torch.softmax(self._scores(features), dim=-1).cumsum(dim=-1)[:, :-1]
        k = torch.arange(self.num_classes - 1, device=ranks.device)
        reached = (k >= ranks[:, None]).to(cumulative.dtype)
        return (cumulative - reached).square().sum(dim=-1)
