r"""SORD: cross entropy with labels that are softened by the distance between ranks.

.. math::
    L(f, y) = -\sum_k t_k(y) \log P_k(f), \qquad
    t(y) = \operatorname{softmax}_k\bigl(-\alpha\,\varphi(y, k)\bigr), \qquad
    \varphi(y, k) = (k - y)^2 \text{ or } |k - y|

The squared φ with α is a Gaussian around the label with σ² = 1 / 2α. The paper leaves φ to its
user; that the ranks are one unit apart and φ is squared unless said otherwise is our reading.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.arguments import check_above
from layline.heads.constant_table import ConstantTable
from layline.heads.softmax import SoftmaxHead, rank_distances
from layline.registry import check_known


class Sord(SoftmaxHead):
    """Soft labels of Díaz and Marathe.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        distance: φ: the ``"squared"`` or the ``"absolute"`` difference of ranks.
        alpha: Sharpness α of the labels. Towards infinity they become one-hot.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        distance: Literal["squared", "absolute"] = "squared",
        alpha: float = 1.0,
    ) -> None:
        super().__init__(num_classes, dim)
        check_known("distance", distance, ("squared", "absolute"))
        why = "at 0 every class would be as good a label as any other"
        check_above("alpha", alpha, 0, why)
        self.distance = distance
        self.alpha = alpha
        self._targets = ConstantTable(num_classes)

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return f"{super().extra_repr()}, distance={self.distance!r}, alpha={self.alpha}"

    def _target(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        distances = rank_distances(ranks, self.num_classes)
        phi = distances.square() if self.distance == "squared" else distances
        return torch.softmax(-self.alpha * phi, dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        scores = self._scores(features)
        targets = self._targets.table((self.distance, self.alpha), self._target, ranks, scores)
        return F.cross_entropy(scores, targets, reduction="none")
