r"""Proxy-Anchor (Kim et al., CVPR 2020): one proxy per class, anchor of the whole batch.

.. math::
    L = \frac{1}{|P^+|} \sum_{p \in P^+}
        \log\Big(1 + \sum_{f \text{ of } p} e^{-\alpha (\cos(f, p) - \delta)}\Big)
      + \frac{1}{K} \sum_p
        \log\Big(1 + \sum_{f \text{ not of } p} e^{\alpha (\cos(f, p) + \delta)}\Big)

:math:`P^+` are the proxies whose class is in the batch. The terms are computed by
pytorch-metric-learning; they know nothing of the order. Ours are the probabilities,
:math:`P(f) = \operatorname{softmax}(\alpha \cos(f, p))`: the mode is the nearest proxy.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.arguments import check_above
from layline.heads.base import OrdinalHead
from layline.heads.metric_loss import MetricLoss


class ProxyAnchor(OrdinalHead):
    """Proxy-Anchor loss; needs pytorch-metric-learning.

    The loss is that of a batch as a whole, not a mean over samples. A weight multiplies the
    sample's exponentials, so that it counts like a repetition: it is the sample's own margin,
    δ + log(w)/α.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
        margin: δ.
        alpha: Scale α of the cosines.
    """

    target = "onehot"
    """What P is matched to, in the words of the proxy methods: the label alone."""

    def __init__(
        self, num_classes: int, dim: int = 512, *, margin: float = 0.1, alpha: float = 32.0
    ) -> None:
        super().__init__(num_classes, dim)
        if not math.isfinite(margin):
            raise ValueError(f"margin must be a finite number, got {margin}")
        check_above("alpha", alpha, 0)
        self.margin = margin
        self.alpha = alpha
        sizes = {"num_classes": num_classes, "embedding_size": dim}
        options = {"margin": margin, "alpha": alpha}
        self.metric = MetricLoss("ProxyAnchorLoss", "proxy-anchor", **sizes, **options)

    def reset_parameters(self) -> None:
        """Draw the proxies as the paper does."""
        nn.init.kaiming_normal_(self.metric.loss.proxies, mode="fan_out")

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give the proxies, in label order."""
        proxies: Tensor = self.metric.loss.proxies
        return proxies

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self.alpha * self.metric.similarities(features), dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        return features.new_zeros(len(features))

    def _loss_between(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""]:
        if weights is None:
            terms = self.metric.terms(features, ranks)
            present = terms["pos_loss"]["divisor"]
        else:
            tiny = torch.finfo(weights.dtype).tiny
            margins = self.margin + weights.clamp(min=tiny).log()[:, None] / self.alpha
            terms = self.metric.terms(features, ranks, margin=margins)
            mass = features.new_zeros(self.num_classes).index_add(0, ranks, weights)
            present = (mass > 0).sum()
        pull: Tensor = terms["pos_loss"]["losses"].sum() / present
        push: Tensor = terms["neg_loss"]["losses"].mean()
        return pull + push

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return f"{super().extra_repr()}, margin={self.margin}, alpha={self.alpha}"
