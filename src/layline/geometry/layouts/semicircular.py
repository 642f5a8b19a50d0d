r"""Semicircular layout: class proxies on half a circle, in label order. Equation (8).

.. math:: p_k = \cos\theta_k\,u_0 + \sin\theta_k\,u_1, \qquad \theta_k = \frac{k\pi}{K-1}

:math:`(u_0, u_1)` is the orthonormal basis of the plane that two free vectors span: the plane is
learned, the spacing is not (unless it is elastic). It is the point that (8) prints, without
dividing by sin γ. Both the angle and the chord between two proxies grow strictly with the
difference of their ranks; past half a turn the last class would come back towards the first.

With :math:`x = f^\mathsf{T} u_0` and :math:`y = f^\mathsf{T} u_1`

.. math:: \cos(f, p_k) = \frac{x\cos\theta_k + y\sin\theta_k}{\lVert f \rVert}, \qquad
          \cos(p_j, p_k) = \cos(\theta_j - \theta_k)
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.spacing import Spacing
from layline.geometry.pairwise import lengths, unit
from layline.geometry.similarities import Measure


def orthonormal_pair(plane: Float[Tensor, "2 d"]) -> Float[Tensor, "2 d"]:
    """Turn two independent vectors into an orthonormal basis of their plane.

    Gram-Schmidt, not QR: the signs are fixed (the first stays along ``plane[0]``), so the basis
    moves continuously during training.
    """
    u0, u1 = unit(plane)
    for _ in range(2):  # the second pass removes what rounding left of u0 in u1
        u1 = torch.addcmul(u1, torch.dot(u1, u0), u0, value=-1)
    return torch.stack([u0, unit(u1)])


class Semicircular(Layout):
    """Proxies on half a unit circle, made for cosines; distances work as well.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies, at least 2.
        spacing: Where on the arc the proxies stand.
    """

    measures = frozenset({"squared_distances", "cosines"})

    def __init__(self, num_classes: int, dim: int, spacing: Spacing) -> None:
        if dim < 2:
            raise ValueError(
                f"dim must be at least 2 for a semicircular layout, got {dim}: "
                "half a circle needs a plane"
            )
        super().__init__(num_classes, dim, num_vectors=2)
        self.spacing = spacing
        self.constant = not spacing.learned
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw v_0 and v_1, each as a 1 × d matrix; space evenly."""
        for row in range(2):
            nn.init.xavier_normal_(self.vectors[row : row + 1])
        self.spacing.reset_parameters()

    def proxies(self) -> Float[Tensor, "K d"]:
        """Place cos θ_k·u_0 + sin θ_k·u_1 for every class."""
        angles = self._angles()
        return torch.stack([angles.cos(), angles.sin()], dim=-1) @ self._basis()

    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Add the squared distance in the plane and that to the plane."""
        basis, angles = self._basis(), self._angles()
        in_plane = features @ basis.T
        across = (features - in_plane @ basis).square().sum(dim=-1, keepdim=True)
        x, y = in_plane[:, :1], in_plane[:, 1:]
        return (x - angles.cos()).square() + (y - angles.sin()).square() + across

    def cosines(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Compute (x cos θ_k + y sin θ_k) / ‖f‖."""
        angles = self._angles()
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

    def tension(self) -> Float[Tensor, ""] | None:
        """Pay for an uneven spacing."""
        return self.spacing.tension()

    def _basis(self) -> Float[Tensor, "2 d"]:
        return orthonormal_pair(self.full_vectors())

    def _span(self) -> Float[Tensor, ""]:
        return self.full_vectors().new_full((), math.pi)

    def _angles(self) -> Float[Tensor, " K"]:
        return self.spacing.positions(self._span())

    def _angle_differences(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        angles = self._angles()
        return angles[ranks][:, None] - angles
