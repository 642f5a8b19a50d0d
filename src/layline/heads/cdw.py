r"""Class-distance weighted cross entropy, also known as ordinal log loss.

.. math:: L(f, y) = -\sum_k |k - y|^\alpha \log\bigl(1 - P_k(f)\bigr)

Two papers of 2022 propose it, Polat et al. as CDW-CE and Castagnos et al. as OLL. The formula is
theirs, the default of α is ours, and lower than what they try (OLL 1 to 2, CDW-CE 5 and more).
Nothing in the loss pulls towards the label's own class; it only pushes out of the others. The more
the far ones outweigh the near, the more easily a class in the middle loses its probability early
in training, and then nothing brings it back.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.arguments import check_above
from layline.heads.constant_table import ConstantTable
from layline.heads.softmax import SoftmaxHead, rank_distances


class Cdw(SoftmaxHead):
    """Push probability out of every wrong class, the harder the farther it is.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        alpha: Power α of the distance. The higher, the more far errors count against near ones.
    """

    def __init__(self, num_classes: int, dim: int = 512, *, alpha: float = 0.5) -> None:
        super().__init__(num_classes, dim)
        why = "at 0 the label's own class would be pushed away as well"
        check_above("alpha", alpha, 0, why)
        self.alpha = alpha
        self._weights = ConstantTable(num_classes)

    def extra_repr(self) -> str:
        """Show the option when the module is printed."""
        return f"{super().extra_repr()}, alpha={self.alpha}"

    def _weight(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        return rank_distances(ranks, self.num_classes) ** self.alpha

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        log_others = log_one_minus(self._log_probs(features))
        weights = self._weights.table(self.alpha, self._weight, ranks, log_others)
        return -(weights * log_others).sum(dim=-1)


def log_one_minus(log_probs: Float[Tensor, "n K"]) -> Float[Tensor, "n K"]:
    """Turn log p into log(1 − p), row by row.

    Only the largest p of a row can round to one. For it, 1 − p is the sum of the others, whose
    logarithm is exact however small they are.
    """
    top = log_probs.argmax(dim=-1, keepdim=True)
    others = log_probs.scatter(-1, top, -math.inf).logsumexp(dim=-1, keepdim=True)
    # zeroed before log1p, not after: the gradient there would be 0 · ∞
    probs = log_probs.exp().scatter(-1, top, 0.0)
    return torch.log1p(-probs).scatter(-1, top, others)
