r"""Cosine logits of free proxies, of features and of the proxies themselves, in one step.

.. math:: \mathrm{sim}(x, p_k) = s\,C_k, \qquad
          C_k = \frac{x^\mathsf{T} p_k}{\lVert x \rVert\,\lVert p_k \rVert}

With :math:`h_k` the derivative by :math:`C_k`,

.. math:: \partial L / \partial x = \sum_k \frac{h_k}{\lVert x \rVert\,\lVert p_k \rVert}\, p_k
          - \frac{x}{\lVert x \rVert^2} \sum_k h_k C_k

and the same for a proxy, with the sums over all that is compared with it.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import differentiable_gradients
from layline.geometry.fused.stacking import add_up, stack
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
            turned = gradients[0] * logits  # h·C
            weights = (gradients[0] / long).div_(wide / ctx.scale)
            along_x = turned.sum(dim=1, keepdim=True).div_(long).div_(long)
            along_y = turned.sum(dim=0)[:, None].div_(wide.T).div_(wide.T)
            to_compared = (weights @ proxies).addcmul_(compared, along_x, value=-1)
            to_proxies = (weights.T @ compared).addcmul_(proxies, along_y, value=-1)
        return (*add_up(to_compared, to_proxies, rows), None, None)
