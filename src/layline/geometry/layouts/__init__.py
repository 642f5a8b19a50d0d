"""The layouts by name. To add one: write its file, and one builder with one line here.

A builder's keyword-only arguments are the options that the layout takes by name.
"""

from collections.abc import Callable

from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.free import Free
from layline.geometry.layouts.linear import Linear
from layline.geometry.layouts.semicircular import Semicircular, orthonormal_pair
from layline.geometry.layouts.spacing import Elastic, Even, Spacing


def linear(num_classes: int, dim: int, *, norm: float | None = None) -> Linear:
    """Put the proxies on a line, in equal steps: equation (7)."""
    return Linear(num_classes, dim, Even(num_classes), norm)


def elastic_linear(
    num_classes: int, dim: int, *, norm: float | None = None, stiffness: float = 0.1
) -> Linear:
    """Put the proxies on a line, in learned steps."""
    return Linear(num_classes, dim, Elastic(num_classes, stiffness), norm)


def semicircular(num_classes: int, dim: int) -> Semicircular:
    """Put the proxies on half a circle, in equal steps: equation (8)."""
    return Semicircular(num_classes, dim, Even(num_classes))


def elastic_semicircular(num_classes: int, dim: int, *, stiffness: float = 0.3) -> Semicircular:
    """Put the proxies on half a circle, in learned steps."""
    return Semicircular(num_classes, dim, Elastic(num_classes, stiffness))


LAYOUTS: dict[str, Callable[..., Layout]] = {
    "linear": linear,
    "semicircular": semicircular,
    "elastic-linear": elastic_linear,
    "elastic-semicircular": elastic_semicircular,
    "free": Free,
}

__all__ = [
    "LAYOUTS",
    "Elastic",
    "Even",
    "Free",
    "Layout",
    "Linear",
    "Semicircular",
    "Spacing",
    "elastic_linear",
    "elastic_semicircular",
    "linear",
    "orthonormal_pair",
    "semicircular",
]
