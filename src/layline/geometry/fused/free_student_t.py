r"""Student-t logits of free proxies, of features and of the proxies themselves, in one step.

.. math:: \mathrm{sim}(x, p_k) = -\log(1 + D_k), \qquad D_k = \lVert x - p_k \rVert^2

With :math:`h_k` the derivative by the logit, over :math:`1 + D_k`,

.. math:: \partial L / \partial x = 2 \Big( \sum_k h_k p_k - x \sum_k h_k \Big)

and the same for a proxy, with the sums over all that is compared with it. Every proxy is compared
with every proxy, so that H and its transpose count, in a single product. The distance of a proxy to
itself is no variable, and is left out.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import differentiable_gradients
from layline.geometry.fused.roles import stack, together
from layline.geometry.pairwise import one_plus_squares, squared_distances
from layline.geometry.precision import in_full_precision


def logits(
    features: Float[Tensor, "n d"], proxies: Float[Tensor, "K d"], rows: Int[Tensor, " m"] | None
) -> Float[Tensor, "both K"]:
    """Give the logits of P, then those of Q for these rows; None is all of them."""
    result: Tensor = _Logits.apply(features, proxies, rows)  # type: ignore[no-untyped-call]
    return result


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, proxies: Tensor, rows: Tensor | None) -> Tensor:
        compared = stack(features, proxies, rows)
        one_plus = one_plus_squares(compared, proxies, y_ends_x=rows is None)
        ctx.save_for_backward(features, proxies, rows, compared, one_plus)
        return one_plus.log().neg_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, proxies, rows, compared, one_plus = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for

                def plain(features: Tensor, proxies: Tensor) -> Tensor:
                    compared = stack(features, proxies, rows)
                    return -squared_distances(compared, proxies).log1p()

                return (*differentiable_gradients(plain, (features, proxies), *gradients), None)
            n, h = len(features), gradients[0] / one_plus
            between = h[n:]
            if rows is None:
                between.copy_(together(between.fill_diagonal_(0)))
            else:
                between.scatter_(1, rows[:, None], 0)
            to_proxies = _towards(proxies, h.T, compared)
            if rows is not None:
                of_rows = _towards(compared[n:], between, proxies)
                to_proxies.index_put_((rows,), of_rows, accumulate=True)
            wanted = ctx.needs_input_grad[0]
            to_features = _towards(features, h[:n], proxies) if wanted else None
        return to_features, to_proxies, None


def _towards(x: Tensor, h: Tensor, y: Tensor) -> Tensor:
    pulled = torch.addmm(x, h, y, beta=0, alpha=2)
    return pulled.addcmul_(x, h.sum(dim=1)[:, None], value=-2)
