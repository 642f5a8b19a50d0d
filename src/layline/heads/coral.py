r"""CORAL: the binary questions of ``ranking`` with one weight vector for all of them.

.. math::
    z_k = w^\top f + b_k, \qquad
    L(f, y) = \sum_{k=0}^{K-2} \operatorname{BCE}\bigl(\sigma(z_k),\, 1\{y > k\}\bigr), \qquad
    \hat y = \#\{k : \sigma(z_k) > \tfrac12\}

The logits of a sample differ by the biases alone. They start in descending order, equally spaced
in (0, 1], and the paper proves that they are in order at the optimum. On the way there nothing
holds them: biases out of order are sorted for the probabilities, not for the loss, see
:mod:`layline.heads.cumulative`. The count is ``decode="median"``.

The distribution has the form of ``proportional-odds``; the losses differ.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.heads.cumulative import binary_losses, log_differences
from layline.heads.linear import LinearHead


class Coral(LinearHead):
    """Consistent rank logits: parallel binary classifiers.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1, bias=False)
        self.biases = nn.Parameter(torch.empty(num_classes - 1))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start the biases in order, equally spaced."""
        thresholds = self.num_classes - 1
        self.biases.copy_(torch.arange(thresholds, 0, -1) / thresholds)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        biases = self.biases.to(features.dtype).sort(descending=True).values
        return log_differences(self._scores(features) + biases, biases[:-1] - biases[1:])

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        return binary_losses(self._scores(features) + self.biases.to(features.dtype), ranks)
