r"""Plain classification: a linear layer and cross entropy. It knows nothing of the order.

.. math:: P(f) = \operatorname{softmax}(W f + b), \qquad L(f, k^*) = -\log P_{k^*}(f)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layline.heads.base import OrdinalHead


class Classification(OrdinalHead):
    """The baseline that every ordinal method must beat.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim)
        self.linear = nn.Linear(dim, num_classes)

    def _logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        weight, bias = self.linear.weight, self.linear.bias
        return F.linear(features, weight.to(features.dtype), bias.to(features.dtype))

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self._logits(features), dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        return F.cross_entropy(self._logits(features), ranks, reduction="none")
