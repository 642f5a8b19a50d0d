r"""Student-t on a line with equal steps, in one step: ``hard-linear``.

With :math:`s` the step, :math:`u` the direction, :math:`a = f^\mathsf{T} u`, :math:`e = f - a u`
and :math:`c_k = a - k s`, the softmax of (5) needs no exponential, and neither does Q:

.. math::
    w_k = \frac{1}{1 + c_k^2 + \lVert e \rVert^2}, \quad P_k = \frac{w_k}{\sum w}, \qquad
    q_k = \frac{1}{1 + ((k^* - k)s)^2}, \quad Q_k = \frac{q_k}{\sum q}

.. math:: L = \sum_k Q_k \log\frac{q_k}{w_k} + \log\sum_k w_k - \log\sum_k q_k

The derivative by the squared distance to proxy k is :math:`h_k = (Q_k - P_k)\,w_k`. Everything
else follows from three sums over the classes, :math:`\sum h`, :math:`\sum h c` and
:math:`\sum h c k`, so that no (n, K) array outlives the forward pass:

.. math::
    \partial L / \partial f    &= 2 e \textstyle\sum h + 2 u \sum h c \\
    \partial L / \partial v_0  &= 2 e\,(\textstyle\sum h c - a \sum h) / \lVert v_0 \rVert
                                  - 2 u \sum h c k

The last term is that of a learned step; a fixed one has none.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import Plain, differentiable_gradients, plain_losses
from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.linear import Linear
from layline.geometry.precision import in_full_precision
from layline.geometry.similarities import Similarity

BLOCK = 1 << 18
"""A processor takes so many numbers of an (n, K) array at a time: they stay in its cache."""


def constants(num_classes: int, similarity: Similarity) -> tuple[Tensor, ...]:
    """Give a row of ones, the gaps between ranks from K − 1 down to 1 − K, and two rows of factors.

    The first K gaps are the ranks, highest first. In that order a row of Q, which depends on gaps
    alone, is a piece of one long row, and that of rank k* begins at place k*. The factors, −2 and
    −2k, are those of the sums of h and of h k.
    """
    gaps = torch.arange(num_classes - 1, -num_classes, -1, dtype=torch.float64, device="cpu")
    ones = torch.ones_like(gaps)
    return ones, gaps, -2 * torch.stack([ones, gaps])[:, :num_classes]


def losses(
    layout: Layout,
    similarity: Similarity,
    features: Float[Tensor, "n d"],
    ranks: Int[Tensor, " n"],
    constants: tuple[Tensor, ...],
) -> Float[Tensor, " n"]:
    """Compute the basic loss of each sample."""
    norm = cast(Linear, layout).norm
    plain = partial(plain_losses, layout, similarity)
    vectors = layout.full_vectors()
    result: Tensor = _LineLoss.apply(features, vectors, ranks, constants, norm, plain)  # type: ignore[no-untyped-call]
    return result


class _LineLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        vectors: Tensor,
        ranks: Tensor,
        constants: tuple[Tensor, ...],
        norm: float | None,
        plain: Plain,
    ) -> Tensor:
        norm_of_v0 = torch.linalg.vector_norm(vectors)
        length = norm_of_v0.masked_fill(norm_of_v0 == 0, 1.0)
        direction = vectors[0] / length
        along = torch.mv(features, direction)
        across = torch.addr(features, along, direction, alpha=-1)  # e
        distance = torch.linalg.vector_norm(across, dim=1, keepdim=True)

        ones, gaps, factors = constants
        num_classes = factors.shape[1]
        one_plus_e = torch.addcmul(ones[:1], distance, distance)
        at = gaps * (norm_of_v0 if norm is None else norm)
        q = torch.addcmul(ones, at, at).reciprocal_().unfold(0, num_classes, 1)
        of_classes = q, at[:num_classes], factors
        size = max(1, BLOCK // num_classes) if features.is_cpu else len(features)
        if size < len(features):
            rows = (torch.split(each, size) for each in (along, one_plus_e, ranks))
            blocks = (_over_classes(a, e, r, *of_classes) for a, e, r in zip(*rows, strict=True))
            result, *sums = (torch.cat(x, dim=-1) for x in zip(*blocks, strict=True))
        else:
            result, *sums = _over_classes(along, one_plus_e, ranks, *of_classes)
        ctx.save_for_backward(features, vectors, ranks, direction, length, along, across, *sums)
        ctx.learned, ctx.plain = norm is None, plain
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, vectors, ranks, *saved = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for
                plain = partial(ctx.plain, ranks)
                found = differentiable_gradients(plain, (features, vectors), gradients[0])
            else:
                found = _gradients(ctx.needs_input_grad, ctx.learned, gradients[0], *saved)
        return (*found, None, None, None, None)


def _over_classes(
    along: Tensor,
    one_plus_e: Tensor,
    ranks: Tensor,
    q_of_all: Tensor,
    positions: Tensor,
    factors: Tensor,
) -> tuple[Tensor, ...]:
    """Compute the losses, Σw, and twice Σh, and twice Σhc and Σhck, times Σw.

    Arrays are overwritten when done with.
    """
    along = along[:, None]
    c = along - positions
    one_plus = torch.addcmul(one_plus_e, c, c, out=c)
    w, q = one_plus.reciprocal(), q_of_all.index_select(0, ranks)
    sum_w, sum_q = w.sum(dim=1), q.sum(dim=1)
    ratio = sum_w / sum_q
    log_ratios = one_plus.mul_(q).log_()
    result = ratio.log().addcdiv_(log_ratios.mul_(q).sum(dim=1), sum_q)
    h = torch.addcmul(w, q, ratio[:, None], value=-1, out=q).mul_(w)  # times −Σw, as the factors
    c = torch.sub(along, positions, out=c)  # again: cheaper than another array
    return result, sum_w, factors[:1] @ h.T, factors @ h.mul_(c).T


def _gradients(
    wanted: Sequence[bool],
    learned: bool,
    gradient: Tensor,
    direction: Tensor,
    length: Tensor,
    along: Tensor,
    across: Tensor,
    sum_w: Tensor,
    sum_h: Tensor,
    sums_hc: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Put the three sums together, for the features and for v_0."""
    share = gradient / sum_w
    by_h, (by_hc, by_hck) = share * sum_h, share * sums_hc
    to_features = to_vectors = None
    if wanted[0]:
        to_features = torch.outer(by_hc, direction).addcmul_(across, by_h.T)
    if wanted[1]:
        turn = by_hc.addcmul(along, by_h[0], value=-1).div_(length)
        to_vectors = torch.mv(across.T, turn)[None]
        if learned:
            to_vectors.addcmul_(direction, by_hck.sum(), value=-1)
    return to_features, to_vectors
