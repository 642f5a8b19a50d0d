r"""A softmax over the classes whose label or loss knows their order.

All have :math:`P(f) = \operatorname{softmax}(W f + b)`, as plain classification, and differ in
their loss. :math:`m = \sum_k k\,P_k` is the expected rank, :math:`v = \sum_k (k - m)^2 P_k` its
variance and :math:`F_k = \sum_{j \le k} P_j`.

.. math::
    \text{SORD} \quad & -\textstyle\sum_k t_k(y) \log P_k, \quad
        t(y) = \operatorname{softmax}_k\bigl(-\alpha\,|k - y|^p\bigr), \; p = 2 \text{ or } 1 \\
    \text{DLDL-v2} \quad & -\textstyle\sum_k t_k(y) \log P_k + |m - y|, \quad
        t(y) \text{ with } \alpha = 1 / 2\sigma^2, \; p = 2 \\
    \text{mean-variance} \quad & -\log P_y + \lambda_1\,\tfrac12 (m - y)^2 + \lambda_2\,v \\
    \text{EMD} \quad & \textstyle\sum_{k=0}^{K-2} \bigl(F_k - \mathbb 1\{k \ge y\}\bigr)^2 \\
    \text{CDW} \quad & -\textstyle\sum_k |k - y|^\alpha \log (1 - P_k)

**SORD** (Díaz and Marathe, CVPR 2019): the paper leaves the distance to its user; that the ranks
are one unit apart and p is 2 unless said otherwise is our reading.

**DLDL-v2** (Gao et al., IJCAI 2018): the paper prints the divergence KL(t ‖ P). The cross entropy
here is that plus the entropy of t, which is constant: the gradients are the same. Both terms have
weight one, as in the paper. That σ counts in ranks is our reading; the paper's ranks are years of
age. The two terms disagree near the ends of the scale, where t is cut off and its mean is not y.
With few classes and a wide σ the best P for a label is then a compromise: its mode can be a
neighbour of y, and for the last ranks m itself stops short of y. A narrower σ mends both, so where
there are fewer than 13 classes σ = 2 is lowered.

**Mean-variance** (Pan et al., CVPR 2018) and DLDL-v2 decide by m: decode with ``"mean"``.

**EMD** (Hou et al., 2016), the squared earth mover's distance: the sum is not divided. The ranked
probability score of :mod:`layline.metrics` is this over K − 1, the number of its terms.

**CDW**, class-distance weighting: two papers of 2022 propose it, Polat et al. as CDW-CE and
Castagnos et al. as OLL. The formula is theirs, the default of α is ours, and lower than what they
try (OLL 1 to 2, CDW-CE 5 and more). Nothing in the loss pulls towards the label's own class; it
only pushes out of the others. The more the far ones outweigh the near, the more easily a class in
the middle loses its probability early in training, and then nothing brings it back.
"""

import math
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.geometry.constants import ConstantTable
from layline.geometry.divergence import squared_emd
from layline.heads.linear import SoftmaxHead
from layline.utils.validation import check_above, check_at_least, check_known


def powers_of_distance(
    ranks: Int[Tensor, " n"], num_classes: int, power: float
) -> Float[Tensor, "n K"]:
    """Give |k − y|^p of every class k to every label y, in float64, which MPS leaves to the CPU."""
    ranks = ranks.cpu() if ranks.device.type == "mps" else ranks
    k = torch.arange(num_classes, dtype=torch.float64, device=ranks.device)
    return (k - ranks[:, None]).abs() ** power


def soft_labels(
    ranks: Int[Tensor, " n"], num_classes: int, alpha: float, power: int
) -> Float[Tensor, "n K"]:
    """Soften labels by the distance between ranks. With p = 2 they are Gaussian, σ² = 1 / 2α."""
    return torch.softmax(-alpha * powers_of_distance(ranks, num_classes, power), dim=-1)


def expected_rank(probs: Float[Tensor, "n K"]) -> Float[Tensor, " n"]:
    """Average the ranks under each distribution."""
    return probs @ torch.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)


def log_one_minus(log_probs: Float[Tensor, "n K"]) -> Float[Tensor, "n K"]:
    """Turn log p into log(1 − p), row by row.

    Only the largest p of a row can round to one. For it, 1 − p is the sum of the others, whose
    logarithm is exact however small they are.
    """
    top = log_probs.argmax(dim=-1, keepdim=True)
    others = log_probs.scatter(-1, top, -math.inf).logsumexp(dim=-1, keepdim=True)
    # zeroed before log1p, not after: the gradient there would be 0 · ∞
    probs = log_probs.exp().scatter(-1, top, 0.0)
    return torch.log1p(-probs).scatter(-1, top, others)


class _SoftLabelHead(SoftmaxHead):
    """A head with soft labels, which are made once."""

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__(num_classes, dim)
        self._labels = ConstantTable(num_classes)

    def _cross_entropies(
        self, scores: Float[Tensor, "n K"], ranks: Int[Tensor, " n"], alpha: float, power: int
    ) -> Float[Tensor, " n"]:
        make = partial(soft_labels, num_classes=self.num_classes, alpha=alpha, power=power)
        labels = self._labels.rows((alpha, power), make, ranks, scores)
        return F.cross_entropy(scores, labels, reduction="none")


class Sord(_SoftLabelHead):
    """Soft labels of Díaz and Marathe.

    Args:
        distance: The ``"squared"`` (p = 2) or the ``"absolute"`` (p = 1) difference of ranks.
        alpha: Sharpness α of the labels. Towards infinity they become one-hot.
    """

    shown_options = ("distance", "alpha")

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
        why = "at 0 every class would be as good a label as any other"
        check_above("alpha", alpha, 0, why)
        self.distance = distance
        self.alpha = alpha

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        power = 2 if self.distance == "squared" else 1
        return self._cross_entropies(self._scores(features), ranks, self.alpha, power)


class DldlV2(_SoftLabelHead):
    """Label distribution and expectation, learned together.

    Args:
        sigma: Standard deviation σ of the labels, in ranks. Without it the paper's 2 years, but
            at most a sixth of the scale.
    """

    shown_options = ("sigma",)

    def __init__(self, num_classes: int, dim: int = 512, *, sigma: float | None = None) -> None:
        super().__init__(num_classes, dim)
        self.sigma = min(2.0, (num_classes - 1) / 6) if sigma is None else sigma
        check_above("sigma", self.sigma, 0, "it is the deviation of the labels, in ranks")

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        scores = self._scores(features)
        mean = expected_rank(torch.softmax(scores, dim=-1))
        cross_entropies = self._cross_entropies(scores, ranks, 0.5 / self.sigma**2, power=2)
        return cross_entropies + (mean - ranks).abs()


class MeanVariance(SoftmaxHead):
    """Classification that also looks at the mean and the variance of what it predicts.

    Args:
        mean_weight: λ₁, weight of the mean's squared error.
        variance_weight: λ₂, weight of the variance.
    """

    shown_options = ("mean_weight", "variance_weight")

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


class Emd(SoftmaxHead):
    """Squared differences of cumulative probabilities."""

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        return squared_emd(torch.softmax(self._scores(features), dim=-1), ranks)


class Cdw(SoftmaxHead):
    """Push probability out of every wrong class, the harder the farther it is.

    Args:
        alpha: Power α of the distance. The higher, the more far errors count against near ones.
    """

    shown_options = ("alpha",)

    def __init__(self, num_classes: int, dim: int = 512, *, alpha: float = 0.5) -> None:
        super().__init__(num_classes, dim)
        why = "at 0 the label's own class would be pushed away as well"
        check_above("alpha", alpha, 0, why)
        self.alpha = alpha
        self._weights = ConstantTable(num_classes)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        log_others = log_one_minus(self._log_probs(features))
        make = partial(powers_of_distance, num_classes=self.num_classes, power=self.alpha)
        weights = self._weights.rows(self.alpha, make, ranks, log_others)
        return -(weights * log_others).sum(dim=-1)
