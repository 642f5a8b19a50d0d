r"""Metric learning with proxies that know nothing of the order, for reference.

**Proxy-Anchor** (Kim et al., CVPR 2020): one proxy per class, anchor of the whole batch.

.. math::
    L = \frac{1}{|P^+|} \sum_{p \in P^+}
        \log\Big(1 + \sum_{f \text{ of } p} e^{-\alpha (\cos(f, p) - \delta)}\Big)
      + \frac{1}{K} \sum_p
        \log\Big(1 + \sum_{f \text{ not of } p} e^{\alpha (\cos(f, p) + \delta)}\Big)

:math:`P^+` are the proxies whose class is in the batch. Ours are the probabilities,
:math:`P(f) = \operatorname{softmax}(\alpha \cos(f, p))`: the mode is the nearest proxy.

**SoftTriple** (Qian et al., ICCV 2019): several proxies ("centers") per class.

.. math::
    S_k(f) = \sum_c \operatorname{softmax}_c\big(\cos(f, p_{kc}) / \gamma\big) \cos(f, p_{kc}),
    \qquad L(f, y) = -\log \frac{e^{\lambda (S_y - \delta)}}
        {e^{\lambda (S_y - \delta)} + \sum_{k \ne y} e^{\lambda S_k}}

The paper's term that merges centers is left out. Ours are the probabilities,
:math:`P(f) = \operatorname{softmax}(\lambda S(f))`: the loss's own similarity, without the margin.
The mode is the class whose centers are nearest.

The losses themselves are computed by pytorch-metric-learning, see
:mod:`layline.heads.wrapped_losses`.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.heads.base import OrdinalHead
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_above, check_integer


class _MetricHead(OrdinalHead):
    """A head around a loss of pytorch-metric-learning.

    Args:
        method: Name of the head.
        loss: Class of the loss, in :mod:`layline.heads.wrapped_losses`.
        margin: δ.
        **options: Further arguments of the loss.
    """

    def __init__(
        self, num_classes: int, dim: int, method: str, loss: str, *, margin: float, **options: Any
    ) -> None:
        super().__init__(num_classes, dim)
        if not math.isfinite(margin):
            raise UserError(f"margin must be a finite number, got {margin}")
        reducers = require("pytorch_metric_learning.reducers", extra="metric", needed_by=method)
        from layline.heads import wrapped_losses

        # the terms themselves, so that weights can enter before anything is summed
        options = options | {"margin": margin, "reducer": reducers.DoNothingReducer()}
        build = getattr(wrapped_losses, loss)
        self.metric = nn.ModuleDict({"loss": build(num_classes, dim, **options)})

    def no_weight_decay(self) -> set[str]:
        """Name the proxies, of which only directions count."""
        return {name for name, _ in self.named_parameters()}

    @property
    def _loss(self) -> Any:
        """The library's loss, which has no types."""
        return self.metric["loss"]


class ProxyAnchor(_MetricHead):
    """Proxy-Anchor loss; needs pytorch-metric-learning.

    The loss is that of a batch as a whole, not a mean over samples. A weight multiplies the
    sample's exponentials, so that it counts like a repetition: it is the sample's own margin,
    δ + log(w)/α.

    Args:
        margin: δ.
        alpha: Scale α of the cosines.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, margin: float = 0.1, alpha: float = 32.0
    ) -> None:
        check_above("alpha", alpha, 0)
        options = {"margin": margin, "alpha": alpha}
        super().__init__(num_classes, dim, "proxy-anchor", "ProxyAnchorLoss", **options)
        self.margin = margin
        self.alpha = alpha

    def reset_parameters(self) -> None:
        """Draw the proxies as the paper does."""
        nn.init.kaiming_normal_(self.proxies(), mode="fan_out")

    def proxies(self) -> Float[Tensor, "K d"]:
        """Give the proxies, in label order."""
        proxies: Tensor = self._loss.proxies
        return proxies

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self.alpha * self._loss.get_logits(features), dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        return features.new_zeros(len(features))

    def _batch_loss(
        self,
        features: Float[Tensor, "n d"],
        ranks: Int[Tensor, " n"],
        weights: Float[Tensor, " n"] | None,
    ) -> Float[Tensor, ""]:
        if weights is None:
            terms = self._loss(features, ranks)
            present = terms["pos_loss"]["divisor"]
        else:
            tiny = torch.finfo(weights.dtype).tiny
            try:
                self._loss.margin = (
                    self.margin + weights.clamp(min=tiny).log()[:, None] / self.alpha
                )
                terms = self._loss(features, ranks)
            finally:
                self._loss.margin = self.margin
            mass = features.new_zeros(self.num_classes).index_add(0, ranks, weights)
            present = (mass > 0).sum()
        pull: Tensor = terms["pos_loss"]["losses"].sum() / present
        push: Tensor = terms["neg_loss"]["losses"].mean()
        return pull + push

    def extra_repr(self) -> str:
        """Show the options when the module is printed."""
        return f"{super().extra_repr()}, margin={self.margin}, alpha={self.alpha}"


class SoftTriple(_MetricHead):
    """SoftTriple loss; needs pytorch-metric-learning.

    The loss is one of single samples, so weights average it as they do for any head.

    Args:
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
        check_integer("centers_per_class", centers_per_class, 1)
        for name, value in (("la", la), ("gamma", gamma)):
            check_above(name, value, 0)
        options = {"centers_per_class": centers_per_class, "la": la, "gamma": gamma}
        super().__init__(
            num_classes, dim, "soft-triple", "SoftTripleLoss", margin=margin, **options
        )
        self.la = la

    def reset_parameters(self) -> None:
        """Draw the centers anew."""
        nn.init.kaiming_uniform_(self._loss.fc, a=math.sqrt(5))

    def _log_probs(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        return torch.log_softmax(self.la * self._loss.get_logits(features), dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        losses: Tensor = self._loss(features, ranks)["loss"]["losses"]
        return losses
