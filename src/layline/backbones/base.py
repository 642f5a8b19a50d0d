"""The base classes of backbones: a body that may be frozen, and a last layer to ``dim``.

Dropout in front of the last layer belongs to the last layer, not to the body: the output of a
frozen body is computed once, without dropout, and the dropped units change from step to step.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from layline.backbones.kernel import KernelLayer, make_kernel_layer
from layline.utils.devices import autocast_is_on
from layline.utils.validation import UserError, check_above, check_at_least, check_integer


class DropoutLinear(nn.Linear):
    """A Linear layer with dropout in front; its tensors have the names of a plain Linear."""

    def __init__(self, in_features: int, out_features: int, dropout: float = 0.0) -> None:
        super().__init__(in_features, out_features)
        check_dropout("dropout", dropout)
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "n width"]) -> Float[Tensor, "n d"]:
        """Apply dropout, then the linear map."""
        return super().forward(drop(x, self.dropout, self.training))


class HiddenLayer(nn.Sequential):
    """Dropout, Linear, GELU, dropout, Linear."""

    hidden: DropoutLinear

    def __init__(self, in_features: int, hidden: int, out_features: int, dropout: float) -> None:
        super().__init__()
        self.in_features, self.dropout = in_features, dropout
        self.hidden = DropoutLinear(in_features, hidden, dropout)
        self.activation = nn.GELU()
        self.out = DropoutLinear(hidden, out_features, dropout)


LastLayer = nn.Linear | HiddenLayer | KernelLayer
KernelOptions = Mapping[str, Any]  # of a KernelLayer


def make_last_layer(
    width: int,
    dim: int,
    hidden: int = 0,
    dropout: float = 0.0,
    kernel: KernelOptions | None = None,
) -> LastLayer:
    """Make the last layer of a backbone.

    ``hidden`` may be 0 for none. With ``kernel`` it is a :class:`KernelLayer` with these options,
    to be fitted in closed form, otherwise it has random weights.
    """
    check_integer("dim", dim, 1)
    if kernel is not None:
        return make_kernel_layer(width, dim, kernel)
    check_integer("hidden", hidden, 0)
    if hidden:
        return HiddenLayer(width, hidden, dim, dropout)
    return DropoutLinear(width, dim, dropout)


def last_layer_options(last: LastLayer) -> dict[str, Any]:
    """Return the options that a last layer was made with, without those that were zero."""
    if isinstance(last, KernelLayer):
        return {"kernel": last.options}
    hidden = last.hidden.out_features if isinstance(last, HiddenLayer) else 0
    options = {"hidden": hidden, "dropout": getattr(last, "dropout", 0.0)}
    return {name: value for name, value in options.items() if value}


def check_dropout(name: str, value: float) -> None:
    """Raise an error unless the value is a rate of units to drop."""
    check_at_least(name, value, 0, "it is a share of the units")
    if value >= 1:
        raise UserError(f"{name} must be below 1, got {value!r}: all units would be dropped")


class Backbone(nn.Module, ABC):
    """Map samples to features: ``last(body(x))``. Everything except ``last`` is the body."""

    name: str  # in the registry
    last: LastLayer  # trained even if the body is frozen
    _frozen: tuple[str, ...] = ()  # names of the modules that stay in evaluation mode

    @property
    def width(self) -> int:
        """Number of units of the body's output."""
        return self.last.in_features

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""

    @property
    def body_options(self) -> dict[str, Any]:
        """The options that change what a frozen body computes."""
        without = {"dropout", "drop_rate", "drop_path_rate", *last_layer_options(self.last)}
        return {name: value for name, value in self.options.items() if name not in without}

    @abstractmethod
    def body(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n width"]:
        """Compute the input of the last layer."""

    def body_state(self) -> dict[str, Tensor]:
        """Return the parameters and buffers of the body, by name."""
        return {k: v for k, v in self.state_dict().items() if not k.startswith("last.")}

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the features of each sample."""
        features: Tensor = self.last(self.body(x))
        return features

    def set_last_layer(
        self,
        dim: int,
        hidden: int = 0,
        dropout: float = 0.0,
        kernel: KernelOptions | None = None,
    ) -> None:
        """Replace the last layer; see :func:`make_last_layer`."""
        self.last = make_last_layer(self.width, dim, hidden, dropout, kernel)

    def layer_groups(self, coarse: bool = False) -> list[list[nn.Parameter]]:
        """Return the parameters of the body by layer, or by stage if ``coarse``, in their order.

        A group that has only vectors, such as a normalization, is merged into the previous one.
        """
        groups: list[list[nn.Parameter]] = []
        for group in self._groups(coarse):
            if groups and all(parameter.ndim < 2 for parameter in group):
                groups[-1] += group
            else:
                groups.append(list(group))
        return groups

    def train_stages(self, count: int) -> Self:
        """Freeze the body except its last ``count`` stages.

        Frozen parameters get no gradients. Batch normalization and dropout of frozen modules stay
        in evaluation mode, even after :meth:`train`.
        """
        stages = self.layer_groups(coarse=True)
        check_integer("stages", count, 0, f"{self.name} has {len(stages)} stages", len(stages))
        cut = len(stages) - count
        for place, stage in enumerate(stages):
            for parameter in stage:
                parameter.requires_grad_(place >= cut)
        self._frozen = tuple(self._frozen_modules()) if cut else ()
        return self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of every module except those that :meth:`train_stages` froze."""
        super().train(mode)
        for name in self._frozen:
            self.get_submodule(name).training = False
        return self

    def _groups(self, coarse: bool) -> Iterable[list[nn.Parameter]]:
        """Return the parameters of the body by module; small networks have no stages."""
        groups: dict[str, list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if not name.startswith("last."):
                groups.setdefault(name.rpartition(".")[0], []).append(parameter)
        return groups.values()

    def _frozen_modules(self) -> Iterator[str]:
        """Name the modules of the body without a trained parameter."""
        before = True  # a module without parameters, such as dropout, belongs to the last with some
        for name, module in self.named_modules():
            if not name or name.split(".")[0] == "last":
                continue
            parameters = list(module.parameters())
            frozen = not any(each.requires_grad for each in parameters) if parameters else before
            if parameters and not any(module.children()):
                before = frozen
            if frozen:
                yield name


class TableBackbone(Backbone):
    """Map the rows of a table to features."""

    @abstractmethod
    def fit_scale(
        self,
        x: Float[Tensor, "n columns"] | Iterable[Float[Tensor, "n some"]],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Self:
        """Learn the scale of each column from training rows, or from blocks of their columns."""


@dataclass(frozen=True)
class InputSpec:
    """The images that a network expects."""

    size: int | None = None  # height and width in pixels; None for the size of the data
    mean: Sequence[float] = (0.5, 0.5, 0.5)  # of each channel, where white is 1
    std: Sequence[float] = (0.5, 0.5, 0.5)
    interpolation: str = "bilinear"
    crop: float = 1.0  # side of the central crop, as a share of the resized image

    def __post_init__(self) -> None:
        if self.size is not None:
            check_integer("size", self.size, 1, "it is a number of pixels")
        for name, values in {"mean": self.mean, "std": self.std}.items():
            if not isinstance(values, Sequence) or len(values) != 3:
                raise UserError(f"{name} must be three numbers, got {values!r}")
            for value in values:
                check_at_least(name, value, 0)
            object.__setattr__(self, name, tuple(map(float, values)))
        check_above("std", min(self.std), 0, "channels are divided by it")
        check_above("crop", self.crop, 0)
        if self.crop > 1:
            raise UserError(f"crop must be at most 1, got {self.crop!r}")


class ImageBackbone(Backbone):
    """Map images to features. Images have the right size and are bytes, or floats in 0…255."""

    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        self.input = spec
        # not persistent: the options contain them already
        for name, values in {"mean": spec.mean, "std": spec.std}.items():
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        spec = asdict(self.input)
        spec |= {"mean": list(self.input.mean), "std": list(self.input.std)}
        return spec | last_layer_options(self.last)

    def normalize(self, x: Shaped[Tensor, "n 3 height width"]) -> Float[Tensor, "n 3 height width"]:
        """Standardize the channels, in the memory format that is fastest."""
        if x.ndim != 4 or x.shape[1] != 3:
            raise UserError(f"images must be (n, 3, height, width), got {tuple(x.shape)}")
        # CPUs and half precision are faster in channels_last; bytes are cheaper to permute
        fast = x.is_cpu or autocast_is_on(x.device)
        x = x.contiguous(memory_format=torch.channels_last if fast else torch.contiguous_format)
        # one product and one difference per pixel
        return x.to(self.mean.dtype) * (1 / (255 * self.std)) - self.mean / self.std
