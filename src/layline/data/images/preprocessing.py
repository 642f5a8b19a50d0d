"""From a decoded image to the square of pixels that a network sees.

For testing, the paper resizes to 256×256, whatever the shape, and takes the 224×224 in the middle;
for training it takes a random part of the image, resizes that to 224×224 and flips it or not.
Normalising is left to the network, which has its own mean and deviation: until then an image is
bytes.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from layline.arguments import check_boolean, check_integer, check_known
from layline.data.base import Pixels
from layline.torchvision_import import import_torchvision

AUGMENTATIONS = {
    "crop": "a random part of 8 to 100 % of the area, ratio 3/4 to 4/3; flip (the paper)",
    "shift": "moved by up to an eighth of the size, the edge mirrored; flip",
    "flip": "flip only",
    "none": "as in testing",
}
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
_MOST_RATIO = 16


@dataclass(frozen=True)
class ImagePreprocessing:
    """How images become squares of the size that the network takes.

    Args:
        size: Height and width of the result.
        resize: Height and width before the middle is cut out.
        keep_ratio: Resize the shorter side only, and keep the shape, as the authors' code does.
        interpolation: One of ``INTERPOLATIONS``.
    """

    size: int
    resize: int
    keep_ratio: bool = False
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, "an image has pixels")
        check_integer("resize", self.resize, self.size, "the middle is cut out of it")
        check_boolean("keep_ratio", self.keep_ratio)
        check_known("interpolation", self.interpolation, INTERPOLATIONS)

    @property
    def at_least(self) -> int:
        """How many pixels a decoded image needs at its shorter side.

        So many that the smallest part that "crop" may take, 8 % of the area and 3/4 as high as
        wide, still has ``size`` pixels.
        """
        return max(self.resize, math.ceil(self.size / math.sqrt(0.08 * 3 / 4)))

    def for_testing(self, pixels: Pixels) -> UInt8[Tensor, "3 size size"]:
        """Resize an image and take the middle of it."""
        functional = _transforms().functional
        if self.keep_ratio:
            pixels = _crop_far_ends(pixels)
        image = functional.resize(
            _channels_first(pixels),
            [self.resize] if self.keep_ratio else [self.resize, self.resize],
            **self._resize_options(),
        )
        cropped: Tensor = functional.center_crop(image, [self.size, self.size])
        return cropped

    def for_training(
        self, pixels: Pixels, augmentation: str, seed: int
    ) -> UInt8[Tensor, "3 size size"]:
        """Augment an image.

        Args:
            pixels: The decoded image.
            augmentation: One of ``AUGMENTATIONS``.
            seed: The same seed gives the same result; global generators are not touched.
        """
        check_known("augmentation", augmentation, AUGMENTATIONS)
        if augmentation == "none":
            return self.for_testing(pixels)
        v2 = _transforms()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if augmentation == "crop":
                crop = v2.RandomResizedCrop(self.size, **self._resize_options())
                image = crop(_channels_first(pixels))
            else:
                image = self.for_testing(pixels)
            if augmentation == "shift":
                margin = max(self.size // 8, 1)
                image = v2.RandomCrop(self.size, padding=margin, padding_mode="reflect")(image)
            flipped: Tensor = v2.RandomHorizontalFlip()(image)
            return flipped

    def _resize_options(self) -> dict[str, Any]:
        mode = _transforms().InterpolationMode(self.interpolation)
        return {"interpolation": mode, "antialias": True}


def _transforms() -> Any:
    import_torchvision("preparing images")
    from torchvision.transforms import v2

    return v2


def _crop_far_ends(pixels: Pixels) -> Pixels:
    """Cut off what the middle will not show anyway: resized, a thin strip would fill the memory."""
    height, width = pixels.shape[:2]
    most = _MOST_RATIO * min(height, width)
    top, left = max(height - most, 0) // 2, max(width - most, 0) // 2
    return pixels[top : top + most, left : left + most]


def _channels_first(pixels: Pixels) -> Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)
