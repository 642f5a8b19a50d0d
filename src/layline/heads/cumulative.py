r"""From logits of the thresholds k = 0 … K − 2 to log probabilities of the K ranks.

.. math::
    P(y = k) &= P(y > k - 1) - P(y > k)
        && \text{cumulative: } P(y > k) = \sigma(z_k) \\
    P(y = k) &= \bigl(1 - \sigma(z_k)\bigr) \prod_{j < k} \sigma(z_j)
        && \text{conditional: } P(y > k \mid y \ge k) = \sigma(z_k)

The differences need no subtraction of probabilities, which would lose the small ones:

.. math:: \sigma(a) - \sigma(b) = \sigma(a)\,\sigma(-b)\,\bigl(1 - e^{-(a - b)}\bigr), \quad a > b

**Made monotone by sorting.** P(y > k) must fall with k. Where a network's logits do not, they are
put in descending order (the rearrangement of Chernozhukov et al., 2010). Logits in order stay as
they are. Unlike a running minimum, sorting keeps the number of thresholds passed, so the median is
the count of σ(z_k) > ½ for any logits; it also keeps the expected rank, Σ σ(z_k).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def log_differences(
    logits: Float[Tensor, "n K-1"], gaps: Float[Tensor, "*n K-2"]
) -> Float[Tensor, "n K"]:
    """Give log P(y = k) from logits of P(y > k) in descending order.

    Args:
        logits: Descending in each row.
        gaps: Each logit minus the next one. The caller may know them better than a subtraction
            does: cut points keep their distances however far the score is from them.
    """
    # Two equal logits leave nothing to the class between them. The floor is below what the
    # precision resolves, and keeps the logarithm and its gradient finite.
    gaps = gaps.clamp(min=torch.finfo(logits.dtype).eps ** 2)
    passed, not_passed = F.logsigmoid(logits), F.logsigmoid(-logits)
    between = passed[:, :-1] + not_passed[:, 1:] + torch.log(-torch.expm1(-gaps))
    log_probs = torch.cat([not_passed[:, :1], between, passed[:, -1:]], dim=-1)
    return torch.log_softmax(log_probs, dim=-1)  # removes what the floor and rounding left


def log_probs_from_cumulative(logits: Float[Tensor, "n K-1"]) -> Float[Tensor, "n K"]:
    """Give log P(y = k) from logits of P(y > k) in any order: they are sorted first."""
    logits = logits.sort(dim=-1, descending=True).values
    return log_differences(logits, logits[:, :-1] - logits[:, 1:])


def log_probs_from_conditional(logits: Float[Tensor, "n K-1"]) -> Float[Tensor, "n K"]:
    """Give log P(y = k) from logits of P(y > k | y ≥ k). Any logits make a distribution."""
    reached = F.pad(F.logsigmoid(logits).cumsum(dim=-1), (1, 0))  # log P(y ≥ k)
    return reached + F.pad(F.logsigmoid(-logits), (0, 1))


def binary_losses(logits: Float[Tensor, "n K-1"], ranks: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Sum the K − 1 binary cross entropies of "is y > k?" for each sample."""
    thresholds = torch.arange(logits.shape[-1], device=logits.device)
    passed = (ranks[:, None] > thresholds).to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, passed, reduction="none").sum(dim=-1)
