r"""Binary questions about the thresholds k = 0 … K − 2: is the rank above k?

A logit z_k means one of two things:

.. math::
    \text{cumulative} \quad & \sigma(z_k) = P(y > k), &
    P(y = k) &= P(y > k - 1) - P(y > k) \\
    \text{conditional} \quad & \sigma(z_k) = P(y > k \mid y \ge k), &
    P(y = k) &= \bigl(1 - \sigma(z_k)\bigr) \prod_{j < k} \sigma(z_j)

The methods differ in their logits and their loss. BCE is the binary cross entropy.

.. math::
    \text{ranking} \quad & z = W f + b, &
        L &= \textstyle\sum_k \operatorname{BCE}\bigl(\sigma(z_k), 1\{y > k\}\bigr) \\
    \text{CORAL} \quad & z_k = w^\top f + b_k, & L &\text{ as ranking} \\
    \text{proportional odds} \quad & z_k = w^\top f - c_k, \; c_0 < \dots < c_{K-2}, &
        L &= -\log P(y) \\
    \text{CORN} \quad & z = W f + b, \text{ conditional}, & L &= -\log P(y) \\
    \text{stick-breaking} \quad & z = -(W f + b), \text{ conditional}, & L &= -\log P(y)

The differences need no subtraction of probabilities, which would lose the small ones:

.. math:: \sigma(a) - \sigma(b) = \sigma(a)\,\sigma(-b)\,\bigl(1 - e^{-(a - b)}\bigr), \quad a > b

P(y > k) must fall with k. Logits out of order are sorted in descending order (the rearrangement of
Chernozhukov et al., 2010), which keeps the count of σ(z_k) > ½ and the expected rank, Σ σ(z_k).
CORAL sorts its biases for the probabilities, not for the loss. The cut points of proportional odds
are :math:`c_k = c_0 + \sum_{j=1}^{k} \operatorname{softplus}(\delta_j)`. docs/methods.md says where
we differ from the papers.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layline.geometry.similarities import Features, PerClass, PerSample, Ranks
from layline.heads.base import LinearHead


def log_differences(logits: Float[Tensor, "n K-1"], gaps: Float[Tensor, "*n K-2"]) -> PerClass:
    """Compute log P(y = k) from logits of P(y > k) in descending order, and their gaps."""
    # The class between two equal logits has no probability. The floor keeps the logarithm and its
    # gradient finite.
    gaps = gaps.clamp(min=torch.finfo(logits.dtype).eps ** 2)
    passed, not_passed = F.logsigmoid(logits), F.logsigmoid(-logits)
    between = passed[:, :-1] + not_passed[:, 1:] + torch.log(-torch.expm1(-gaps))
    log_probs = torch.cat([not_passed[:, :1], between, passed[:, -1:]], dim=-1)
    return torch.log_softmax(log_probs, dim=-1)  # normalizes after floor and rounding


def log_probs_from_cumulative(logits: Float[Tensor, "n K-1"]) -> PerClass:
    """Compute log P(y = k) from logits of P(y > k) in any order, after sorting them."""
    logits = logits.sort(dim=-1, descending=True).values
    return log_differences(logits, logits[:, :-1] - logits[:, 1:])


def log_probs_from_conditional(logits: Float[Tensor, "n K-1"]) -> PerClass:
    """Compute log P(y = k) from logits of P(y > k | y ≥ k). Any logits make a distribution."""
    reached = F.pad(F.logsigmoid(logits).cumsum(dim=-1), (1, 0))  # log P(y ≥ k)
    return reached + F.pad(F.logsigmoid(-logits), (0, 1))


def binary_losses(logits: Float[Tensor, "n K-1"], ranks: Ranks) -> PerSample:
    """Sum the K − 1 binary cross entropies of "is y > k?" for each sample."""
    thresholds = torch.arange(logits.shape[-1], device=logits.device)
    passed = (ranks[:, None] > thresholds).to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, passed, reduction="none").sum(dim=-1)


class _ThresholdHead(LinearHead):
    """A head with weights of its own for each threshold."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=num_classes - 1)


class Ranking(_ThresholdHead):
    """A binary classifier for each threshold."""

    def _log_probs(self, features: Features) -> PerClass:
        return log_probs_from_cumulative(self._scores(features))

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        return binary_losses(self._scores(features), ranks)


class Coral(LinearHead):
    """Binary classifiers that share one weight vector."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1, bias=False)
        thresholds = num_classes - 1
        self.biases = nn.Parameter(torch.arange(thresholds, 0, -1) / thresholds)

    def _log_probs(self, features: Features) -> PerClass:
        biases = self.biases.to(features.dtype).sort(descending=True).values
        return log_differences(self._scores(features) + biases, biases[:-1] - biases[1:])

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        return binary_losses(self._scores(features) + self.biases.to(features.dtype), ranks)


class Corn(_ThresholdHead):
    """A chain of conditional binary classifiers."""

    def _log_probs(self, features: Features) -> PerClass:
        return log_probs_from_conditional(self._scores(features))


class ProportionalOdds(LinearHead):
    """One score, learned ordered cut points, logistic noise."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim, outputs=1, bias=False)
        cuts = torch.logit(torch.arange(1, num_classes, dtype=torch.float64) / num_classes)
        dtype = self.linear.weight.dtype
        self.first_cut = nn.Parameter(cuts[:1].to(dtype))
        self.steps = nn.Parameter(cuts.diff().expm1().log().to(dtype))  # softplus undone

    def cut_points(self) -> Float[Tensor, " K-1"]:
        """Return the cut points, ascending. The median rank is how many are below the score."""
        return self._cuts_and_gaps(torch.promote_types(self.steps.dtype, torch.float32))[0]

    def _cuts_and_gaps(
        self, dtype: torch.dtype
    ) -> tuple[Float[Tensor, " K-1"], Float[Tensor, " K-2"]]:
        gaps = F.softplus(self.steps.to(dtype))
        return torch.cat([self.first_cut.to(dtype), gaps]).cumsum(dim=0), gaps

    def _log_probs(self, features: Features) -> PerClass:
        cuts, gaps = self._cuts_and_gaps(features.dtype)
        return log_differences(self._scores(features) - cuts, gaps)


class StickBreaking(_ThresholdHead):
    """A chain of probabilities to stop at each rank."""

    def __init__(self, num_classes: int, dim: int = 512) -> None:
        super().__init__(num_classes, dim)
        self.linear.bias = nn.Parameter(-torch.arange(num_classes - 1, 0, -1).log())

    def _log_probs(self, features: Features) -> PerClass:
        return log_probs_from_conditional(-self._scores(features))
