r"""Mean-variance loss: cross entropy, the expected rank at the label, and a narrow distribution.

.. math::
    L(f, y) = -\log P_y(f) + \lambda_1\,\tfrac12 (m - y)^2 + \lambda_2\,v, \qquad
    m = \sum_k k\,P_k(f), \quad v = \sum_k (k - m)^2\,P_k(f)

The method decides by m: decode with ``"mean"``.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.arguments import check_at_least
from layline.heads.softmax import SoftmaxHead, expected_rank


class MeanVariance(SoftmaxHead):
    """Classification that also looks at the mean and the variance of what it predicts.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        mean_weight: λ₁, weight of the mean's squared error.
        variance_weight: λ₂, weight of the variance.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        mean_weight: float = 0.2,
        variance_weight: float = 0.05,
    ) -> None:
        super().__init__(num_classes, dim)
        for name, weight in (("mean_weight", mean_weight), ("variance_weight", variance_weight)):
            check_at_least(name, weight, 0, "it is the weight of a penalty")
        self.mean_weight = mean_weight
        self.variance_weight = variance_weight

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return (
            f"{super().extra_repr()}, mean_weight={self.mean_weight}, "
            f"variance_weight={self.variance_weight}"
        )

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        log_probs = self._log_probs(features)
        probs = log_probs.exp()
        mean = expected_rank(probs)
        k = torch.arange(self.num_classes, dtype=mean.dtype, device=mean.device)
        variance = (probs * (k - mean[:, None]).square()).sum(dim=-1)
        return (
            F.nll_loss(log_probs, ranks, reduction="none")
            + self.mean_weight * 0.5 * (mean - ranks).square()
            + self.variance_weight * variance
        )
