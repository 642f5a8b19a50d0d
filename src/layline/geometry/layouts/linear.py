r"""Linear layout: class proxies along one direction, in label order.

.. math:: p_k = k \cdot v_0 = t_k\,u, \qquad u = v_0 / \lVert v_0 \rVert, \quad
          t_k = k\,\lVert v_0 \rVert \qquad \text{(7)}

With :math:`a = f^\mathsf{T} u`, :math:`e = f - a u` and :math:`c_k = a - t_k`, Pythagoras gives

.. math:: \lVert f - p_k \rVert^2 = c_k^2 + \lVert e \rVert^2, \qquad
          \lVert p_j - p_k \rVert^2 = (t_j - t_k)^2

so K classes cost O(n·d + n·K), no proxies are built, and nothing cancels.

**The training step, worked out** for the Student-t similarity and equal steps s. Its softmax needs
no exponential, and neither does Q, which depends on the gap between two ranks only:

.. math::
    w_k = \frac{1}{1 + c_k^2 + \lVert e \rVert^2}, \quad P_k = \frac{w_k}{\sum w}, \qquad
    q_k = \frac{1}{1 + ((k^* - k)s)^2}, \quad Q_k = \frac{q_k}{\sum q}

.. math:: D_\text{KL}[Q \Vert P] = \sum_k Q_k \log\frac{q_k}{w_k} + \log\frac{\sum w}{\sum q}

The derivative by the squared distance to proxy k is :math:`h_k = (Q_k - P_k)\,w_k`. Everything else
follows from three sums over the classes, so that no (n, K) array waits for the backward pass:

.. math::
    \partial L / \partial f    &= 2 e \textstyle\sum h + 2 u \sum h c \\
    \partial L / \partial v_0  &= 2 e\,(\textstyle\sum h c - a \sum h) / \lVert v_0 \rVert
                                  - 2 u \sum h c k

The last term is that of a learned step; a fixed one has none.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.constants import Constants
from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.spacing import make_spacing
from layline.geometry.pairwise import unit
from layline.geometry.precision import in_full_precision
from layline.geometry.similarities import Measure, Similarity, StudentT
from layline.utils.validation import check_above

BLOCK = 1 << 18
"""A processor takes so many numbers of an (n, K) array at a time: they stay in its cache."""


class Linear(Layout):
    """Proxies on a straight line from the origin, for similarities of the Euclidean distance.

    Args:
        num_classes: K.
        dim: Dimension d of features and proxies.
        norm: A fixed ‖v_0‖, the mean step between neighbours. Learned if it is left out; the
            direction is learned in either case.
        stiffness: If given, the steps are learned, and uneven ones cost so much. Equal if not.
    """

    measures = frozenset({"squared_distances"})  # all proxies share one direction

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
            why = "it is the distance between neighbouring proxies; leave it out to learn it"
            check_above("norm", norm, 0, why)
        self.norm = norm
        self.spacing = make_spacing(num_classes, stiffness)
        self.constant = norm is not None and not self.spacing.learned
        self._constants = Constants()

    def proxies(self) -> Float[Tensor, "K d"]:
        """Place t_k·u for every class, equation (7)."""
        direction, span = self._line()
        return self.spacing.positions(span)[:, None] * direction

    def squared_distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n K"]:
        """Compute (a − t_k)² + ‖e‖²."""
        direction, span = self._line()
        along = features @ direction
        across = (features - along[:, None] * direction).square().sum(dim=-1)
        return (along[:, None] - self.spacing.positions(span)).square() + across[:, None]

    def proxy_squared_distances(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        """Compute (t_j − t_k)²."""
        positions = self.spacing.positions(self._line()[1])
        return (positions[ranks][:, None] - positions).square()

    def nearest(self, measure: Measure, features: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Look only at how far along the line a feature is: O(n·d), whatever K."""
        self.check_measure(measure)
        direction, span = self._line()
        return self.spacing.nearest(features @ direction, span)

    def basic_losses(
        self, similarity: Similarity, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"] | None:
        """Compute the basic loss in one step, for Student-t and equal steps."""
        if type(similarity) is not StudentT or self.spacing.learned:
            return None
        constants = self._constants.get((), partial(_line_constants, self.num_classes), features)
        given = features, self.full_vectors(), ranks, constants, self.norm
        losses: Tensor = _LineStep.apply(*given)  # type: ignore[no-untyped-call]
        return losses

    def penalty(self) -> Float[Tensor, ""] | None:
        """Compute the penalty of an uneven spacing."""
        return self.spacing.penalty()

    def _line(self) -> tuple[Float[Tensor, " d"], Float[Tensor, ""]]:
        """Give the direction u and the span t_{K−1}."""
        v0 = self.full_vectors()
        step = torch.linalg.vector_norm(v0) if self.norm is None else v0.new_full((), self.norm)
        return unit(v0)[0], (self.num_classes - 1) * step

    def extra_repr(self) -> str:
        """Show a fixed norm when the module is printed."""
        return super().extra_repr() + ("" if self.norm is None else f", norm={self.norm}")


class _LineStep(torch.autograd.Function):
    """The losses, and their gradients from the three sums over the classes."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        vectors: Tensor,
        ranks: Tensor,
        constants: tuple[Tensor, ...],
        norm: float | None,
    ) -> Tensor:
        losses, *terms = _line_terms(features, vectors, ranks, constants, norm)
        ctx.save_for_backward(features, vectors, ranks, *terms)
        ctx.constants, ctx.norm = constants, norm
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, vectors, ranks, *terms = ctx.saved_tensors
        to_features = to_vectors = None
        with in_full_precision(features.device):
            if torch.is_grad_enabled():  # second derivatives are wanted: the terms get a graph
                _, *terms = _line_terms(features, vectors, ranks, ctx.constants, ctx.norm)
            direction, length, along, across, sum_w, sum_h, sums_hc = terms
            share = gradients[0] / sum_w
            by_h, (by_hc, by_hck) = share * sum_h, share * sums_hc
            if ctx.needs_input_grad[0]:
                to_features = torch.outer(by_hc, direction).addcmul_(across, by_h.T)
            if ctx.needs_input_grad[1]:
                turn = torch.addcmul(by_hc, along, by_h[0], value=-1) / length
                to_vectors = torch.mv(across.T, turn)[None]
                if ctx.norm is None:
                    to_vectors = torch.addcmul(to_vectors, direction, by_hck.sum(), value=-1)
        return to_features, to_vectors, None, None, None


def _line_terms(
    features: Tensor,
    vectors: Tensor,
    ranks: Tensor,
    constants: tuple[Tensor, ...],
    norm: float | None,
) -> tuple[Tensor, ...]:
    """Give the losses, u, ‖v_0‖, a, e, and what :func:`_over_classes` adds up."""
    ones, gaps, factors = constants
    num_classes = factors.shape[1]
    norm_of_v0 = torch.linalg.vector_norm(vectors)
    length = norm_of_v0.masked_fill(norm_of_v0 == 0, 1.0)
    direction = vectors[0] / length
    along = torch.mv(features, direction)
    across = torch.addr(features, along, direction, alpha=-1)
    if torch.is_grad_enabled():
        one_plus_e = 1 + across.square().sum(dim=1, keepdim=True)
    else:  # quicker, but a norm has no second derivative at zero
        distance = torch.linalg.vector_norm(across, dim=1, keepdim=True)
        one_plus_e = torch.addcmul(ones[:1], distance, distance)
    positions = gaps * (norm_of_v0 if norm is None else norm)
    fixed = positions.detach()  # Q is no variable
    q_of_classes = torch.addcmul(ones, fixed, fixed).reciprocal_().unfold(0, num_classes, 1)
    each = along[:, None], one_plus_e, ranks
    of_classes = positions[:num_classes], q_of_classes, factors
    size = max(1, BLOCK // num_classes) if features.is_cpu else len(features)
    if size >= len(features):
        losses, *sums = _over_classes(*each, *of_classes)
    else:
        rows = zip(*(torch.split(x, size) for x in each), strict=True)
        blocks = [_over_classes(a, e, r, *of_classes) for a, e, r in rows]
        losses, *sums = (torch.cat(x, dim=-1) for x in zip(*blocks, strict=True))
    return losses, direction, length, along, across, *sums


def _over_classes(
    along: Tensor,
    one_plus_e: Tensor,
    ranks: Tensor,
    positions: Tensor,
    q_of_classes: Tensor,
    factors: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the losses and Σw, (n,); 2Σh, (1, n); 2Σhc and 2Σhck, (2, n); both times Σw."""
    q = q_of_classes.index_select(0, ranks)
    c = along - positions
    one_plus = torch.addcmul(one_plus_e, c, c)
    w = one_plus.reciprocal()
    sum_w, sum_q = w.sum(dim=1), q.sum(dim=1)
    ratio = sum_w / sum_q
    # arrays are overwritten when done with: fewer of them stay in the cache
    losses = torch.addcdiv(ratio.log(), one_plus.mul_(q).log_().mul_(q).sum(dim=1), sum_q)
    h = torch.addcmul(w, q, ratio[:, None], value=-1).mul_(w)  # times −Σw, as the factors
    return losses, sum_w, factors[:1] @ h.T, factors @ h.mul_(c).T


def _line_constants(num_classes: int) -> tuple[Tensor, ...]:
    """Give ones, the gaps between ranks from K − 1 down to 1 − K, and two rows of factors, −2, −2k.

    The first K gaps are the ranks themselves, highest first: in that order a row of Q, which
    depends on gaps alone, is a piece of one long row, and that of rank k* begins at place k*.
    """
    gaps = torch.arange(num_classes - 1, -num_classes, -1, dtype=torch.float64, device="cpu")
    ones = torch.ones_like(gaps)
    return ones, gaps, -2 * torch.stack([ones, gaps])[:, :num_classes]
