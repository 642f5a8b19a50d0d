r"""Metric learning with proxies that ignore the order of the classes, for comparison.

**Proxy-Anchor** (Kim et al., CVPR 2020): one proxy per class, an anchor for the whole batch.

.. math::
    L = \frac{1}{|P^+|} \sum_{p \in P^+}
        \log\Big(1 + \sum_{f \text{ of } p} e^{-\alpha (\cos(f, p) - \delta)}\Big)
      + \frac{1}{K} \sum_p
        \log\Big(1 + \sum_{f \text{ not of } p} e^{\alpha (\cos(f, p) + \delta)}\Big)

:math:`P^+` are the proxies whose class is in the batch. The paper defines no probabilities; ours
are :math:`P(f) = \operatorname{softmax}(\alpha \cos(f, p))`.

**SoftTriple** (Qian et al., ICCV 2019): several proxies ("centers") per class.

.. math::
    S_k(f) = \sum_c \operatorname{softmax}_c\big(\cos(f, p_{kc}) / \gamma\big) \cos(f, p_{kc}),
    \qquad L(f, y) = -\log \frac{e^{\lambda (S_y - \delta)}}
        {e^{\lambda (S_y - \delta)} + \sum_{k \ne y} e^{\lambda S_k}}

We leave out the paper's term that merges centers. Our probabilities are
:math:`P(f) = \operatorname{softmax}(\lambda S(f))`.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.layouts import cosines
from layline.geometry.similarities import Features, PerClass, PerSample, Proxies, Ranks, Scalar
from layline.heads.base import OrdinalHead
from layline.utils.validation import check_above, check_at_least, check_integer


class ProxyAnchor(OrdinalHead):
    """One free proxy per class, Proxy-Anchor loss.

    The loss is that of a whole batch. A weight multiplies the sample's exponentials, so that it
    counts like a repetition.

    Args:
        margin: δ.
        alpha: Scale α of the cosines.
    """

    def __init__(
        self, num_classes: int, dim: int = 512, *, margin: float = 0.1, alpha: float = 32.0
    ) -> None:
        super().__init__(num_classes, dim)
        check_above("alpha", alpha, 0)
        check_at_least("margin", margin, 0)
        self.margin, self.alpha = margin, alpha
        self.vectors = nn.Parameter(torch.empty(num_classes, dim))
        nn.init.kaiming_normal_(self.vectors, mode="fan_out")

    def proxies(self) -> Proxies:
        """Return the proxies, in label order."""
        return self.vectors

    def _log_probs(self, features: Features) -> PerClass:
        return torch.log_softmax(self.alpha * self._cosines(features), dim=-1)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        return features.new_zeros(len(features))

    def _batch_loss(self, features: Features, ranks: Ranks, weights: PerSample | None) -> Scalar:
        weights = features.new_ones(len(ranks)) if weights is None else weights
        log_weights = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()[:, None]
        own = F.one_hot(ranks, self.num_classes).bool()
        cos, offset = self._cosines(features), self.alpha * self.margin + log_weights
        pull = _log_one_plus_sum_exp(offset - self.alpha * cos, own)
        push = _log_one_plus_sum_exp(offset + self.alpha * cos, ~own)
        present = (own & (weights > 0)[:, None]).any(dim=0).sum()
        return pull.sum() / present + push.mean()

    def _cosines(self, features: Features) -> PerClass:
        return cosines(features, self.vectors.to(features.dtype))


class SoftTriple(OrdinalHead):
    """Several free proxies per class, SoftTriple loss.

    Args:
        centers_per_class: Number of proxies of a class; ten in the paper.
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
        check_integer("centers_per_class", centers_per_class, 1, most=100)
        check_above("la", la, 0)
        check_above("gamma", gamma, 0)
        check_at_least("margin", margin, 0)
        self.centers_per_class, self.la = centers_per_class, la
        self.gamma, self.margin = gamma, margin
        self.centers = nn.Parameter(torch.empty(dim, num_classes * centers_per_class))
        nn.init.kaiming_uniform_(self.centers, a=math.sqrt(5))

    def _log_probs(self, features: Features) -> PerClass:
        return torch.log_softmax(self.la * self._similarities(features), dim=-1)

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        margins = self.margin * F.one_hot(ranks, self.num_classes).to(features.dtype)
        logits = self.la * (self._similarities(features) - margins)
        return F.cross_entropy(logits, ranks, reduction="none")

    def _similarities(self, features: Features) -> PerClass:
        """Compute S. The classes are the last axis: a softmax along a short last axis is slow."""
        shape = (self.dim, self.num_classes, self.centers_per_class)
        centers = self.centers.to(features.dtype).view(shape).permute(2, 1, 0).flatten(0, 1)
        cos = cosines(features, centers).view(-1, self.centers_per_class, self.num_classes)
        return (torch.softmax(cos / self.gamma, dim=1) * cos).sum(dim=1)


def _log_one_plus_sum_exp(x: PerClass, where: Bool[Tensor, "n K"]) -> Float[Tensor, " K"]:
    """Compute log(1 + Σ exp x) over the chosen rows of each column."""
    return F.pad(x.masked_fill(~where, -math.inf), (0, 0, 0, 1)).logsumexp(dim=0)
