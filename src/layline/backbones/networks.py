"""The networks of this package: a perceptron for tables and a small one for small images."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.backbones.base import (
    DropoutLinear,
    ImageBackbone,
    InputSpec,
    TableBackbone,
    last_layer_options,
    make_last_layer,
)
from layline.utils.validation import UserError, check_integer


class MLP(TableBackbone):
    """A multilayer perceptron on standardized columns.

    The columns are standardized first, in float64, and then cast to the dtype of the weights: a
    time stamp keeps its seconds, which float32 would round to minutes.

    Args:
        in_features: Number of columns.
        dim: Dimension d of the features.
        hidden: Widths of the hidden layers; empty for a linear map.
        dropout: Dropout rate after each hidden layer.
    """

    name = "mlp"
    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        in_features: int,
        dim: int,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(hidden, Sequence):
            raise UserError(f"hidden must be a sequence, got {hidden!r}: write (128, 128)")
        check_integer("in_features", in_features, 1)
        for width in hidden:
            check_integer("hidden", width, 1, "it is the width of a layer", most=10_000)
        self.register_buffer("mean", torch.zeros(in_features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(in_features, dtype=torch.float64))
        layers: list[nn.Module] = []
        for before, after in pairwise([in_features, *hidden]):
            # dropout in front of every layer except the first
            layers += [DropoutLinear(before, after, dropout if layers else 0.0), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        width = [in_features, *hidden][-1]
        self.last = make_last_layer(width, dim, dropout=dropout if hidden else 0.0)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        hidden = [layer.out_features for layer in self.hidden if isinstance(layer, nn.Linear)]
        return {"in_features": len(self.mean), "hidden": hidden} | last_layer_options(self.last)

    @torch.no_grad()
    def fit_scale(
        self,
        x: Float[Tensor, "n columns"] | Iterable[Float[Tensor, "n some"]],
        sample_weight: Float[Tensor, " n"] | None = None,
    ) -> Self:
        """Learn mean and deviation of each column; a constant one is shifted to zero only."""
        blocks = [x] if isinstance(x, Tensor) else x
        statistics = [_mean_and_scale(block, sample_weight) for block in blocks]
        self.mean, self.scale = (torch.cat(parts) for parts in zip(*statistics, strict=True))
        return self

    def body(self, x: Float[Tensor, "n columns"]) -> Float[Tensor, "n width"]:
        """Standardize the columns and pass them through the hidden layers."""
        standard = (x - self.mean) / self.scale
        hidden: Tensor = self.hidden(standard.to(next(self.parameters()).dtype))
        return hidden

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast the module, but never cast the statistics, which would lose digits."""
        mean, scale = self.mean, self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.mean.dtype != mean.dtype:
            self.mean, self.scale = mean.to(self.mean.device), scale.to(self.scale.device)
        return self


def _mean_and_scale(
    x: Float[Tensor, "n columns"], sample_weight: Float[Tensor, " n"] | None
) -> tuple[Float[Tensor, " columns"], Float[Tensor, " columns"]]:
    rows = x.double()
    weight = torch.ones(len(x)) if sample_weight is None else sample_weight
    share = (weight.double() / weight.double().sum()).to(rows.device)
    mean = share @ rows
    extent = rows.amax(dim=0) - rows.amin(dim=0)
    # if one row has nearly all of the weight, the others must not become enormous
    scale = (share @ (rows - mean).square()).sqrt().maximum(1e-6 * extent)
    # compared by value: rounding gives a constant 0.1 a deviation above zero
    constant = (extent == 0) | (scale == 0)
    return torch.where(constant, rows[0], mean), torch.where(constant, 1.0, scale)


class ConvNet(ImageBackbone):
    """A small convolutional network for small images, to be trained from scratch on a CPU.

    A thin convolution at full resolution, which measures local contrast, one with stride 2, then
    ``depth`` blocks of convolution, batch normalization and ReLU with max pooling between them,
    channels doubling from block to block, and global average pooling.

    Args:
        dim: Dimension d of the features.
        channels: Channels of the first block.
        depth: Number of blocks.
        hidden: Units of a hidden layer before the last Linear; zero for none.
        dropout: Dropout rate in front of each Linear of the last layer.
        **spec: Fields of :class:`InputSpec`.
    """

    name = "convnet"

    def __init__(
        self,
        dim: int,
        *,
        channels: int = 32,
        depth: int = 3,
        hidden: int = 0,
        dropout: float = 0.0,
        **spec: Any,
    ) -> None:
        super().__init__(InputSpec(**spec))
        check_integer("channels", channels, 1)
        check_integer("depth", depth, 1, "every block halves the images", most=16)
        self.channels, self.depth = channels, depth
        if self.input.size is not None:
            self._check_size(self.input.size, self.input.size)
        thin = max(channels // 4, 1)
        layers = [_convolution(3, thin), nn.ReLU(inplace=True), *_layer(thin, channels, stride=2)]
        width = channels
        for block in range(depth):
            layers += [nn.MaxPool2d(2)] if block else []
            layers += _layer(width, channels * 2**block)
            width = channels * 2**block
        self.layers = nn.Sequential(*layers)
        self.last = make_last_layer(width, dim, hidden, dropout)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        return {"channels": self.channels, "depth": self.depth} | super().options

    def body(self, x: Shaped[Tensor, "n 3 rows columns"]) -> Float[Tensor, "n width"]:
        """Average each channel of the last block."""
        self._check_size(*x.shape[-2:])
        maps: Tensor = self.layers(self.normalize(x))
        return maps.mean(dim=(-2, -1))

    def _check_size(self, height: int, width: int) -> None:
        least = 2**self.depth  # every block halves the images
        if min(height, width) < least:
            raise UserError(f"images must be at least {least}×{least} pixels, got {height}×{width}")


def _layer(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    convolution = _convolution(before, after, stride, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def _convolution(before: int, after: int, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    convolution = nn.Conv2d(before, after, 3, stride, padding=1, bias=bias)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return convolution
