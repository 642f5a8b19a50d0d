"""From a decoded image to the square of pixels that a network sees.

For testing, the paper resizes to 256×256, whatever the shape, and takes the 224×224 in the middle;
for training it takes a random part of the image, resizes that to 224×224 and flips it or not.
Normalising is left to the network, which has its own mean and deviation: until then an image is
bytes.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from layline.data.dataset import Images, Pixels
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_above, check_boolean, check_integer, check_known

if TYPE_CHECKING:  # an exported model prepares images without torch
    from torch import Tensor

AUGMENTATIONS = {
    "crop": "a random part of 8 to 100 % of the area, ratio 3/4 to 4/3; flip (the paper)",
    "mild": "a random part of 50 to 100 % of the area, ratio 3/4 to 4/3; flip; mild colour",
    "shift": "moved by up to an eighth of the size, the edge mirrored; flip",
    "flip": "flip only",
    "none": "as in testing",
}
# The smallest part of an image that an augmentation takes, where it takes less than all of it.
# The others keep the number of "crop", though they need fewer pixels: with another number images
# would be decoded a little differently, and every cache that was made before would be useless.
_SMALLEST_PARTS = {"crop": 0.08, "mild": 0.5}
_RATIOS = (3 / 4, 4 / 3)
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
        smallest_part: Share of the area that training images are cut down to at most, see
            :func:`smallest_part`. Images are decoded accordingly, in testing too.
        shrink: Resize a decoded image first, so that its shorter side has ``at_least`` pixels, as
            a cache keeps it; a smaller one stays as it is.
    """

    size: int
    resize: int
    keep_ratio: bool = False
    interpolation: str = "bilinear"
    # not in the repr, which names features that were extracted before: the decoded images that
    # they come from are known by this already
    smallest_part: float = field(default=_SMALLEST_PARTS["crop"], repr=False)
    shrink: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, "an image has pixels")
        check_integer("resize", self.resize, self.size, "the middle is cut out of it")
        check_boolean("keep_ratio", self.keep_ratio)
        check_boolean("shrink", self.shrink)
        check_known("interpolation", self.interpolation, INTERPOLATIONS)
        check_above("smallest_part", self.smallest_part, 0, "nothing would be left")
        if self.smallest_part > 1:
            raise UserError(
                f"smallest_part must be at most 1, got {self.smallest_part!r}: it is a share"
            )

    @property
    def at_least(self) -> int:
        """How many pixels a decoded image needs at its shorter side.

        So many that the smallest part of a square, 3/4 as high as wide, still has ``size`` pixels.
        """
        return max(self.resize, math.ceil(self.size / math.sqrt(self.smallest_part * _RATIOS[0])))

    def load(self, images: Images, index: int) -> Pixels:
        """Decode one of some images at the size that is needed."""
        pixels = images.load(index, self.at_least)
        return shrink(pixels, self.at_least) if self.shrink else pixels

    def for_testing(self, pixels: Pixels) -> "Tensor":
        """Resize an image and take the middle of it: bytes, (3, size, size)."""
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

    def square(self, pixels: Pixels) -> Pixels:
        """Do as :meth:`for_testing` by Pillow alone, without torch: (size, size, 3).

        Both average in whole numbers, with weights that are rounded differently: about one value in
        a hundred is a level off.
        """
        from layline.data.decoding import Image  # which needs Pillow

        if self.keep_ratio:
            pixels = _crop_far_ends(pixels)
        height, width = pixels.shape[:2]
        shorter, rows, columns = min(height, width), self.resize, self.resize
        if self.keep_ratio:
            rows, columns = (int(self.resize * side / shorter) for side in (height, width))
        if (rows, columns) == (height, width):
            resized = pixels
        elif self.interpolation == "nearest":
            resized = pixels[_nearest(height, rows)[:, None], _nearest(width, columns)]
        else:
            filter_ = Image.Resampling[self.interpolation.upper()]
            # rows first, as torch does; by itself Pillow begins with the longer side
            image = Image.fromarray(pixels).resize((columns, height), filter_)
            resized = np.asarray(image.resize((columns, rows), filter_))
        top, left = (round((side - self.size) / 2) for side in (rows, columns))
        return np.ascontiguousarray(resized[top : top + self.size, left : left + self.size])

    def for_training(self, pixels: Pixels, augmentation: str, seed: int) -> "Tensor":
        """Augment an image: bytes, (3, size, size).

        Args:
            pixels: The decoded image.
            augmentation: One of ``AUGMENTATIONS``.
            seed: The same seed gives the same result; global generators are not touched.
        """
        check_known("augmentation", augmentation, AUGMENTATIONS)
        if augmentation == "none":
            return self.for_testing(pixels)
        import torch

        v2 = _transforms()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if augmentation in _SMALLEST_PARTS:
                scale = (_SMALLEST_PARTS[augmentation], 1.0)
                crop = v2.RandomResizedCrop(
                    self.size, scale=scale, ratio=_RATIOS, **self._resize_options()
                )
                image = crop(_channels_first(pixels))
            else:
                image = self.for_testing(pixels)
            if augmentation == "shift":
                margin = max(self.size // 8, 1)
                image = v2.RandomCrop(self.size, padding=margin, padding_mode="reflect")(image)
            image = v2.RandomHorizontalFlip()(image)
            if augmentation == "mild":  # no hue: its change is seldom mild, and costs the most
                image = v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)(image)
            result: Tensor = image
            return result

    def _resize_options(self) -> dict[str, Any]:
        mode = _transforms().InterpolationMode(self.interpolation)
        return {"interpolation": mode, "antialias": True}


def smallest_part(augmentation: str, for_cache: bool = False) -> float:
    """Tell what share of an image's area the training images are cut down to at most.

    Args:
        augmentation: One of ``AUGMENTATIONS``.
        for_cache: Whether every pixel costs room: then an augmentation that shows all of the image
            says so, see ``_SMALLEST_PARTS``.
    """
    return _SMALLEST_PARTS.get(augmentation, 1.0 if for_cache else _SMALLEST_PARTS["crop"])


def shrink(pixels: Pixels, at_least: int) -> Pixels:
    """Resize an image so that its shorter side has so many pixels, unless it has fewer.

    By Lanczos: of Pillow's filters it changes least what crops of the result look like against
    crops of the whole image.
    """
    from layline.data.decoding import Image  # which needs Pillow

    height, width = shrunk_shape(pixels.shape[0], pixels.shape[1], at_least)
    if (height, width) == pixels.shape[:2]:
        return pixels
    image = Image.fromarray(pixels)
    return np.array(image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0))


def shrunk_shape(height: int, width: int, at_least: int) -> tuple[int, int]:
    """Give the height and width that :func:`shrink` makes."""
    shorter = min(height, width)
    if shorter <= at_least:
        return height, width
    return round(height * at_least / shorter), round(width * at_least / shorter)


def _transforms() -> Any:
    return require("torchvision.transforms.v2", extra="images", needed_by="Preparing images")


def _crop_far_ends(pixels: Pixels) -> Pixels:
    """Cut off what the middle will not show anyway: resized, a thin strip would fill the memory."""
    height, width = pixels.shape[:2]
    most = _MOST_RATIO * min(height, width)
    top, left = max(height - most, 0) // 2, max(width - most, 0) // 2
    return pixels[top : top + most, left : left + most]


def _nearest(side: int, wanted: int) -> NDArray[np.int64]:
    """Tell which pixels are taken: by their edges, as torch does, where Pillow goes by middles."""
    places = np.floor(np.arange(wanted, dtype=np.float32) * np.float32(side / wanted))
    taken: NDArray[np.int64] = places.astype(np.int64).clip(max=side - 1)
    return taken


def _channels_first(pixels: Pixels) -> "Tensor":
    import torch

    return torch.from_numpy(pixels).permute(2, 0, 1)
