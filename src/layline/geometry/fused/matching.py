r"""Both losses of a soft layout from the logits of P and Q, in one step.

.. math:: L_i = D_\text{KL}[Q(k^*_i) \Vert P(f_i)] + \alpha\, D_\text{KL}[U(k^*_i) \Vert Q(k^*_i)]

Q is a target in the first term and learns in the second. The derivatives by the logits are short:

.. math:: \partial L_i / \partial \mathrm{sim}(f_i, p_k) = P_k - Q_k, \qquad
          \partial L_i / \partial \mathrm{sim}(p_{k^*_i}, p_k) = \alpha\,(Q_k - U_k)

There is one row of Q and U for each class, or, where the classes are more, for each sample.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layline.geometry import divergence
from layline.geometry.fused.plain import differentiable_gradients


@dataclass(frozen=True)
class Terms:
    """What the two losses need beside the logits.

    Attributes:
        log_u: The rows of log U that belong to the rows of Q.
        u: The same rows of U.
        u_log_u: Their Σ U log U.
        of_sample: Which row belongs to each sample; None if there is one for each in turn.
        alpha: Weight of the unimodal loss.
        over_classes: Whether the unimodal loss is the mean of all rows, not each sample's own.
    """

    log_u: Tensor
    u: Tensor
    u_log_u: Tensor
    of_sample: Tensor | None
    alpha: float
    over_classes: bool

    def chosen(self, rows: Tensor) -> Tensor:
        """Give each sample its row."""
        return rows if self.of_sample is None else rows.index_select(0, self.of_sample)

    def losses(self, logits: Tensor) -> Tensor:
        """Compute both terms plainly, by ``divergence.py``."""
        log_p, log_q = self.parted(logits.log_softmax(dim=-1))
        unimodal = divergence.unimodal_loss(self.log_u, log_q)
        basic = divergence.basic_loss(self.chosen(log_q), log_p)
        return basic + self.alpha * (
            unimodal.mean() if self.over_classes else self.chosen(unimodal)
        )

    def parted(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Give what belongs to P, and to Q."""
        m = len(self.log_u)
        of_p, of_q = torch.split(rows, [len(rows) - m, m])
        return of_p, of_q


def losses(logits: Float[Tensor, "both K"], terms: Terms) -> Float[Tensor, " n"]:
    """Compute both terms for each sample, with their gradients at hand.

    Args:
        logits: Those of P, and below them those of Q.
        terms: What else the losses need.
    """
    result: Tensor = _Matching.apply(logits, terms)  # type: ignore[no-untyped-call]
    return result


class _Matching(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, terms: Terms) -> Tensor:
        logs = logits.log_softmax(dim=-1)
        probabilities = logs.exp()
        (log_p, log_q), (p, q) = terms.parted(logs), terms.parted(probabilities)
        q_of_sample = terms.chosen(q)
        unimodal = terms.u_log_u - (terms.u * log_q).sum(dim=-1)
        of_row = (q * log_q).sum(dim=-1)  # Σ Q log Q, and what else depends on the row alone
        if terms.over_classes:
            of_row += terms.alpha * unimodal.mean()
        else:
            of_row.add_(unimodal, alpha=terms.alpha)
        result = terms.chosen(of_row) - log_p.mul_(q_of_sample).sum(dim=-1)
        p.sub_(q_of_sample)  # the derivatives take the place of what they are made from
        q.sub_(terms.u).mul_(terms.alpha)
        ctx.save_for_backward(logits, probabilities, terms.of_sample)
        ctx.terms = terms
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        logits, derivatives, of_sample = ctx.saved_tensors
        terms, each = ctx.terms, gradients[0]
        if torch.is_grad_enabled():  # second derivatives will be asked for
            return (*differentiable_gradients(terms.losses, (logits,), each), None)
        m = len(terms.log_u)
        rows = each
        if terms.over_classes:
            rows = (each.sum() / m).expand(m)
        elif of_sample is not None:
            rows = each.new_zeros(m).index_put_((of_sample,), each, accumulate=True)
        return derivatives * torch.cat([each, rows])[:, None], None
