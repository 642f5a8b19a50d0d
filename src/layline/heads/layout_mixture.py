r"""Three fixed layouts at once: proxies on a line, on a semicircle and at the corners of a simplex.

The features have one block of coordinates :math:`f_m` for each layout m, whose proxies
:math:`p_{mk}` never move:

.. math::
    \text{line} \quad & p_k = 2k / (K - 1) - 1 \\
    \text{semicircle} \quad & p_k = (\cos\theta_k, \sin\theta_k), \quad \theta_k = k\pi / (K - 1) \\
    \text{simplex} \quad & p_k = e_k, \text{ without an order}

.. math::
    P_k(f) = \sum_m w_m \operatorname{softmax}_k\bigl(-\lVert f_m - p_{mk} \rVert^2 / 2\tau_m\bigr)

The spreads τ and the weights w are learned. ``layline train`` and ``OrdinalClassifier`` fit the
features of this head by a Gaussian process, if there are few labels: see
:mod:`layline.training.gaussian_process`. Elsewhere it is trained like any other head.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layline.geometry.similarities import Features, PerClass, Proxies
from layline.heads.base import OrdinalHead, apply_linear
from layline.utils.validation import UserError, check_known


def _line(num_classes: int) -> Tensor:
    return torch.linspace(-1, 1, num_classes, dtype=torch.float64)[:, None]


def _semicircle(num_classes: int) -> Tensor:
    angles = torch.linspace(0, math.pi, num_classes, dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def _simplex(num_classes: int) -> Tensor:
    return torch.eye(num_classes, dtype=torch.float64)


LAYOUTS: Mapping[str, Callable[[int], Tensor]] = {
    "line": _line,
    "semicircle": _semicircle,
    "simplex": _simplex,
}


class LayoutMixture(OrdinalHead):
    """Proxies on a fixed line, a fixed semicircle and a simplex, averaged.

    If ``dim`` is the number of coordinates of all layouts, features are these coordinates;
    otherwise a linear layer computes them.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        layouts: Names of the layouts.
    """

    positions: Tensor

    def __init__(self, num_classes: int, dim: int, layouts: Sequence[str] = tuple(LAYOUTS)) -> None:
        super().__init__(num_classes, dim)
        self.layouts = _check_layouts(layouts)
        blocks = [LAYOUTS[name](num_classes) for name in self.layouts]
        self.widths = [block.shape[1] for block in blocks]
        positions = torch.cat(blocks, dim=1).to(torch.get_default_dtype())
        self.register_buffer("positions", positions, persistent=False)
        width = sum(self.widths)
        self.linear = None if dim == width else nn.Linear(dim, width)
        self.log_spreads = nn.Parameter(torch.zeros(len(blocks)))
        self.weight_logits = nn.Parameter(torch.zeros(len(blocks)))

    def log_probs_by_layout(self, features: Features) -> Float[Tensor, "m n K"]:
        """Compute the log probabilities of each layout alone."""
        coordinates = features if self.linear is None else apply_linear(self.linear, features)
        positions = self.positions.to(coordinates.dtype)
        each = []
        blocks = zip(
            torch.split(coordinates, self.widths, dim=1),
            torch.split(positions, self.widths, dim=1),
            self.log_spreads.to(coordinates.dtype),
            strict=True,
        )
        for own, proxies, log_spread in blocks:
            # the squared distance without the square of the feature, which is the same for all k
            near = own @ proxies.T - proxies.square().sum(dim=1) / 2
            each.append((near * (-log_spread).exp()).log_softmax(dim=1))
        return torch.stack(each)

    def _log_probs(self, features: Features) -> PerClass:
        each = self.log_probs_by_layout(features)
        weights = self.weight_logits.to(each.dtype).log_softmax(dim=0)
        return (weights[:, None, None] + each).logsumexp(dim=0)


class CoordinateMixture(LayoutMixture):
    """A layout mixture whose features are the coordinates of the layouts, with its proxies."""

    def proxies(self) -> Proxies:
        """Return the proxies of all layouts side by side, in label order."""
        return self.positions


def count_coordinates(num_classes: int, layouts: Sequence[str] = tuple(LAYOUTS)) -> int:
    """Count the coordinates of layouts: the dimension of features that need no linear layer."""
    return sum(LAYOUTS[name](num_classes).shape[1] for name in _check_layouts(layouts))


def make_layout_mixture(
    num_classes: int, dim: int = 512, layouts: Sequence[str] = tuple(LAYOUTS)
) -> LayoutMixture:
    """Make the head, with proxies if its features are the coordinates themselves."""
    is_direct = dim == count_coordinates(num_classes, layouts)
    return (CoordinateMixture if is_direct else LayoutMixture)(num_classes, dim, layouts)


def _check_layouts(layouts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(layouts, str) or len(layouts) == 0:
        raise UserError(f"layouts must be a list of names, got {layouts!r}")
    for name in layouts:
        check_known("layouts", name, LAYOUTS)
    return tuple(layouts)
