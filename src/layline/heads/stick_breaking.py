r"""Stick-breaking: each class in turn takes its share of what is left of the stick.

.. math::
    P(y = k) = \sigma(\eta_k) \prod_{j < k} \bigl(1 - \sigma(\eta_j)\bigr), \quad k < K - 1,
    \qquad P(y = K - 1) = \prod_{j < K - 1} \bigl(1 - \sigma(\eta_j)\bigr),
    \qquad L(f, y) = -\log P(y)

with :math:`\eta = W f + b`. Certain: the formula and its K − 1 outputs; the last class takes what
remains. Our reading: the biases start at :math:`b_k = -\log(K - 1 - k)`, which gives every class
the same share; from zero the first class would begin with half of the stick and the hundredth with
nothing. The paper's unimodal smoothing of the labels is a method of its own and is not applied.

The likelihood is that of ``corn`` with the sign of the logits turned; the start differs, and so
does the decision, here the most probable rank. Statistics knows it as the continuation ratio.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from layline.heads.cumulative import log_probs_from_conditional
from layline.heads.linear import LinearHead


class StickBreaking(LinearHead):
    """A chain of decisions to stop at a rank or go on.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=num_classes - 1)
        with torch.no_grad():
            self.linear.bias.copy_(-torch.arange(num_classes - 1, 0, -1).log())

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return log_probs_from_conditional(-self._scores(features))
