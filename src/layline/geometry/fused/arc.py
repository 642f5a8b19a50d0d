r"""Cosines on an arc with equal steps, in one step: ``hard-semicircular``.

With the orthonormal rows of :math:`B`, :math:`z = B f / \lVert f \rVert` and
:math:`c_k = s\,(\cos\theta_k, \sin\theta_k)`, the logits are :math:`z^\mathsf{T} c_k`. Q is P at
:math:`z = c_{k^*}/s`, and never changes. The two meet in numbers of the class alone:

.. math:: L = \log\sum_k e^{z^\mathsf{T} c_k} - z^\mathsf{T} \bar c_{k^*} + \sum_k Q_k \log Q_k,
          \qquad \bar c_{k^*} = \sum_k Q_k c_k

Q depends on :math:`m = k - k^*` only, so all these sums are differences of three cumulative sums,
of :math:`e^{s \cos m\beta}` and of its products with :math:`\cos m\beta` and :math:`\sin m\beta`.
The derivative by z is :math:`g = \sum_k P_k c_k - \bar c_{k^*}`, two numbers per sample, and

.. math:: \partial L / \partial f = (B^\mathsf{T} g - (z^\mathsf{T} g)\,f / \lVert f \rVert)
                                    / \lVert f \rVert

For the two vectors V = A B, with A lower triangular, let :math:`G = \sum g f^\mathsf{T} / \lVert f
\rVert` be the derivative by B, :math:`M = G B^\mathsf{T}` and :math:`R = G - M B` the part of G
outside of the plane. Within it only a turn from u_0 towards u_1 counts:

.. math:: \partial L / \partial V = A^{-\mathsf{T}} \left( R +
          \begin{pmatrix} (M_{01} - M_{10})\,u_1 \\ 0 \end{pmatrix} \right)
          = A^{-\mathsf{T}} \left( G -
          \begin{pmatrix} M_{00} & M_{10} \\ M_{10} & M_{11} \end{pmatrix} B \right)
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused.plain import Plain, differentiable_gradients, plain_losses
from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.semicircular import orthonormal_pair
from layline.geometry.pairwise import lengths
from layline.geometry.precision import in_full_precision
from layline.geometry.similarities import Cosine, Similarity

LARGE = 40
"""Below this scale the exponential of a logit is no trouble; above, the largest is taken off."""


def constants(num_classes: int, similarity: Similarity) -> tuple[Tensor, ...]:
    """Give c, two rows, and three: the mean of c under Q, and Σ Q log Q, for every class."""
    scale = cast(Cosine, similarity).scale
    angles = torch.arange(num_classes, dtype=torch.float64, device="cpu") * (
        math.pi / (num_classes - 1)
    )
    cos, sin = angles.cos(), angles.sin()
    weights = (scale * (cos - 1)).exp()  # of m ≥ 0; those of −m are the same
    sums, cosines, sines = (x.cumsum(dim=0) for x in (weights, weights * cos, weights * sin))
    total = sums + sums.flip(0) - 1  # m = 0 is in both
    mean_cos = (cosines + cosines.flip(0) - 1) / total
    mean_sin = (sines.flip(0) - sines) / total
    mean = scale * torch.stack([cos * mean_cos - sin * mean_sin, sin * mean_cos + cos * mean_sin])
    negative_entropy = scale * (mean_cos - 1) - total.log()
    return scale * torch.stack([cos, sin]), torch.cat([mean, negative_entropy[None]])


def losses(
    layout: Layout,
    similarity: Similarity,
    features: Float[Tensor, "n d"],
    ranks: Int[Tensor, " n"],
    constants: tuple[Tensor, ...],
) -> Float[Tensor, " n"]:
    """Compute the basic loss of each sample."""
    plain = partial(plain_losses, layout, similarity)
    vectors, scale = layout.full_vectors(), cast(Cosine, similarity).scale
    result: Tensor = _ArcLoss.apply(features, vectors, ranks, constants, scale, plain)  # type: ignore[no-untyped-call]
    return result


class _ArcLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        vectors: Tensor,
        ranks: Tensor,
        constants: tuple[Tensor, ...],
        scale: float,
        plain: Plain,
    ) -> Tensor:
        basis = orthonormal_pair(vectors)
        length = lengths(features)[:, 0]
        z = (basis @ features.T).div_(length)  # (2, n) is the quicker order, here and below
        c, of_classes = constants
        of_label = of_classes.index_select(1, ranks)
        mean, negative_entropy = of_label[:2], of_label[2]
        logits = z.T @ c
        top = logits.amax(dim=1) if scale >= LARGE else None
        p = (logits if top is None else logits.sub_(top[:, None])).exp_()  # not yet divided
        total = p.sum(dim=1)
        g = (c @ p.T).div_(total).sub_(mean)
        result = total.log_().add_(negative_entropy).sub_((z * mean).sum(dim=0))
        if top is not None:
            result.add_(top)
        ctx.save_for_backward(features, vectors, ranks, basis, length, z, g)
        ctx.plain = plain
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, vectors, ranks, *saved = ctx.saved_tensors
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives will be asked for
                plain = partial(ctx.plain, ranks)
                found = differentiable_gradients(plain, (features, vectors), gradients[0])
            else:
                wanted = ctx.needs_input_grad
                found = _gradients(wanted, gradients[0], features, vectors, *saved)
        return (*found, None, None, None, None)


def _gradients(
    wanted: Sequence[bool],
    gradient: Tensor,
    features: Tensor,
    vectors: Tensor,
    basis: Tensor,
    length: Tensor,
    z: Tensor,
    g: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Carry the derivative by z on to the features and to the two vectors."""
    scaled = g * (gradient / length)
    to_features = to_vectors = None
    if wanted[0]:
        towards = (scaled * z).sum(dim=0).div_(length)
        to_features = (scaled.T @ basis).addcmul_(features, towards[:, None], value=-1)
    if wanted[1]:
        to_basis = scaled @ features
        within = (to_basis @ basis.T).tril_()  # M, and below its diagonal to be seen above it
        outside = to_basis.addmm_(within + within.tril(-1).T, basis, alpha=-1)
        triangle = vectors @ basis.T
        diagonal = triangle.diagonal()
        diagonal.add_(diagonal == 0)  # as it is for two parallel vectors
        to_vectors = torch.linalg.solve_triangular(triangle.T, outside, upper=True)
    return to_features, to_vectors
