"""The layouts by name. To add one: write its file, and one line in ``LAYOUTS``."""

from collections.abc import Callable

from layline.geometry.layouts.base import Layout
from layline.geometry.layouts.free import Free
from layline.geometry.layouts.linear import Linear
from layline.geometry.layouts.semicircular import Semicircular, orthonormal_pair
from layline.geometry.layouts.spacing import Elastic, Even, Spacing

LAYOUTS: dict[str, Callable[..., Layout]] = {
    "linear": Linear,
    "semicircular": Semicircular,
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
    "orthonormal_pair",
]
