"""The base classes of features: a body that may be frozen, and a last layer to ``dim``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.backbones.last_layer import HiddenLayer, last_layer_options
from layline.data.preprocessing import INTERPOLATIONS
from layline.utils.devices import autocast_is_on
from layline.utils.errors import UserError
from layline.utils.validation import check_above, check_integer, check_known


class Backbone(nn.Module, ABC):
    """Map samples to features: ``last(body(x))``.

    Everything but ``last`` belongs to the body, so the names of its tensors are those that do not
    begin with ``last.``.

    Attributes:
        name: What the registry calls it.
        last: The layer that is trained even if the body is frozen.
    """

    name: str
    last: nn.Linear | HiddenLayer
    _frozen: tuple[str, ...] = ()  # names of the modules that stay in evaluation mode

    @property
    def width(self) -> int:
        """Number of units that the body gives."""
        return self.last.in_features

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return next(self.last.parameters()).dtype

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""

    @property
    def body_options(self) -> dict[str, Any]:
        """Those of the options that change what a frozen body computes."""
        without = {"dropout", "drop_rate", "drop_path_rate", *last_layer_options(self.last)}
        return {name: value for name, value in self.options.items() if name not in without}

    @abstractmethod
    def body(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n width"]:
        """Compute the input of the last layer."""

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the features of each sample."""
        features: Tensor = self.last(self.body(x))
        return features

    # By depth: rates that fall towards the input, and a beginning that stays frozen

    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Give the parameters of the body by depth, the first layers first."""
        return _join_vectors(self._groups(coarse=False))

    @property
    def num_stages(self) -> int:
        """Number of stages of the body, which are coarser than layers where a network has such."""
        return len(_join_vectors(self._groups(coarse=True)))

    def train_stages(self, count: int) -> Self:
        """Freeze the body but for its last stages.

        What is frozen is a pure function from then on: it gets no gradients, and its batch
        normalisation and dropout stay as in evaluation whatever :meth:`train` is told.

        Args:
            count: Number of stages to train; zero freezes all of the body.
        """
        stages = _join_vectors(self._groups(coarse=True))
        check_integer("stages", count, 0, "0 freezes the whole body")
        if count > len(stages):
            raise UserError(
                f"stages must be at most {len(stages)}, got {count}: {self.name} has no more"
            )
        cut = len(stages) - count
        for place, stage in enumerate(stages):
            for parameter in stage:
                parameter.requires_grad_(place >= cut)
        trained = {id(parameter) for stage in stages[cut:] for parameter in stage}
        self._frozen = tuple(self._modules_without(trained)) if cut else ()
        return self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of every module, but for those that :meth:`train_stages` froze."""
        super().train(mode)
        for name in self._frozen:
            self.get_submodule(name).training = False
        return self

    def _groups(self, coarse: bool) -> list[list[nn.Parameter]]:
        """Give the parameters of the body by module, the first layers first.

        Args:
            coarse: By stages instead of layers, where the network has such.
        """
        groups: dict[str, list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if not name.startswith("last."):
                groups.setdefault(name.rpartition(".")[0], []).append(parameter)
        return list(groups.values())

    def _modules_without(self, trained: set[int]) -> Iterator[str]:
        """Name the modules of the body that have no trained parameter, given by their ids.

        A module without any, such as dropout, belongs to the last one with some before it.
        """
        before = True
        for name, module in self.named_modules():
            if not name or name.split(".")[0] == "last":
                continue
            parameters = list(module.parameters())
            frozen = before
            if parameters:
                frozen = not any(id(parameter) in trained for parameter in parameters)
                before = frozen if not any(module.children()) else before
            if frozen:
                yield name


def _join_vectors(groups: Iterable[list[nn.Parameter]]) -> list[list[nn.Parameter]]:
    """Let a group of vectors alone, such as a normalisation, join the group before it."""
    joined: list[list[nn.Parameter]] = []
    for group in groups:
        if joined and all(parameter.ndim < 2 for parameter in group):
            joined[-1] = [*joined[-1], *group]
        else:
            joined.append(group)
    return joined


class TableFeatures(Backbone):
    """Map the rows of a table to features."""

    @abstractmethod
    def fit_scale(
        self,
        x: Float[Tensor, "n columns"] | Iterable[Float[Tensor, "n some"]],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Self:
        """Learn the scale of each column from the training rows.

        Args:
            x: The training rows; or their columns block by block, if all would not fit.
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
            raise UserError(f"crop must be at most 1, got {self.crop!r}: it is a share of the side")


class ImageFeatures(Backbone):
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
        spec |= {"mean": list(self.input.mean), "std": list(self.input.std)}
        return spec | last_layer_options(self.last)

    def normalised(
        self, x: Shaped[Tensor, "n 3 height width"]
    ) -> Float[Tensor, "n 3 height width"]:
        """Bring the channels to mean 0 and deviation 1, in the precision of the weights.

        The result is in the memory order that convolutions are quicker in. Bytes are put in that
        order before they become numbers of four bytes.
        """
        if x.ndim != 4 or x.shape[1] != 3:
            raise UserError(
                f"images must have the shape (n, 3, height, width), got {tuple(x.shape)}"
            )
        quick = x.is_cpu or autocast_is_on(x.device)
        order = torch.channels_last if quick else torch.contiguous_format
        x = x.contiguous(memory_format=order)
        # what concerns three numbers only comes first: a product and a sum per pixel are left
        return x.to(self.dtype) * (1 / (255 * self.std)) - self.mean / self.std


def _triple(name: str, values: Any) -> tuple[float, ...]:
    good = isinstance(values, Sequence) and len(values) == 3
    if not good or not all(isinstance(v, Real) and math.isfinite(v) for v in values):
        raise UserError(f"{name} must be three finite numbers, got {values!r}: one per channel")
    return tuple(float(value) for value in values)
