r"""Semicircular layout: class proxies on half a circle, in label order.

.. math:: p_k = \cos\theta_k\,u_0 + \sin\theta_k\,u_1, \qquad \theta_k = \frac{k\pi}{K-1}
          \qquad \text{(8)}

:math:`(u_0, u_1)` is the orthonormal basis of the plane that two free vectors span: the plane is
learned, the spacing is not (unless it is elastic). It is the point that the paper prints, without
dividing by sin γ. Both the angle and the chord between two proxies grow strictly with the
difference of their ranks; past half a turn the last class would come back towards the first.

With :math:`x = f^\mathsf{T} u_0` and :math:`y = f^\mathsf{T} u_1`

.. math:: \cos(f, p_k) = \frac{x\cos\theta_k + y\sin\theta_k}{\lVert f \rVert}, \qquad
          \cos(p_j, p_k) = \cos(\theta_j - \theta_k)

With :math:`(x, y) = \rho\,\lVert f \rVert (\cos\varphi, \sin\varphi)` the first is :math:`\rho
\cos(\varphi - \theta_k)`: the angle :math:`\varphi` says which grade it is, and the share
:math:`\rho` of the feature that lies in the plane how sure that is.

**The training step, worked out** for the cosine similarity and equal steps. With u_0 and u_1 as the
rows of :math:`B`, :math:`z = B f / \lVert f \rVert` and :math:`c_k = s\,(\cos\theta_k,
\sin\theta_k)`, the logits are :math:`z^\mathsf{T} c_k`. Q is P at :math:`z = c_{k^*}/s`, and never
changes. The two meet in numbers of the class alone:

.. math:: D_\text{KL}[Q \Vert P] = \log\sum_k e^{z^\mathsf{T} c_k} - z^\mathsf{T} \bar c_{k^*}
          + \sum_k Q_k \log Q_k, \qquad \bar c_{k^*} = \sum_k Q_k c_k

The derivative by z is :math:`g = \sum_k P_k c_k - \bar c_{k^*}`, two numbers per sample, and

.. math:: \partial L / \partial f = (B^\mathsf{T} g - (z^\mathsf{T} g)\,f / \lVert f \rVert)
                                    / \lVert f \rVert

For the two vectors V = A B, with A lower triangular, let :math:`G = \sum g f^\mathsf{T} / \lVert f
\rVert` be the derivative by B and :math:`M = G B^\mathsf{T}`. Within the plane only a turn from u_0
towards u_1 counts:

.. math:: \partial L / \partial V = A^{-\mathsf{T}} \left( G -
          \begin{pmatrix} M_{00} & M_{10} \\ M_{10} & M_{11} \end{pmatrix} B \right)
"""

import math
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.constants import Constants
from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.spacing import make_spacing
from layline.geometry.pairwise import lengths, unit
from layline.geometry.precision import in_full_precision
from layline.geometry.similarities import Cosine, Measure, Similarity
from layline.utils.devices import can_check_values
from layline.utils.errors import UserError


def orthonormal_pair(plane: Float[Tensor, "2 d"]) -> Float[Tensor, "2 d"]:
    """Turn two vectors into an orthonormal basis of their plane.

    Gram-Schmidt, not QR: the signs are fixed (the first stays along ``plane[0]``), so the basis
    moves continuously during training. Parallel vectors span no plane: the second is then
    taken from another vector, which is always the same.
    """
    u0, u1 = unit(plane)
    for _ in range(2):  # the second pass removes what rounding left of u0 in u1
        u1 = torch.addcmul(u1, torch.dot(u1, u0), u0, value=-1)
    length = torch.linalg.vector_norm(u1)
    is_parallel = length <= _rounding(plane)
    # a tensor of another type, such as a fake one, may have no values
    if not (type(length) is Tensor and can_check_values(length)) or is_parallel:
        other = torch.arange(1, len(u0) + 1, dtype=u0.dtype, device=u0.device).rsqrt()
        other = torch.addcmul(other, torch.dot(other, u0), u0, value=-1)
        u1 = torch.where(is_parallel, other, u1)
        length = torch.linalg.vector_norm(u1)
    return torch.stack([u0, u1 / length])


def _rounding(vectors: Tensor) -> float:
    """Give the length that rounding alone leaves of a unit vector."""
    return 8 * torch.finfo(vectors.dtype).eps


class Semicircular(Layout):
    """Proxies on half a unit circle, made for cosines; distances work as well.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies, at least 2.
        stiffness: If given, the steps are learned, and uneven ones cost so much. Equal if not.
    """

    def __init__(self, num_classes: int, dim: int, *, stiffness: float | None = None) -> None:
        super().__init__(num_classes, dim, num_vectors=2)
        if dim < 2:
            raise UserError(
                f"dim must be at least 2 for a semicircular layout, got {dim}: "
                "half a circle needs a plane"
            )
        self.spacing = make_spacing(num_classes, stiffness)
        self.constant = not self.spacing.learned
        self._constants = Constants()

    def proxies(self) -> Float[Tensor, "K d"]:
        """Place cos θ_k·u_0 + sin θ_k·u_1 for every class, equation (8)."""
        angles = self.angles()
        return torch.stack([angles.cos(), angles.sin()], dim=-1) @ self._basis()

    def angles(self) -> Float[Tensor, " K"]:
        """Give θ_k for every class, from 0 to π."""
        return self.spacing.positions(self._span())

    def polar(
        self, features: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Give the angle φ in the plane, in (−π, π], and the share ρ of the length that is in it.

        cos(f, p_k) = ρ cos(φ − θ_k). A feature of zeros has the angle 0 and the share 0.
        """
        in_plane = features @ self._basis().T / lengths(features)
        x, y = in_plane.unbind(dim=-1)
        return torch.atan2(y, x), torch.linalg.vector_norm(in_plane, dim=-1).clamp(max=1)

    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Add the squared distance in the plane and that to the plane."""
        basis, angles = self._basis(), self.angles()
        in_plane = features @ basis.T
        across = (features - in_plane @ basis).square().sum(dim=-1, keepdim=True)
        x, y = in_plane[:, :1], in_plane[:, 1:]
        return (x - angles.cos()).square() + (y - angles.sin()).square() + across

    def cosines(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Compute (x cos θ_k + y sin θ_k) / ‖f‖."""
        angles = self.angles()
        in_plane = features @ self._basis().T / lengths(features)
        return in_plane @ torch.stack([angles.cos(), angles.sin()])

    def proxy_squared_distances(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Square the chord, 2 sin((θ_j − θ_k) / 2)."""
        return 4 * (self._angle_differences(ranks) / 2).sin().square()

    def proxy_cosines(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Compute cos(θ_j − θ_k)."""
        return self._angle_differences(ranks).cos()

    def nearest(self, measure: Measure, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Look only at the angle in the plane: O(n·d), whatever K.

        Distance and cosine agree, since every proxy has length one. Below the diameter one of the
        two ends is nearest; straight below, and at the centre, they tie and the lower rank wins.
        """
        x, y = (features @ self._basis().T).unbind(dim=-1)
        end = (x < 0) * math.pi
        return self.spacing.nearest(torch.atan2(y, x).where(y > 0, end), self._span())

    def basic_losses(
        self, similarity: Similarity, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"] | None:
        """Compute the basic loss in one step, for the cosine and equal steps."""
        if type(similarity) is not Cosine or self.spacing.learned:
            return None
        make = partial(_arc_constants, self.num_classes, similarity.scale)
        constants = self._constants.get(similarity, make, features)
        given = features, self.full_vectors(), ranks, constants, similarity.scale
        losses: Tensor = _ArcStep.apply(*given)  # type: ignore[no-untyped-call]
        return losses

    def penalty(self) -> Float[Tensor, ""] | None:
        """Compute the penalty of an uneven spacing."""
        return self.spacing.penalty()

    def _basis(self) -> Float[Tensor, "2 d"]:
        return orthonormal_pair(self.full_vectors())

    def _span(self) -> Float[Tensor, ""]:
        return self.full_vectors().new_full((), math.pi)

    def _angle_differences(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        angles = self.angles()
        return angles[ranks][:, None] - angles


class _ArcStep(torch.autograd.Function):
    """The losses, and their gradients from the two numbers of each sample."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        vectors: Tensor,
        ranks: Tensor,
        constants: tuple[Tensor, ...],
        scale: float,
    ) -> Tensor:
        losses, *terms = _arc_terms(features, vectors, ranks, constants, scale)
        ctx.save_for_backward(features, vectors, ranks, *terms)
        ctx.constants, ctx.scale = constants, scale
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, vectors, ranks, *terms = ctx.saved_tensors
        to_features = to_vectors = None
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives are wanted: the terms get a graph
                _, *terms = _arc_terms(features, vectors, ranks, ctx.constants, ctx.scale)
            basis, length, z, g = terms
            scaled = g * (gradients[0] / length)
            if ctx.needs_input_grad[0]:
                to_features = scaled.T @ basis
                along, length = (scaled * z).sum(dim=0)[:, None], length[:, None]
                # f / ‖f‖ times along; their quotient, since the square of a small length vanishes
                if torch.is_grad_enabled():
                    to_features = to_features - along * (features / length)
                else:  # in one pass; a quotient by zero is infinite, and adds nothing
                    to_features.addcdiv_(features, length / along, value=-1)
            if ctx.needs_input_grad[1]:
                to_vectors = _through_basis(scaled @ features, basis, vectors)
        return to_features, to_vectors, None, None, None


def _arc_terms(
    features: Tensor, vectors: Tensor, ranks: Tensor, constants: tuple[Tensor, ...], scale: float
) -> tuple[Tensor, ...]:
    """Give the losses, B, ‖f‖, z and g; (2, n) is the quicker order for the last two."""
    basis = orthonormal_pair(vectors)
    length = lengths(features)[:, 0]
    z = (basis @ features.T).div_(length)
    c, of_classes = constants
    of_label = of_classes.index_select(1, ranks)
    mean_c, negative_entropy = of_label[:2], of_label[2]
    logits = z.T @ c
    # below a scale of 40 no exponential is too large, and the largest logit need not come off
    top = logits.amax(dim=1) if scale >= 40 else None
    p = (logits if top is None else logits.sub_(top[:, None])).exp_()
    total = p.sum(dim=1)
    log_total = total.log() if top is None else total.log() + top
    losses = (log_total + negative_entropy).sub_((z * mean_c).sum(dim=0))
    return losses, basis, length, z, (c @ p.T).div_(total).sub_(mean_c)


def _through_basis(to_basis: Tensor, basis: Tensor, vectors: Tensor) -> Tensor:
    """Carry a derivative by B on to the two vectors V = A B."""
    within = (to_basis @ basis.T).tril()  # M, and below its diagonal to be seen above it
    outside = torch.addmm(to_basis, within + within.tril(-1).T, basis, alpha=-1)
    triangle = vectors @ basis.T
    triangle.diagonal().clamp_(min=_rounding(vectors))  # it vanishes for parallel vectors
    to_vectors: Tensor = torch.linalg.solve_triangular(triangle.T, outside, upper=True)
    return to_vectors


def _arc_constants(num_classes: int, scale: float) -> tuple[Tensor, ...]:
    """Give c, (2, K), and for every class the mean of c under its Q, and Σ Q log Q, (3, K).

    Q depends on m = k − k* only, so all these sums are differences of three cumulative sums, of
    exp(s cos mβ) and of its products with cos mβ and sin mβ.
    """
    angles = torch.arange(num_classes, dtype=torch.float64, device="cpu")
    angles = angles * (math.pi / (num_classes - 1))
    cos, sin = angles.cos(), angles.sin()
    weights = (scale * (cos - 1)).exp()  # of m ≥ 0; those of −m are the same
    sums, cosines, sines = (x.cumsum(dim=0) for x in (weights, weights * cos, weights * sin))
    total = sums + sums.flip(0) - 1  # m = 0 is in both
    mean_cos = (cosines + cosines.flip(0) - 1) / total
    mean_sin = (sines.flip(0) - sines) / total
    mean = scale * torch.stack([cos * mean_cos - sin * mean_sin, sin * mean_cos + cos * mean_sin])
    negative_entropy = scale * (mean_cos - 1) - total.log()
    return scale * torch.stack([cos, sin]), torch.cat([mean, negative_entropy[None]])
