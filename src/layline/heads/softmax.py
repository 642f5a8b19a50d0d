"""What the losses on a plain softmax share: the logits, and distances between ranks.

These methods differ from :mod:`~layline.heads.classification` in their loss only.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.heads.linear import LinearHead


class SoftmaxHead(LinearHead):
    """A head with one logit per class. Its subclasses say what the loss is.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
    """

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__(num_classes, dim, outputs=num_classes)

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self._scores(features), dim=-1)


def rank_distances(ranks: Int[Tensor, " n"], num_classes: int) -> Float[Tensor, "n K"]:
    """Give |k − y| of every class k to every label y, in float64, which MPS leaves to the CPU."""
    ranks = ranks.cpu() if ranks.device.type == "mps" else ranks
    k = torch.arange(num_classes, dtype=torch.float64, device=ranks.device)
    return (k - ranks[:, None]).abs()


def expected_rank(probs: Float[Tensor, "n K"]) -> Float[Tensor, " n"]:
    """Average the ranks under each distribution."""
    return probs @ torch.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)
