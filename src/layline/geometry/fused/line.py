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


def constants(num_classes: int, similarity: Similarity) -> Float[Tensor, "2 gaps"]:
    """Give ones, and the gaps between ranks, from K − 1 down to 1 − K.

    The first K gaps are the ranks, highest first. In that order a row of Q, which depends on gaps
    alone, is a piece of one long row, and that of rank k* begins at place k*.
    """
    gaps = torch.arange(num_classes - 1, -num_classes, -1, dtype=torch.float64)
    return torch.stack([torch.ones_like(gaps), gaps])


def losses(
    layout: Layout,
    similarity: Similarity,
    features: Float[Tensor, "n d"],
    ranks: Int[Tensor, " n"],
    constants: Float[Tensor, "2 gaps"],
) -> Float[Tensor, " n"]:
    """Compute the basic loss of each sample."""
    norm = cast(Linear, layout).norm
    plain = partial(plain_losses, layout, similarity, ranks)
    vectors = layout._full_vectors()
    result: Tensor = _LineLoss.apply(features, vectors, ranks, constants, norm, plain)  # type: ignore[no-untyped-call]
    return result


class _LineLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        vectors: Tensor,
        ranks: Tensor,
        constants: Tensor,
        norm: float | None,
        plain: Plain,
    ) -> Tensor:
        norm_of_v0 = torch.linalg.vector_norm(vectors)
        length = norm_of_v0.masked_fill(norm_of_v0 == 0, 1.0)
        direction = vectors[0] / length
        along = torch.mv(features, direction)
        across = torch.addr(features, along, direction, alpha=-1)  # e
        one_plus_e = torch.linalg.vector_norm(across, dim=1).square_().add_(1)

        num_classes = constants.shape[1] // 2 + 1
        gaps = constants[1] * (norm_of_v0 if norm is None else norm)
        q = gaps.square().add_(1).reciprocal_().unfold(0, num_classes, 1)
        of_classes = q, gaps[:num_classes], constants[:, :num_classes]
        size = max(1, BLOCK // num_classes) if features.is_cpu else len(features)
        if size < len(features):
            rows = (torch.split(each, size) for each in (along, one_plus_e, ranks))
            blocks = (_over_classes(a, e, r, *of_classes) for a, e, r in zip(*rows, strict=True))
            result, *sums = (torch.cat(x, dim=-1) for x in zip(*blocks, strict=True))
        else:
            result, *sums = _over_classes(along, one_plus_e, ranks, *of_classes)
        ctx.save_for_backward(features, vectors, direction, length, along, across, *sums)
        ctx.learned, ctx.plain = norm is None, plain
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, vectors, *saved = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for
                found = differentiable_gradients(ctx.plain, (features, vectors), gradients[0])
            else:
                found = _gradients(ctx.needs_input_grad, ctx.learned, gradients[0], *saved)
        return (*found, None, None, None, None)


def _over_classes(
    along: Tensor,
    one_plus_e: Tensor,
    ranks: Tensor,
    q_of_all: Tensor,
    positions: Tensor,
    ones_and_ranks: Tensor,
) -> tuple[Tensor, ...]:
    """Compute the losses, Σq/2, and times that Σh, and Σhc with Σhck.

    Arrays are overwritten when done with.
    """
    c = along[:, None] - positions
    one_plus = torch.addcmul(one_plus_e[:, None], c, c)
    w, q = one_plus.reciprocal(), q_of_all.index_select(0, ranks)
    sum_q, sum_w = q.sum(dim=1), w.sum(dim=1)
    ratio = sum_q / sum_w
    log_ratios = one_plus.mul_(q).log_()
    result = log_ratios.mul_(q).sum(dim=1).div_(sum_q).sub_(ratio.log())
    h = q.addcmul_(w, ratio[:, None], value=-1).mul_(w)
    return result, sum_q.div_(2), h.sum(dim=1), ones_and_ranks @ h.mul_(c).T


def _gradients(
    wanted: Sequence[bool],
    learned: bool,
    gradient: Tensor,
    direction: Tensor,
    length: Tensor,
    along: Tensor,
    across: Tensor,
    half: Tensor,
    sum_h: Tensor,
    sums_hc: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Put the three sums together, for the features and for v_0."""
    twice = gradient / half
    by_h, (by_hc, by_hck) = twice * sum_h, twice * sums_hc
    to_features = to_vectors = None
    if wanted[0]:
        to_features = torch.outer(by_hc, direction).addcmul_(across, by_h[:, None])
    if wanted[1]:
        turn = by_hc.addcmul(along, by_h, value=-1).div_(length)
        to_vectors = torch.mv(across.T, turn)[None]
        if learned:
            to_vectors.addcmul_(direction, by_hck.sum(), value=-1)
    return to_features, to_vectors
