"""Preprocessing: from a decoded image to the square of pixels that a network gets.

For testing, the paper resizes to 256×256, whatever the shape, and crops the central 224×224; for
training it crops a random part of the image, resizes it to 224×224 and flips it at random. Images
stay bytes: the network normalizes them.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from layline.data.dataset import Images, Pixels
from layline.utils.validation import check_above, check_integer, check_known, require

if TYPE_CHECKING:  # an exported model prepares images without torch
    from torch import Tensor

AUGMENTATIONS = {
    "crop": "a random part of 8 to 100 % of the area, ratio 3/4 to 4/3; flip (the paper)",
    "mild": "a random part of 50 to 100 % of the area, ratio 3/4 to 4/3; flip; mild color jitter",
    "shift": "shifted by up to an eighth of the size, edges mirrored; flip",
    "flip": "flip only",
    "none": "as in testing",
}
# share of the area that an augmentation crops at least
SMALLEST_PARTS = {"crop": 0.08, "mild": 0.5}
_RATIOS = (3 / 4, 4 / 3)
INTERPOLATIONS = ("bilinear", "bicubic")
_MOST_RATIO = 16


@dataclass(frozen=True)
class ImagePreprocessing:
    """How images become squares of the size that the network takes."""

    size: int  # height and width of the result
    resize: int  # height and width before the center crop
    keep_ratio: bool = False  # resize the shorter side only, as the authors' code does
    interpolation: str = "bilinear"
    # The next two are not in the repr, which is part of the key of extracted features.
    # Images are decoded so that this share of their area has enough pixels, in testing too.
    smallest_part: float = field(default=SMALLEST_PARTS["crop"], repr=False)
    # Resize a decoded image first, so that its shorter side has at_least pixels, as in a cache.
    shrink: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1)
        check_integer("resize", self.resize, self.size)
        check_known("interpolation", self.interpolation, INTERPOLATIONS)
        check_above("smallest_part", self.smallest_part, 0)

    @property
    def at_least(self) -> int:
        """Pixels of the shorter side with which the smallest part has ``size`` pixels."""
        return max(self.resize, math.ceil(self.size / math.sqrt(self.smallest_part * _RATIOS[0])))

    def load(self, images: Images, index: int) -> Pixels:
        """Decode an image at the size that is needed."""
        pixels = images.load(index, self.at_least)
        return shrink(pixels, self.at_least) if self.shrink else pixels

    def for_testing(self, pixels: Pixels) -> "Tensor":
        """Resize an image and crop its center: bytes, (3, size, size)."""
        functional = _transforms().functional
        sides = [self.resize, self.resize]
        if self.keep_ratio:
            pixels, sides = _crop_far_ends(pixels), [self.resize]
        image = functional.resize(_channels_first(pixels), sides, **self._resize_options())
        cropped: Tensor = functional.center_crop(image, [self.size, self.size])
        return cropped

    def square(self, pixels: Pixels) -> Pixels:
        """Do what :meth:`for_testing` does, up to rounding, without torch: (size, size, 3)."""
        from PIL import Image

        rows = columns = self.resize
        if self.keep_ratio:
            pixels = _crop_far_ends(pixels)
            rows, columns = (
                int(self.resize * side / min(pixels.shape[:2])) for side in pixels.shape[:2]
            )
        height, width = pixels.shape[:2]
        if (rows, columns) != (height, width):
            resample = Image.Resampling[self.interpolation.upper()]
            # columns first, as torch does
            image = Image.fromarray(pixels).resize((columns, height), resample)
            pixels = np.asarray(image.resize((columns, rows), resample))
        top, left = (round((side - self.size) / 2) for side in (rows, columns))
        return np.ascontiguousarray(pixels[top : top + self.size, left : left + self.size])

    def for_training(self, pixels: Pixels, augmentation: str, seed: int) -> "Tensor":
        """Augment an image as the seed determines: bytes, (3, size, size)."""
        check_known("augmentation", augmentation, AUGMENTATIONS)
        if augmentation == "none":
            return self.for_testing(pixels)
        import torch

        v2 = _transforms()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if augmentation in SMALLEST_PARTS:
                scale = (SMALLEST_PARTS[augmentation], 1.0)
                options = {"scale": scale, "ratio": _RATIOS, **self._resize_options()}
                image = v2.RandomResizedCrop(self.size, **options)(_channels_first(pixels))
            else:
                image = self.for_testing(pixels)
            if augmentation == "shift":
                margin = max(self.size // 8, 1)
                image = v2.RandomCrop(self.size, padding=margin, padding_mode="reflect")(image)
            image = v2.RandomHorizontalFlip()(image)
            if augmentation == "mild":
                image = v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)(image)
            result: Tensor = image
            return result

    def _resize_options(self) -> dict[str, Any]:
        mode = _transforms().InterpolationMode(self.interpolation)
        return {"interpolation": mode, "antialias": True}


def shrink(pixels: Pixels, at_least: int) -> Pixels:
    """Resize an image so that its shorter side has ``at_least`` pixels, unless it has fewer."""
    from PIL import Image

    height, width = shrunk_shape(pixels.shape[0], pixels.shape[1], at_least)
    if (height, width) == pixels.shape[:2]:
        return pixels
    image = Image.fromarray(pixels)
    return np.array(image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0))


def shrunk_shape(height: int, width: int, at_least: int) -> tuple[int, int]:
    """Return the height and width after :func:`shrink`."""
    shorter = max(min(height, width), at_least)
    return round(height * at_least / shorter), round(width * at_least / shorter)


def _transforms() -> Any:
    return require("torchvision.transforms.v2", extra="images", needed_by="Preparing images")


def _crop_far_ends(pixels: Pixels) -> Pixels:
    """Crop the ends of a thin strip, which would need much memory when resized."""
    height, width = pixels.shape[:2]
    most = _MOST_RATIO * min(height, width)
    top, left = max(height - most, 0) // 2, max(width - most, 0) // 2
    return pixels[top : top + most, left : left + most]


def _channels_first(pixels: Pixels) -> "Tensor":
    import torch

    return torch.from_numpy(pixels).permute(2, 0, 1)
