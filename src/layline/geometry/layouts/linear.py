r"""Linear layout: class proxies along one direction, in label order. Equation (7).

.. math:: p_k = k \cdot v_0 = t_k\,u, \qquad u = v_0 / \lVert v_0 \rVert, \quad
          t_k = k\,\lVert v_0 \rVert

With :math:`a = f^\mathsf{T} u` and :math:`r^2 = \lVert f - a u \rVert^2`, Pythagoras gives

.. math:: \lVert f - p_k \rVert^2 = (a - t_k)^2 + r^2, \qquad
          \lVert p_j - p_k \rVert^2 = (t_j - t_k)^2

so K classes cost O(n·d + n·K), no proxies are built, and nothing cancels.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layline.arguments import check_above
from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.spacing import Spacing
from layline.geometry.pairwise import unit
from layline.geometry.similarities import Measure

_NO_COSINES = "a linear layout has no cosines: all its proxies share one direction"


class Linear(Layout):
    """Proxies on a straight line from the origin, for similarities of the Euclidean distance.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
        spacing: Where on the line the proxies stand.
        norm: A fixed ‖v_0‖, the mean step between neighbours. Learned if it is left out; the
            direction is learned in either case.
    """

    measures = frozenset({"squared_distances"})

    def __init__(
        self, num_classes: int, dim: int, spacing: Spacing, norm: float | None = None
    ) -> None:
        super().__init__(num_classes, dim, num_vectors=1)
        if norm is not None:
            why = "it is the distance between neighbouring proxies; leave it out to learn it"
            check_above("norm", norm, 0, why)
        self.spacing = spacing
        self._norm = norm
        self.constant = norm is not None and not spacing.learned
        self.reset_parameters()

    @property
    def norm(self) -> float | None:
        """The fixed ‖v_0‖, None if it is learned."""
        return self._norm

    def reset_parameters(self) -> None:
        """Draw v_0 as a 1 × d matrix, so that its length starts near √2; space evenly."""
        nn.init.xavier_normal_(self.vectors)
        self.spacing.reset_parameters()

    def proxies(self) -> Float[Tensor, "K d"]:
        """Place t_k·u for every class."""
        direction, span = self._line()
        return self.spacing.positions(span)[:, None] * direction

    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Compute (a − t_k)² + r²."""
        direction, span = self._line()
        along = features @ direction
        across = (features - along[:, None] * direction).square().sum(dim=-1)
        return (along[:, None] - self.spacing.positions(span)).square() + across[:, None]

    def cosines(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Refuse: every proxy of a line through the origin has the same direction."""
        raise ValueError(_NO_COSINES)

    def proxy_squared_distances(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Compute (t_j − t_k)²."""
        positions = self.spacing.positions(self._line()[1])
        return (positions[ranks][:, None] - positions).square()

    def proxy_cosines(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Refuse, as :meth:`cosines` does."""
        raise ValueError(_NO_COSINES)

    def nearest(self, measure: Measure, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Look only at how far along the line a feature is: O(n·d), whatever K."""
        direction, span = self._line()
        return self.spacing.nearest(features @ direction, span)

    def tension(self) -> Float[Tensor, ""] | None:
        """Pay for an uneven spacing."""
        return self.spacing.tension()

    def _line(self) -> tuple[Float[Tensor, " d"], Float[Tensor, ""]]:
        """Give the direction u and the span t_{K−1}."""
        v0 = self.full_vectors()
        step = torch.linalg.vector_norm(v0) if self.norm is None else v0.new_full((), self.norm)
        return unit(v0)[0], (self.num_classes - 1) * step

    def extra_repr(self) -> str:
        """Show a fixed norm when the module is printed."""
        return super().extra_repr() + ("" if self.norm is None else f", norm={self.norm}")
