"""A small convolutional network for small images, to be trained from scratch on a CPU.

A thin convolution at full resolution, one with stride 2, then ``depth`` blocks of convolution,
batch normalization and ReLU with max pooling between them, channels doubling from block to block,
global average pooling, and a last Linear to ``dim``. The thin layer is cheap and measures local
contrast, the main cue for sharpness and noise; all wide layers work on a quarter of the pixels.
"""

from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from layline.backbones.base import ImageBackbone, InputSpec, make_last_layer
from layline.utils.errors import UserError
from layline.utils.validation import check_integer

_DEEPEST = 16  # images of 65,536 pixels at a side


class ConvNet(ImageBackbone):
    """Map small images to features.

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
        for argument, value in {"dim": dim, "channels": channels, "depth": depth}.items():
            check_integer(argument, value, 1, "a layer has units")
        if depth > _DEEPEST:
            raise UserError(
                f"depth must be at most {_DEEPEST}, got {depth}: every block halves the images"
            )
        self.channels = channels
        self.depth = depth
        if self.input.size is not None:
            self.check_size(self.input.size, self.input.size)
        thin = max(channels // 4, 1)
        layers = [_convolution(3, thin), nn.ReLU(inplace=True), *_layer(thin, channels, stride=2)]
        before = channels
        for block in range(depth):
            after = channels * 2**block
            layers += [nn.MaxPool2d(2)] if block else []
            layers += _layer(before, after)
            before = after
        self.layers = nn.Sequential(*layers)
        self.last = make_last_layer(before, dim, hidden, dropout)

    @property
    def options(self) -> dict[str, Any]:
        """The options for ``create(name, dim, **options)`` that rebuild it, as plain JSON."""
        return {"channels": self.channels, "depth": self.depth} | super().options

    def body(self, x: Shaped[Tensor, "n 3 rows columns"]) -> Float[Tensor, "n width"]:
        """Average each channel of the last block."""
        self.check_size(*x.shape[-2:])
        maps: Tensor = self.layers(self.normalize(x))
        return maps.mean(dim=(-2, -1))

    def check_size(self, height: int, width: int) -> None:
        """Raise an error if images are too small for the number of blocks."""
        least = 2**self.depth
        if min(height, width) < least:
            raise UserError(
                f"images must be at least {least}×{least} pixels, got {height}×{width}: "
                f"a convnet of depth {self.depth} halves them {self.depth} times"
            )


def _layer(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    convolution = _convolution(before, after, stride, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def _convolution(before: int, after: int, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    convolution = nn.Conv2d(before, after, 3, stride, padding=1, bias=bias)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return convolution
