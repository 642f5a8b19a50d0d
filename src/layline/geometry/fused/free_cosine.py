r"""Cosine logits of free proxies, of features and of the proxies themselves, in one step.

.. math:: \mathrm{sim}(x, p_k) = s\,C_k, \qquad
          C_k = \frac{x^\mathsf{T} p_k}{\lVert x \rVert\,\lVert p_k \rVert}

With :math:`h_k` the derivative by :math:`C_k`,

.. math:: \partial L / \partial x = \sum_k \frac{h_k}{\lVert x \rVert\,\lVert p_k \rVert}\, p_k
          - \frac{x}{\lVert x \rVert^2} \sum_k h_k C_k

A proxy is compared with every proxy and every proxy with it, so that H and its transpose count,
in a single product.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import differentiable_gradients
from layline.geometry.pairwise import cosines, lengths
from layline.geometry.precision import in_full_precision


def logits(
    features: Float[Tensor, "n d"],
    proxies: Float[Tensor, "K d"],
    rows: Int[Tensor, " m"] | None,
    scale: float,
) -> tuple[Float[Tensor, "n K"], Float[Tensor, "m K"]]:
    """Give the logits of P, and those of Q for these rows; None is all of them."""
    result: tuple[Tensor, Tensor] = _Logits.apply(features, proxies, rows, scale)  # type: ignore[no-untyped-call]
    return result


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, proxies: Tensor, rows: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        long, wide = lengths(features), lengths(proxies)
        logits_p = (features @ proxies.T).div_(long).div_(wide.T).mul_(scale)
        compared, tall = (proxies, wide) if rows is None else (proxies[rows], wide[rows])
        logits_q = (compared @ proxies.T).div_(tall).div_(wide.T).mul_(scale)
        ctx.save_for_backward(features, proxies, long, wide, logits_p, logits_q, rows)
        ctx.scale = scale
        return logits_p, logits_q

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, proxies, long, wide, logits_p, logits_q, rows = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for

                def plain(features: Tensor, proxies: Tensor) -> tuple[Tensor, ...]:
                    compared = (features, proxies if rows is None else proxies[rows])
                    return tuple(ctx.scale * cosines(x, proxies) for x in compared)

                found = differentiable_gradients(plain, (features, proxies), *gradients)
                return (*found, None, None)
            turned = gradients[0] * logits_p  # h·C
            by_p = (gradients[0] / wide.T).div_(long).mul_(ctx.scale)
            to_features = None
            if ctx.needs_input_grad[0]:
                to_features = _turn(by_p, proxies, turned.sum(dim=1), features, long)
            to_proxies = _turn(by_p.T, features, turned.sum(dim=0), proxies, wide)
            turned = gradients[1] * logits_q
            if rows is None:
                by_q = (gradients[1] / wide.T).div_(wide).mul_(ctx.scale)
                both = turned.sum(dim=0).add_(turned.sum(dim=1))
                to_proxies += _turn(by_q + by_q.T, proxies, both, proxies, wide)
            else:
                compared, tall = proxies[rows], wide[rows]
                by_q = (gradients[1] / wide.T).div_(tall).mul_(ctx.scale)
                to_proxies += _turn(by_q.T, compared, turned.sum(dim=0), proxies, wide)
                of_rows = _turn(by_q, proxies, turned.sum(dim=1), compared, tall)
                to_proxies.index_add_(0, rows, of_rows)
        return to_features, to_proxies, None, None


def _turn(weights: Tensor, y: Tensor, turned: Tensor, x: Tensor, length: Tensor) -> Tensor:
    """Give the gradient by x: towards the y by their weights, and not along x itself."""
    return (weights @ y).addcmul_(x, turned[:, None] / length / length, value=-1)
