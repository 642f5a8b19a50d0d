r"""Cosine logits of free proxies, of features and of the proxies themselves, in one step.

.. math:: \mathrm{sim}(x, p_k) = s\,C_k, \qquad
          C_k = \frac{x^\mathsf{T} p_k}{\lVert x \rVert\,\lVert p_k \rVert}

With :math:`h_k` the derivative by :math:`C_k`,

.. math:: \partial L / \partial x = \sum_k \frac{h_k}{\lVert x \rVert\,\lVert p_k \rVert}\, p_k
          - \frac{x}{\lVert x \rVert^2} \sum_k h_k C_k

and the same for a proxy, with the sums over all that is compared with it. Every proxy is compared
with every proxy, so that H and its transpose count, in a single product.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import differentiable_gradients
from layline.geometry.fused.roles import stack, together
from layline.geometry.pairwise import cosines, lengths
from layline.geometry.precision import in_full_precision


def logits(
    features: Float[Tensor, "n d"],
    proxies: Float[Tensor, "K d"],
    rows: Int[Tensor, " m"] | None,
    scale: float,
) -> Float[Tensor, "both K"]:
    """Give the logits of P, then those of Q for these rows; None is all of them."""
    result: Tensor = _Logits.apply(features, proxies, rows, scale)  # type: ignore[no-untyped-call]
    return result


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, proxies: Tensor, rows: Tensor | None, scale: float
    ) -> Tensor:
        compared = stack(features, proxies, rows)
        long, wide = lengths(compared), lengths(proxies).T
        result = (compared @ proxies.T).div_(long).div_(wide / scale)
        ctx.save_for_backward(features, proxies, rows, compared, long, wide, result)
        ctx.scale = scale
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, proxies, rows, compared, long, wide, logits = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for

                def plain(features: Tensor, proxies: Tensor) -> Tensor:
                    return cosines(stack(features, proxies, rows), proxies).mul(ctx.scale)

                found = differentiable_gradients(plain, (features, proxies), *gradients)
                return (*found, None, None)
            n = len(features)
            turned = gradients[0] * logits  # h·C
            weights = (gradients[0] / long).div_(wide / ctx.scale)
            if rows is None:
                for each in (turned[n:], weights[n:]):
                    each.copy_(together(each))
            to_proxies = _turn(proxies, weights.T, compared, turned.sum(dim=0), wide.T)
            if rows is not None:
                there = compared[n:], weights[n:], proxies, turned[n:].sum(dim=1), long[n:]
                to_proxies.index_put_((rows,), _turn(*there), accumulate=True)
            to_features = None
            if ctx.needs_input_grad[0]:
                here = features, weights[:n], proxies, turned[:n].sum(dim=1), long[:n]
                to_features = _turn(*here)
        return to_features, to_proxies, None, None


def _turn(x: Tensor, weights: Tensor, y: Tensor, turned: Tensor, length: Tensor) -> Tensor:
    """Give the gradient by x: towards the y by their weights, and not along x itself."""
    return (weights @ y).addcmul_(x, turned[:, None] / length / length, value=-1)
