r"""SoftTriple (Qian et al., ICCV 2019): several proxies ("centers") per class.

.. math::
    S_k(f) = \sum_c \operatorname{softmax}_c\big(\cos(f, p_{kc}) / \gamma\big) \cos(f, p_{kc}),
    \qquad L(f, k^*) = -\log \frac{e^{\lambda (S_{k^*} - \delta)}}
        {e^{\lambda (S_{k^*} - \delta)} + \sum_{k \ne k^*} e^{\lambda S_k}}

The loss is computed by pytorch-metric-learning, without the paper's term that merges centers; it
knows nothing of the order. Ours are the probabilities,
:math:`P(f) = \operatorname{softmax}(\lambda S(f))`: the loss's own similarity, without the margin.
The mode is the class whose centers are nearest.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.arguments import check_above, check_integer
from layline.heads.base import OrdinalHead
from layline.heads.metric_loss import MetricLoss


class SoftTriple(OrdinalHead):
    """SoftTriple loss; needs pytorch-metric-learning.

    The loss is one of single samples, so weights average it as they do for any head.

    Args:
        num_classes: K.
        dim: Dimension d of features and centers.
        centers_per_class: How many proxies a class has. The paper and its library use ten, which
            cost as much as ten linear layers.
        la: Scale λ of the similarities.
        gamma: Temperature γ among the centers of a class.
        margin: δ.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        centers_per_class: int = 2,
        la: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
    ) -> None:
        super().__init__(num_classes, dim)
        check_integer("centers_per_class", centers_per_class, 1)
        for name, value in (("la", la), ("gamma", gamma)):
            check_above(name, value, 0)
        if not math.isfinite(margin):
            raise ValueError(f"margin must be a finite number, got {margin}")
        self.la = la
        self.metric = MetricLoss(
            "SoftTripleLoss",
            "soft-triple",
            num_classes=num_classes,
            embedding_size=dim,
            centers_per_class=centers_per_class,
            la=la,
            gamma=gamma,
            margin=margin,
        )

    def reset_parameters(self) -> None:
        """Draw the centers anew."""
        nn.init.kaiming_uniform_(self.metric.loss.fc, a=math.sqrt(5))

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self.la * self.metric.similarities(features), dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        losses: Tensor = self.metric.terms(features, ranks)["loss"]["losses"]
        return losses
