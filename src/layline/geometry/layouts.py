r"""Layouts: where the class proxies lie, in label order.

.. math::
    p_k &= k\,v_0 = t_k\,u, \qquad u = v_0 / \lVert v_0 \rVert, \quad t_k = k\,\lVert v_0 \rVert
        && \text{(7) linear} \\
    p_k &= \cos\theta_k\,u_0 + \sin\theta_k\,u_1, \qquad \theta_k = \frac{k\pi}{K-1}
        && \text{(8) semicircular} \\
    p_k &= v_k && \text{(9) free}

:math:`(u_0, u_1)` is the orthonormal basis of the plane that two free vectors span. Past half a
turn the last class would come back towards the first.

The hard layouts, (7) and (8), need no array of proxies. For :math:`a = f^\mathsf{T} u`,
:math:`x = f^\mathsf{T} u_0` and :math:`y = f^\mathsf{T} u_1`

.. math::
    \lVert f - p_k \rVert^2 &= (a - t_k)^2 + \lVert f - a u \rVert^2, &
        \lVert p_j - p_k \rVert^2 &= (t_j - t_k)^2 \\
    \cos(f, p_k) &= \frac{x\cos\theta_k + y\sin\theta_k}{\lVert f \rVert}, &
        \cos(p_j, p_k) &= \cos(\theta_j - \theta_k)

Both hold for any increasing positions :math:`t_k` or :math:`\theta_k`, also for learned ones.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layline.geometry.similarities import Features, Measure, PerClass, Proxies, Ranks, Scalar
from layline.utils.devices import has_double
from layline.utils.validation import check_above, check_at_least, check_integer


def squared_distances(x: Features, y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Compute the squared distance of each pair, without an (n, m, d) array.

    The products are computed in float64: in float32 the distance between equal vectors would be
    about 1e-2. A distance that is only a rounding error is set to zero.
    """
    if not has_double(x.device):
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    dtype, x, y = x.dtype, x.double(), y.double()
    x_squares = x.square().sum(dim=1, keepdim=True)
    squares = x_squares + y.square().sum(dim=1) - 2 * (x @ y.T)
    rounding = 2 * x.shape[1] * torch.finfo(torch.float64).eps * x_squares
    return squares.masked_fill(squares <= rounding, 0.0).to(dtype)


def lengths(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n 1"]:
    """Compute the length of each vector, or 1 for the zero vector, so that it can divide."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.masked_fill(length == 0, 1.0)


def cosines(x: Features, y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Compute the cosine of the angle of each pair; it is zero where a vector is zero."""
    return x @ y.T / lengths(x) / lengths(y).T


def orthonormal_pair(plane: Float[Tensor, "2 d"]) -> Float[Tensor, "2 d"]:
    """Turn two independent vectors into an orthonormal basis of their plane.

    Gram-Schmidt, not QR: the signs are fixed (the first stays along ``plane[0]``), so the basis
    moves continuously during training.
    """
    u0, u1 = plane / lengths(plane)
    u1 = torch.addcmul(u1, torch.dot(u1, u0), u0, value=-1)
    with torch.no_grad():  # a second pass finds the rounding error, which has no derivative
        error = torch.dot(u1, u0) * u0
    u1 = u1 - error
    return torch.stack([u0, u1 / lengths(u1)])


class Spacing(nn.Module):
    r"""Increasing positions from 0 to a span: equal steps, or learned ones.

    .. math::
        t_k &= \frac{k}{K-1}\, T                                   && \text{equal} \\
        t_k &= T \sum_{j < k} \operatorname{softmax}_j(w)          && \text{learned}

    Learned steps start equal. Unequal steps cost the stiffness times
    :math:`D_\text{KL}[\text{uniform} \Vert \operatorname{softmax}(w)]`. Without that penalty
    neighboring proxies merge: two classes at one place cost no basic loss.
    """

    def __init__(self, num_classes: int, stiffness: float | None = None) -> None:
        super().__init__()
        self.num_classes, self.stiffness = num_classes, stiffness
        self.weights: nn.Parameter | None = None
        if stiffness is not None:
            check_at_least("stiffness", stiffness, 0, "it is the cost of unequal steps")
            self.weights = nn.Parameter(torch.zeros(num_classes - 1))

    def reset_parameters(self) -> None:
        """Return to equal steps."""
        if self.weights is not None:
            nn.init.zeros_(self.weights)

    def positions(self, span: Scalar) -> Float[Tensor, " K"]:
        """Place K positions between 0 and the span."""
        if self.weights is None:
            ranks = torch.arange(self.num_classes, dtype=span.dtype, device=span.device)
            return ranks * (span / (self.num_classes - 1))
        shares = torch.softmax(self.weights.to(span.dtype), dim=0).cumsum(dim=0)
        return span * nn.functional.pad(shares, (1, 0))

    def nearest(self, where: Float[Tensor, " n"], span: Scalar) -> Ranks:
        """Find the rank of the nearest position; half-way goes to the lower rank."""
        if self.weights is None:
            last = self.num_classes - 1
            return torch.ceil(where / span * last - 0.5).clamp(0, last).long()
        positions = self.positions(span)
        return torch.searchsorted((positions[1:] + positions[:-1]) / 2, where)

    def penalty(self) -> Scalar | float:
        """Compute the cost of unequal steps."""
        if self.weights is None or self.stiffness is None:
            return 0.0
        log_shares = torch.log_softmax(_at_least_single(self.weights), dim=0)
        return -self.stiffness * (log_shares.mean() + math.log(self.num_classes - 1))


class Layout(nn.Module, ABC):
    """A few learned vectors, and the K proxies of length d that they generate.

    A subclass defines ``proxies``. A layout with closed forms overrides the measures as well.
    """

    measures: ClassVar[frozenset[Measure]] = frozenset({"squared_distances", "cosines"})
    constant: bool = False  # whether the similarities between the proxies never change in training

    def __init__(self, num_classes: int, dim: int, num_vectors: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2, "one class needs no classifier")
        check_integer("dim", dim, 1, "it is the length of a feature")
        self.num_classes, self.dim = num_classes, dim
        self.vectors = nn.Parameter(torch.empty(num_vectors, dim))
        self.spacing: Spacing | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw each vector as a 1 × d matrix, Xavier normal, so that its length is near √2."""
        for row in range(len(self.vectors)):
            nn.init.xavier_normal_(self.vectors[row : row + 1])

    @abstractmethod
    def proxies(self) -> Proxies:
        """Generate the proxies, in label order."""

    def squared_distances(self, features: Features) -> PerClass:
        """Compute the squared distance from each feature to each proxy."""
        return squared_distances(features, self.proxies())

    def cosines(self, features: Features) -> PerClass:
        """Compute the cosine between each feature and each proxy."""
        return cosines(features, self.proxies())

    def proxy_squared_distances(self, ranks: Ranks) -> PerClass:
        """Compute the squared distance from the proxies of these ranks to each proxy."""
        proxies = self.proxies()
        return squared_distances(proxies.index_select(0, ranks), proxies)

    def proxy_cosines(self, ranks: Ranks) -> PerClass:
        """Compute the cosine between the proxies of these ranks and each proxy."""
        proxies = self.proxies()
        return cosines(proxies.index_select(0, ranks), proxies)

    def nearest(self, measure: Measure, features: Features) -> Ranks:
        """Find the most similar proxy of each feature."""
        if measure == "cosines":
            return self.cosines(features).argmax(dim=-1)
        return self.squared_distances(features).argmin(dim=-1)

    def penalty(self) -> Scalar | float:
        """Compute what the layout itself adds to the loss."""
        return 0.0 if self.spacing is None else self.spacing.penalty()

    def full_vectors(self) -> Float[Tensor, "N d"]:
        """Return the vectors in single precision or better, also when the module is in half."""
        return _at_least_single(self.vectors)


class Free(Layout):
    """Every class has its own proxy, equation (9). Only a unimodal loss keeps them in order."""

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__(num_classes, dim, num_vectors=num_classes)

    def reset_parameters(self) -> None:
        """Draw all proxies as one K × d matrix."""
        nn.init.xavier_normal_(self.vectors)

    def proxies(self) -> Proxies:
        """Return the vectors themselves."""
        return self.full_vectors()


class Linear(Layout):
    """Proxies on a straight line from the origin, equation (7), for Euclidean similarities.

    Args:
        norm: A fixed ‖v_0‖, the mean step between neighbors; learned if it is None.
        stiffness: If given, the steps are learned, and unequal ones are penalized.
    """

    measures = frozenset({"squared_distances"})  # all proxies share one direction
    spacing: Spacing

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        norm: float | None = None,
        stiffness: float | None = None,
    ) -> None:
        super().__init__(num_classes, dim, num_vectors=1)
        if norm is not None:
            check_above("norm", norm, 0, "it is the distance between neighboring proxies")
        self.norm = norm
        self.spacing = Spacing(num_classes, stiffness)
        self.constant = norm is not None and stiffness is None

    def proxies(self) -> Proxies:
        """Place t_k·u for every class."""
        direction, span = self._line()
        return self.spacing.positions(span)[:, None] * direction

    def squared_distances(self, features: Features) -> PerClass:
        """Compute (a − t_k)² + ‖f − a u‖²."""
        direction, span = self._line()
        along = torch.mv(features, direction)
        across = torch.addr(features, along, direction, alpha=-1)
        distance: Tensor = torch.linalg.vector_norm(across, dim=1, keepdim=True)
        return (along[:, None] - self.spacing.positions(span)).square() + distance.square()

    def proxy_squared_distances(self, ranks: Ranks) -> PerClass:
        """Compute (t_j − t_k)²."""
        positions = self.spacing.positions(self._line()[1])
        return (positions.index_select(0, ranks)[:, None] - positions).square()

    def nearest(self, measure: Measure, features: Features) -> Ranks:
        """Round the position along the line: O(n·d), whatever K."""
        direction, span = self._line()
        return self.spacing.nearest(torch.mv(features, direction), span)

    def _line(self) -> tuple[Float[Tensor, " d"], Scalar]:
        """Return the direction u and the span t_{K−1}."""
        v0 = self.full_vectors()[0]
        length = lengths(v0)[0]
        step = length if self.norm is None else v0.new_full((), self.norm)
        return v0 / length, (self.num_classes - 1) * step


class Semicircular(Layout):
    """Proxies on a unit semicircle, equation (8), made for cosines; distances also work.

    With a stiffness the steps are learned, and unequal ones are penalized.
    """

    spacing: Spacing

    def __init__(self, num_classes: int, dim: int, *, stiffness: float | None = None) -> None:
        super().__init__(num_classes, dim, num_vectors=2)
        check_integer("dim", dim, 2, "a semicircle needs a plane")
        self.spacing = Spacing(num_classes, stiffness)
        self.constant = stiffness is None

    def proxies(self) -> Proxies:
        """Place cos θ_k·u_0 + sin θ_k·u_1 for every class."""
        return self._circle().T @ self._basis()

    def angles(self) -> Float[Tensor, " K"]:
        """Return θ_k for every class, from 0 to π."""
        return self.spacing.positions(self.full_vectors().new_full((), math.pi))

    def polar(self, features: Features) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Return the angle φ in the plane, and the share ρ of the length in the plane.

        cos(f, p_k) = ρ cos(φ − θ_k). A feature of zeros has the angle 0 and the share 0.
        """
        in_plane = features @ self._basis().T / lengths(features)
        x, y = in_plane.unbind(dim=-1)
        return torch.atan2(y, x), torch.linalg.vector_norm(in_plane, dim=-1).clamp(max=1)

    def squared_distances(self, features: Features) -> PerClass:
        """Add the squared distance in the plane and that to the plane."""
        basis, (cos, sin) = self._basis(), self._circle().unbind()
        in_plane = features @ basis.T
        across = (features - in_plane @ basis).square().sum(dim=-1, keepdim=True)
        return (in_plane[:, :1] - cos).square() + (in_plane[:, 1:] - sin).square() + across

    def cosines(self, features: Features) -> PerClass:
        """Compute (x cos θ_k + y sin θ_k) / ‖f‖."""
        return features @ self._basis().T / lengths(features) @ self._circle()

    def proxy_squared_distances(self, ranks: Ranks) -> PerClass:
        """Square the chord, 2 sin((θ_j − θ_k) / 2)."""
        return 4 * (self._angle_differences(ranks) / 2).sin().square()

    def proxy_cosines(self, ranks: Ranks) -> PerClass:
        """Compute cos(θ_j − θ_k)."""
        return self._angle_differences(ranks).cos()

    def nearest(self, measure: Measure, features: Features) -> Ranks:
        """Round the angle in the plane: O(n·d), whatever K.

        Distance and cosine agree, since every proxy has length one. Below the diameter one of the
        two ends is nearest; straight below, and at the center, they tie and the lower rank wins.
        """
        x, y = (features @ self._basis().T).unbind(dim=-1)
        end = (x < 0) * math.pi
        return self.spacing.nearest(torch.atan2(y, x).where(y > 0, end), x.new_full((), math.pi))

    def _basis(self) -> Float[Tensor, "2 d"]:
        return orthonormal_pair(self.full_vectors())

    def _circle(self) -> Float[Tensor, "2 K"]:
        """Return the proxies within the plane."""
        angles = self.angles()
        return torch.stack([angles.cos(), angles.sin()])

    def _angle_differences(self, ranks: Ranks) -> PerClass:
        angles = self.angles()
        return angles.index_select(0, ranks)[:, None] - angles


def _at_least_single(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


LAYOUTS: dict[str, Callable[..., Layout]] = {
    "linear": Linear,
    "semicircular": Semicircular,
    "free": Free,
}
