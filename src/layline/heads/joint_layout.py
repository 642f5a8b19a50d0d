r"""Fixed layouts in one space: a line and the corners of a simplex, or a semicircle.

The features have one block of coordinates :math:`f_m` for each layout m. The proxies of a block
:math:`p_{mk}` are fixed up to its scale :math:`s_m`:

.. math::
    \text{line} \quad & p_k = s\,(2k / (K - 1) - 1) \\
    \text{semicircle} \quad & p_k = s\,(\cos\theta_k, \sin\theta_k), \quad
        \theta_k = k\pi / (K - 1) \\
    \text{simplex} \quad & p_k = s\,e_k, \text{ without an order}

.. math::
    P_k(f) = \operatorname{softmax}_k\Bigl(-\tfrac{1}{2} \sum_m \lVert f_m - p_{mk} \rVert^2\Bigr)

A layout with a large scale has more influence: the line brings the order, the simplex what does not
follow it. ``layline train`` and ``OrdinalClassifier`` fit this
head in closed form if there are few labels: see :mod:`layline.training.gaussian_process`. Elsewhere
it is trained like any other head.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from layline.geometry.similarities import Features, PerClass, Proxies, Ranks
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
DEFAULT_LAYOUTS = ("line", "simplex")


class JointLayout(OrdinalHead):
    """Proxies on a fixed line and at the corners of a simplex at once.

    If ``dim`` is the number of coordinates of all layouts, features are these coordinates;
    otherwise a linear layer computes them.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        layouts: Names of the layouts: line, semicircle, simplex.
    """

    positions: Tensor

    def __init__(
        self, num_classes: int, dim: int, layouts: Sequence[str] = DEFAULT_LAYOUTS
    ) -> None:
        super().__init__(num_classes, dim)
        self.layouts = _check_layouts(layouts)
        blocks = [LAYOUTS[name](num_classes) for name in self.layouts]
        self.widths = [block.shape[1] for block in blocks]
        positions = torch.cat(blocks, dim=1).to(torch.get_default_dtype())
        self.register_buffer("positions", positions)
        width = sum(self.widths)
        self.linear = None if dim == width else nn.Linear(dim, width)
        self.log_scales = nn.Parameter(torch.zeros(len(blocks)))

    @torch.no_grad()
    def place_unseen(self, ranks: Ranks) -> None:
        """Move the corner of each class without a label between those of its nearest neighbors.

        At its own corner, far from all samples, it would never be predicted.
        """
        seen = torch.unique(ranks)
        blocks = torch.split(self.positions, self.widths, dim=1)  # views
        for name, block in zip(self.layouts, blocks, strict=True):
            for rank in range(self.num_classes) if name == "simplex" else ():
                if rank not in seen:
                    nearest = torch.cat([seen[seen < rank][-1:], seen[seen > rank][:1]])
                    block[rank] = block[nearest].mean(dim=0)

    def scaled_positions(self) -> Proxies:
        """Return the proxies in the space of the coordinates."""
        scales = [s.expand(width) for s, width in zip(self.log_scales, self.widths, strict=True)]
        return self.positions * torch.cat(scales).exp()

    def _log_probs(self, features: Features) -> PerClass:
        coordinates = features if self.linear is None else apply_linear(self.linear, features)
        proxies = self.scaled_positions().to(coordinates.dtype)
        # half of the squared distance, without the square of the feature: it is the same for all k
        near = coordinates @ proxies.T - proxies.square().sum(dim=1) / 2
        return near.log_softmax(dim=1)


class CoordinateLayout(JointLayout):
    """A joint layout whose features are the coordinates, with its proxies."""

    def proxies(self) -> Proxies:
        """Return the proxies of all layouts side by side, in label order."""
        return self.scaled_positions()


def count_coordinates(num_classes: int, layouts: Sequence[str] = DEFAULT_LAYOUTS) -> int:
    """Count the coordinates of layouts: the dimension of features that need no linear layer."""
    return sum(LAYOUTS[name](num_classes).shape[1] for name in _check_layouts(layouts))


def make_joint_layout(
    num_classes: int, dim: int = 512, layouts: Sequence[str] = DEFAULT_LAYOUTS
) -> JointLayout:
    """Make the head, with proxies if its features are the coordinates themselves."""
    is_direct = dim == count_coordinates(num_classes, layouts)
    return (CoordinateLayout if is_direct else JointLayout)(num_classes, dim, layouts)


def _check_layouts(layouts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(layouts, str) or len(layouts) == 0:
        raise UserError(f"layouts must be a list of names, got {layouts!r}")
    for name in layouts:
        check_known("layouts", name, LAYOUTS)
    return tuple(layouts)
