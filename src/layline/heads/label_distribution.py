r"""A softmax over the classes whose label or loss uses their order.

All heads have :math:`P(f) = \operatorname{softmax}(W f + b)`, like plain classification, and differ
in their loss. :math:`m = \sum_k k\,P_k` is the expected rank, :math:`v = \sum_k (k - m)^2 P_k` its
variance and :math:`F_k = \sum_{j \le k} P_j`.

.. math::
    \text{SORD} \quad & -\textstyle\sum_k t_k(y) \log P_k, \quad
        t(y) = \operatorname{softmax}_k\bigl(-\alpha\,|k - y|^p\bigr), \; p = 2 \text{ or } 1 \\
    \text{DLDL-v2} \quad & -\textstyle\sum_k t_k(y) \log P_k + |m - y|, \quad
        t(y) \text{ with } \alpha = 1 / 2\sigma^2, \; p = 2 \\
    \text{mean-variance} \quad & -\log P_y + \lambda_1\,\tfrac12 (m - y)^2 + \lambda_2\,v \\
    \text{EMD} \quad & \textstyle\sum_{k=0}^{K-2} \bigl(F_k - \mathbb 1\{k \ge y\}\bigr)^2 \\
    \text{CDW} \quad & -\textstyle\sum_k |k - y|^\alpha \log (1 - P_k)

DLDL-v2 prints the divergence KL(t ‖ P), which has the same gradient as the cross entropy.
docs/methods.md has the sources, and says where we differ from them.
"""

import math
from typing import Literal

import torch
from torch.nn import functional as F

from layline.geometry.losses import squared_emd
from layline.geometry.similarities import Features, PerClass, PerSample, Ranks
from layline.heads.base import Classification
from layline.utils.devices import widest_float
from layline.utils.validation import check_above, check_at_least, check_known


def powers_of_distance(ranks: Ranks, num_classes: int, power: float) -> PerClass:
    """Compute |k − y|^p of every class k to every label y."""
    k = torch.arange(num_classes, dtype=widest_float(ranks.device), device=ranks.device)
    return (k - ranks[:, None]).abs() ** power


def soft_cross_entropies(scores: PerClass, ranks: Ranks, alpha: float, power: int) -> PerSample:
    """Compute the cross entropy with labels t. With p = 2 they are Gaussian, σ² = 1 / 2α."""
    distances = powers_of_distance(ranks, scores.shape[1], power)
    labels = torch.softmax(-alpha * distances, dim=-1).to(scores.dtype)
    return F.cross_entropy(scores, labels, reduction="none")


def expected_rank(probs: PerClass) -> PerSample:
    """Average the ranks under each distribution."""
    return probs @ torch.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)


def log_one_minus(log_probs: PerClass) -> PerClass:
    """Turn log p into log(1 − p), row by row.

    Only the largest p of a row can round to one. For it, 1 − p is the sum of the others, whose
    logarithm is exact even if they are tiny.
    """
    top = log_probs.argmax(dim=-1, keepdim=True)
    others = log_probs.scatter(-1, top, -math.inf).logsumexp(dim=-1, keepdim=True)
    # zeroed before log1p, not after: the gradient there would be 0 · ∞
    probs = log_probs.exp().scatter(-1, top, 0.0)
    return torch.log1p(-probs).scatter(-1, top, others)


class Sord(Classification):
    """Cross entropy with labels softened by rank distance.

    Args:
        distance: The ``"squared"`` (p = 2) or the ``"absolute"`` (p = 1) difference of ranks.
        alpha: Sharpness α of the labels. Towards infinity they become one-hot.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int = 512,
        *,
        distance: Literal["squared", "absolute"] = "squared",
        alpha: float = 1.0,
    ) -> None:
        super().__init__(num_classes, dim)
        check_known("distance", distance, ("squared", "absolute"))
        check_above("alpha", alpha, 0, "at 0 the label would be the same for all classes")
        self.distance, self.alpha = distance, alpha

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        power = 2 if self.distance == "squared" else 1
        return soft_cross_entropies(self._scores(features), ranks, self.alpha, power)


class DldlV2(Classification):
    """A Gaussian label distribution, and the mean at the label.

    Args:
        sigma: Standard deviation σ of the labels, in ranks. By default the paper's 2 years, but at
            most a sixth of the scale.
    """

    def __init__(self, num_classes: int, dim: int = 512, *, sigma: float | None = None) -> None:
        super().__init__(num_classes, dim)
        self.sigma = min(2.0, (num_classes - 1) / 6) if sigma is None else sigma
        check_above("sigma", self.sigma, 0, "it is the deviation of the labels, in ranks")

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        scores = self._scores(features)
        mean = expected_rank(torch.softmax(scores, dim=-1))
        cross_entropies = soft_cross_entropies(scores, ranks, 0.5 / self.sigma**2, power=2)
        return cross_entropies + (mean - ranks).abs()


class MeanVariance(Classification):
    """Cross entropy, mean at the label, small variance.

    Args:
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
        check_at_least("mean_weight", mean_weight, 0)
        check_at_least("variance_weight", variance_weight, 0)
        self.mean_weight, self.variance_weight = mean_weight, variance_weight

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        log_probs = self._log_probs(features)
        probs = log_probs.exp()
        mean = expected_rank(probs)
        k = torch.arange(self.num_classes, dtype=mean.dtype, device=mean.device)
        variance = (probs * (k - mean[:, None]).square()).sum(dim=-1)
        penalty = self.mean_weight * 0.5 * (mean - ranks).square() + self.variance_weight * variance
        return F.nll_loss(log_probs, ranks, reduction="none") + penalty


class Emd(Classification):
    """Squared differences of cumulative probabilities."""

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        return squared_emd(torch.softmax(self._scores(features), dim=-1), ranks)


class Cdw(Classification):
    """Wrong classes are penalized by their distance (CDW-CE, OLL).

    Args:
        alpha: Power α of the distance. The higher, the more far errors count.
    """

    def __init__(self, num_classes: int, dim: int = 512, *, alpha: float = 0.5) -> None:
        super().__init__(num_classes, dim)
        check_above("alpha", alpha, 0, "at 0 the label's own class would be pushed away as well")
        self.alpha = alpha

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        log_others = log_one_minus(self._log_probs(features))
        weights = powers_of_distance(ranks, self.num_classes, self.alpha).to(log_others.dtype)
        return -(weights * log_others).sum(dim=-1)
