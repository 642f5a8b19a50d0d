"""The base classes of features: a body that may be frozen, and a last layer to ``dim``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.arguments import check_above, check_integer, check_known
from layline.data.images.preprocessing import INTERPOLATIONS
from layline.devices import autocast_is_on


class Features(nn.Module, ABC):
    """Map samples to features: ``last(body(x))``.

    Everything but ``last`` belongs to the body, so the names of its tensors are those that do not
    begin with ``last.``.

    Attributes:
        name: What the registry calls it.
        last: The layer that is trained even if the body is frozen.
    """

    name: str
    last: nn.Linear

    @property
    def width(self) -> int:
        """Number of units that the body gives."""
        return self.last.in_features

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Give the parameters of the body by depth, the first layers first."""
        named = self.named_parameters()
        return [[weight for name, weight in named if not name.startswith("last.")]]

    @abstractmethod
    def body(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n width"]:
        """Compute the input of the last layer."""

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the features of each sample."""
        features: Tensor = self.last(self.body(x))
        return features


class TableFeatures(Features):
    """Map the rows of a table to features."""

    @abstractmethod
    def fit_scale(
        self, x: Float[Tensor, "n columns"], sample_weight: Float[Tensor, " n"] | None = None
    ) -> Self:
        """Learn the scale of each column from the training rows.

        Args:
            x: The training rows.
            sample_weight: How much each row counts; its scale does not matter.
        """


@dataclass(frozen=True)
class InputSpec:
    """How images must be prepared for a network.

    Attributes:
        size: Height and width in pixels; None if that of the data will do.
        mean: Of each channel, where white is 1.
        std: Deviation of each channel, likewise.
        interpolation: How images are resized.
        crop: Share of the resized image's side that the central crop keeps.
    """

    size: int | None = None
    mean: Sequence[float] = (0.5, 0.5, 0.5)
    std: Sequence[float] = (0.5, 0.5, 0.5)
    interpolation: str = "bilinear"
    crop: float = 1.0

    def __post_init__(self) -> None:
        if self.size is not None:
            check_integer("size", self.size, 1, "it is a number of pixels")
        for name in ("mean", "std"):
            object.__setattr__(self, name, _triple(name, getattr(self, name)))
        for deviation in self.std:
            check_above("std", deviation, 0, "channels are divided by it")
        check_known("interpolation", self.interpolation, INTERPOLATIONS)
        check_above("crop", self.crop, 0, "nothing would be left")
        if self.crop > 1:
            raise ValueError(
                f"crop must be at most 1, got {self.crop!r}: it is a share of the side"
            )


class ImageFeatures(Features):
    """Map images to features: bytes, or floating-point numbers in 0…255, not yet normalised.

    Args:
        spec: How images must be prepared. Normalising is done here, the rest before.

    Attributes:
        input: The spec.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        self.input = spec
        # options hold them already, so the weights need not
        for name, values in {"mean": spec.mean, "std": spec.std}.items():
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        spec = asdict(self.input)
        return spec | {"mean": list(self.input.mean), "std": list(self.input.std)}

    def normalised(
        self, x: Shaped[Tensor, "n 3 height width"]
    ) -> Float[Tensor, "n 3 height width"]:
        """Bring the channels to mean 0 and deviation 1, in the precision of the weights.

        The result is in the memory order that convolutions are quicker in. Bytes are put in that
        order before they become numbers of four bytes.
        """
        if x.ndim != 4 or x.shape[1] != 3:
            raise ValueError(
                f"images must have the shape (n, 3, height, width), got {tuple(x.shape)}"
            )
        quick = x.is_cpu or autocast_is_on(x.device)
        order = torch.channels_last if quick else torch.contiguous_format
        x = x.contiguous(memory_format=order)
        # what concerns three numbers only comes first: a product and a sum per pixel are left
        return x.to(self.last.weight.dtype) * (1 / (255 * self.std)) - self.mean / self.std


def _triple(name: str, values: Any) -> tuple[float, ...]:
    good = isinstance(values, Sequence) and len(values) == 3
    if not good or not all(isinstance(v, Real) and math.isfinite(v) for v in values):
        raise ValueError(f"{name} must be three finite numbers, got {values!r}: one per channel")
    return tuple(float(value) for value in values)
