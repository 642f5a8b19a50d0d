r"""Student-t logits of free proxies, of features and of the proxies themselves, in one step.

.. math:: \mathrm{sim}(x, p_k) = -\log(1 + D_k), \qquad D_k = \lVert x - p_k \rVert^2

With :math:`h_k` the derivative by :math:`D_k`, which is that by the logit times
:math:`-1/(1 + D_k)`,

.. math:: \partial L / \partial x = 2 \Big( x \sum_k h_k - \sum_k h_k p_k \Big)

A proxy is compared with every proxy and every proxy with it, so that H and its transpose count,
in a single product. Its distance to itself is no variable, and is left out.
"""

from functools import reduce
from operator import add
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import differentiable_gradients
from layline.geometry.pairwise import squared_distances, squares_by_products
from layline.geometry.precision import in_full_precision


def logits(
    features: Float[Tensor, "n d"], proxies: Float[Tensor, "K d"], rows: Int[Tensor, " m"] | None
) -> tuple[Float[Tensor, "n K"], Float[Tensor, "m K"]]:
    """Give the logits of P, and those of Q for these rows; None is all of them."""
    result: tuple[Tensor, Tensor] = _Logits.apply(features, proxies, rows)  # type: ignore[no-untyped-call]
    return result


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, proxies: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        double = proxies.double()
        to_features = squares_by_products(features.double(), double)
        to_proxies = squares_by_products(double if rows is None else double[rows], double)
        ctx.save_for_backward(features, proxies, to_features, to_proxies, rows)
        return to_features.log1p().neg_(), to_proxies.log1p().neg_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, proxies, *squares, rows = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for

                def plain(features: Tensor, proxies: Tensor) -> tuple[Tensor, ...]:
                    compared = (features, proxies if rows is None else proxies[rows])
                    return tuple(-squared_distances(x, proxies).log1p() for x in compared)

                return (*differentiable_gradients(plain, (features, proxies), *gradients), None)
            by_p, by_q = (2 * g / (-1 - d) for g, d in zip(gradients, squares, strict=True))
            to_features = None
            if ctx.needs_input_grad[0]:
                to_features = _towards(features, (by_p, proxies))
            if rows is None:
                both = (by_q + by_q.T).fill_diagonal_(0)
                to_proxies = _towards(proxies, (by_p.T, features), (both, proxies))
            else:
                by_q.masked_fill_(squares[1] == 0, 0)
                compared = proxies[rows]
                to_proxies = _towards(proxies, (by_p.T, features), (by_q.T, compared))
                to_proxies.index_add_(0, rows, _towards(compared, (by_q, proxies)))
        return to_features, to_proxies, None


def _towards(x: Tensor, *pairs: tuple[Tensor, Tensor]) -> Tensor:
    """Give the gradient by x of its squared distances to each y, with twice h for each pair."""
    total = reduce(add, (twice.sum(dim=1, keepdim=True) for twice, _ in pairs))
    gradient = x * total
    for twice, y in pairs:
        gradient.addmm_(twice, y, alpha=-1)
    return gradient
