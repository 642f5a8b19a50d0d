r"""Ranking by binary questions: a classifier of its own for each threshold.

.. math::
    z = W f + b, \qquad
    L(f, y) = \sum_{k=0}^{K-2} \operatorname{BCE}\bigl(\sigma(z_k),\, 1\{y > k\}\bigr), \qquad
    \hat y = \#\{k : \sigma(z_k) > \tfrac12\}

Certain: the K − 1 questions, their cross entropies, and the count as the prediction. The paper
gives each question two outputs and a softmax, which is the same function as the one logit here,
and lets questions have weights; ours all weigh 1. Our reading: the paper asks for no
probabilities of ranks. The answers may contradict each other, so they are sorted before
differences are taken, see :mod:`layline.heads.cumulative`. The count is then ``decode="median"``.
"""

from jaxtyping import Float, Int
from torch import Tensor

from layline.heads.cumulative import binary_losses, log_probs_from_cumulative
from layline.heads.linear import LinearHead


class Ranking(LinearHead):
    """K − 1 independent binary classifiers on shared features.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=num_classes - 1)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return log_probs_from_cumulative(self._scores(features))

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        return binary_losses(self._scores(features), ranks)
