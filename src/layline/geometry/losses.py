r"""The two distributions of the method, and the losses that match them.

.. math::
    P_k(f)      &= \operatorname{softmax}_k\, \mathrm{sim}(f, p_k)         && \text{(1)} \\
    Q_k(k^*)    &= \operatorname{softmax}_k\, \mathrm{sim}(p_{k^*}, p_k)   && \text{(2)} \\
    L_\text{basic}(f, k^*)  &= D_\text{KL}[Q(k^*) \,\Vert\, P(f)]          && \text{(3)} \\
    L_\text{unimodal}(k^*)  &= D_\text{KL}[U(k^*) \,\Vert\, Q(k^*)]        && \text{(11)}

The paper prints a factor 1/K in (3), which would not be a divergence. We sum over the classes.

The squared earth mover's distance to the label is
:math:`\sum_{k=0}^{K-2} \bigl(F_k - \mathbb 1\{k \ge k^*\}\bigr)^2` with
:math:`F_k = \sum_{j \le k} P_j`.
"""

import torch
from torch import Tensor

from layline.geometry.layouts import Layout
from layline.geometry.similarities import Features, PerClass, PerSample, Ranks, Similarity


def log_p(
    layout: Layout, similarity: Similarity, features: Features, prior: Tensor | None = None
) -> PerClass:
    """Compare features with proxies: log P, equation (1), with a prior that is added to logits."""
    logits = similarity(getattr(layout, similarity.measure)(features))
    return torch.log_softmax(logits if prior is None else logits + prior.to(logits.dtype), dim=-1)


def log_q(layout: Layout, similarity: Similarity, ranks: Ranks) -> PerClass:
    """Compare proxies with proxies: the rows of log Q for these ranks, equation (2)."""
    measured = getattr(layout, f"proxy_{similarity.measure}")(ranks)
    return torch.log_softmax(similarity(measured), dim=-1)


def kl(log_target: PerClass, log_probs: PerClass) -> PerSample:
    """Sum target · (log target − log probs) over the classes. With U and Q it is equation (11)."""
    return (log_target.exp() * (log_target - log_probs)).sum(dim=-1)


def basic_loss(log_q: PerClass, log_p: PerClass) -> PerSample:
    """Pull P towards Q, equation (3).

    Q is a target that gets no gradient. With a gradient the proxies of the linear layout would
    collapse into one point, where both distributions are uniform and the loss is zero.
    """
    return kl(log_q.detach(), log_p)


def squared_emd(probs: PerClass, ranks: Ranks) -> PerSample:
    """Compute the squared earth mover's distance, the ranked probability score times K − 1."""
    cumulative = probs.cumsum(dim=-1)[:, :-1]
    k = torch.arange(cumulative.shape[-1], device=ranks.device)
    reached = (k >= ranks[:, None]).to(cumulative.dtype)
    return (cumulative - reached).square().sum(dim=-1)
