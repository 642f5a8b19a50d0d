r"""Student-t logits of free proxies, of features and of the proxies themselves, in one step.

.. math:: \mathrm{sim}(x, p_k) = -\log(1 + D_k), \qquad D_k = \lVert x - p_k \rVert^2

With :math:`h_k` the derivative by :math:`D_k`, which is that by the logit times
:math:`-1/(1 + D_k)`,

.. math:: \partial L / \partial x = 2 \Big( x \sum_k h_k - \sum_k h_k p_k \Big)

and the same for a proxy, with the sums over all that is compared with it. Where x is on a proxy its
distance has no slope, and is left out.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import differentiable_gradients
from layline.geometry.fused.stacking import add_up, stack
from layline.geometry.pairwise import squared_distances, squares_without_gradient
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
        squares = squares_without_gradient(compared, proxies)
        ctx.save_for_backward(features, proxies, rows, compared, squares)
        return squares.log1p().neg_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, proxies, rows, compared, squares = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for

                def plain(features: Tensor, proxies: Tensor) -> Tensor:
                    compared = stack(features, proxies, rows)
                    return -squared_distances(compared, proxies).log1p()

                return (*differentiable_gradients(plain, (features, proxies), *gradients), None)
            h = (gradients[0] * 2).div_(squares + 1).masked_fill_(squares == 0, 0)  # −2 times it
            of_x, of_y = h.sum(dim=1, keepdim=True), h.sum(dim=0)[:, None]
            to_compared = (h @ proxies).addcmul_(compared, of_x, value=-1)
            to_proxies = (h.T @ compared).addcmul_(proxies, of_y, value=-1)
        return (*add_up(to_compared, to_proxies, rows), None)
