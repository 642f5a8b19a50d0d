"""A small network for small images."""

from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.backbones.base import ImageBackbone, InputSpec, KernelOptions, make_last_layer
from layline.utils.validation import UserError, check_integer


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
        kernel: Options of a :class:`KernelLayer` instead.
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
        kernel: KernelOptions | None = None,
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
        self.last = make_last_layer(width, dim, hidden, dropout, kernel)

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
