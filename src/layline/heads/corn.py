r"""CORN: binary questions asked in turn, each only of those that passed the ones before.

.. math::
    \sigma(z_k) = P(y > k \mid y \ge k), \qquad
    P(y > k) = \prod_{j \le k} \sigma(z_j), \qquad
    L(f, y) = \sum_{k=0}^{\min(y,\,K-2)} \operatorname{BCE}\bigl(\sigma(z_k),\, 1\{y > k\}\bigr)

The sum over the questions that a sample is asked is its −log P(y): the conditional probabilities
multiply. The prediction is the count of P(y > k) > ½, which is ``decode="median"``.

The paper divides the sum over a batch by the number of questions asked in it, Σ min(y + 1, K − 1).
There a sample's share depends on its company, which leaves no place for sample weights. We divide
by the number of samples. The published number is ours divided by the mean number of questions per
sample, for the same direction of the gradient in a batch.

The likelihood is that of ``stick-breaking`` with the sign of the logits turned.
"""

from jaxtyping import Float
from torch import Tensor

from layline.heads.cumulative import log_probs_from_conditional
from layline.heads.linear import LinearHead


class Corn(LinearHead):
    """Conditional ordinal regression: K − 1 conditional binary classifiers.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=num_classes - 1)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return log_probs_from_conditional(self._scores(features))
