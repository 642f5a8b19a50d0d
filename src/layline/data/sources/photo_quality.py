"""Photo quality: crops of two photographs, degraded to ordered levels; nothing to download.

The photographs are those that scikit-learn ships. Each is cut into a grid of cells, and a cell is
for training, for validation or for test: a crop lies in one cell, so no pixel is in two parts. It
is turned, mirrored, and its colours and light are changed, so that what a crop shows says little.
Then a crop of strength s in (0, 1) is blurred, made noisy and compressed, in this order, as in a
camera. How s is shared among the three is drawn, their mean is s; or one of them alone has all of
it. It is uniform within the share of (0, 1) that belongs to the level, so neighbouring levels touch
and do not overlap.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from layline.data.dataset import Dataset, Pixels, Splits
from layline.utils.errors import UserError
from layline.utils.memory import check_fits
from layline.utils.validation import check_integer, check_known

_LEVELS = ("very poor", "poor", "fair", "good", "very good", "excellent")
_MOST_LEVELS = 256
_DISTORTIONS = ("blur", "noise", "compression")
_ROWS, _COLUMNS = 4, 6  # cells of 106 × 106 pixels
_GAP = 4  # pixels that stay unused around a cell
_CELLS = {"train": 12, "validation": 4, "test": 8}  # of each photograph
_CONTRAST, _BRIGHTNESS = (0.7, 1.1), (-30.0, 30.0)
_EVENNESS = 30.0  # how alike the shares of blur, noise and compression are
_BLUR = 3.0  # standard deviation in pixels at strength 1
_NOISE = 70.0  # standard deviation in grey levels at strength 1
_FINEST, _LOSS, _COARSEST = 95, 80, 5  # JPEG quality at strength 0, what 1 takes from it, the least


@dataclass(frozen=True)
class Crop:
    """Where a crop is cut, for which part, and its level of quality."""

    photograph: int
    part: str
    rank: int
    top: int
    left: int


def read_photo_quality(
    *,
    partition: int = 0,
    size: int = 48,
    per_class: int = 200,
    validation_per_class: int = 50,
    test_per_class: int = 100,
    levels: int = len(_LEVELS),
    distortion: str = "all",
) -> Dataset:
    """Make the crops.

    Args:
        partition: The seed of all that is drawn, the cells of each part included.
        size: Side of a crop in pixels.
        per_class: Training crops of each level.
        validation_per_class: Validation crops of each level.
        test_per_class: Test crops of each level.
        levels: How many levels; six have names, others are numbered.
        distortion: ``blur``, ``noise`` or ``compression`` alone, or ``all`` together.
    """
    from sklearn.datasets import load_sample_images

    from layline.data.images import ImageArrays

    check_integer("partition", partition, 0)
    counts = {"train": per_class, "validation": validation_per_class, "test": test_per_class}
    for part, count in counts.items():
        check_integer("per_class" if part == "train" else f"{part}_per_class", count, 1)
    check_integer("levels", levels, 2)
    if levels > _MOST_LEVELS:
        raise UserError(
            f"levels must be at most {_MOST_LEVELS}, got {levels}: nobody could tell more of them "
            "apart in an image of 256 greys"
        )
    check_known("distortion", distortion, ("all", *_DISTORTIONS))
    sample = load_sample_images()
    _check_size(size, sample.images[0])
    count = levels * sum(counts.values())
    needed = {f"{count:,} crops of {size} × {size} pixels": 3 * count * size * size}
    check_fits("photo-quality", needed, "lower per_class and its like, or levels")
    crops, pixels = _make_crops(partition, tuple(counts.items()), size, levels, distortion)
    classes = _LEVELS if levels == len(_LEVELS) else tuple(f"level {n + 1}" for n in range(levels))
    titles = [Path(file).stem for file in sample.filenames]
    parts = np.array([crop.part for crop in crops])
    return Dataset(
        inputs=ImageArrays(
            pixels,
            [
                f"{titles[crop.photograph]}/{crop.part}/{classes[crop.rank]}/{index:04}"
                for index, crop in enumerate(crops)
            ],
        ),
        ranks=np.array([crop.rank for crop in crops], dtype=np.int64),
        classes=classes,
        splits=Splits(*(np.flatnonzero(parts == part) for part in counts)),
    )


@lru_cache(maxsize=1)  # they take seconds, and runs that follow each other often share them
def _make_crops(
    partition: int, counts: tuple[tuple[str, int], ...], size: int, levels: int, distortion: str
) -> tuple[tuple[Crop, ...], Pixels]:
    """Draw, cut and degrade all crops; whoever gets the pixels may not write to them."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(partition)
    photographs = load_sample_images().images
    crops = tuple(plan(photographs[0].shape[:2], dict(counts), size, rng, levels))
    pixels = np.stack(
        [
            _cut_and_degrade(
                photographs[crop.photograph],
                crop,
                size=size,
                levels=levels,
                distortion=distortion,
                rng=rng,
            )
            for crop in crops
        ]
    )
    pixels.flags.writeable = False
    return crops, pixels


def plan(
    shape: tuple[int, int],
    counts: dict[str, int],
    size: int,
    rng: np.random.Generator,
    levels: int = len(_LEVELS),
) -> Iterator[Crop]:
    """Draw where crops are cut: ``counts`` of each level for each part."""
    height, width = shape[0] // _ROWS, shape[1] // _COLUMNS
    owners = np.repeat(list(_CELLS), list(_CELLS.values()))
    owner = [rng.permutation(owners) for _ in range(2)]
    for part, count in counts.items():
        for rank in range(levels):
            for index in range(count):
                photograph = index % 2
                cell = int(rng.choice(np.flatnonzero(owner[photograph] == part)))
                row, column = divmod(cell, _COLUMNS)
                top = row * height + int(rng.integers(_GAP, height - _GAP - size + 1))
                left = column * width + int(rng.integers(_GAP, width - _GAP - size + 1))
                yield Crop(photograph, part, rank, top, left)


def _check_size(size: int, photograph: Pixels) -> None:
    check_integer("size", size, 8)
    largest = min(photograph.shape[0] // _ROWS, photograph.shape[1] // _COLUMNS) - 2 * _GAP
    if size > largest:
        raise UserError(
            f"size must be at most {largest}, got {size}: crops lie in cells of the photographs"
        )


def _cut_and_degrade(
    photograph: Pixels,
    crop: Crop,
    *,
    size: int,
    levels: int,
    distortion: str,
    rng: np.random.Generator,
) -> Pixels:
    strength = 1 - (crop.rank + rng.random()) / levels
    if distortion == "all":
        blur, noise, compression = (3 * strength * rng.dirichlet([_EVENNESS] * 3)).tolist()
    else:
        blur, noise, compression = (strength * (name == distortion) for name in _DISTORTIONS)
    cut = photograph[crop.top : crop.top + size, crop.left : crop.left + size]
    return degrade(_varied(cut, rng), blur, noise, compression, rng)


def _varied(cut: Pixels, rng: np.random.Generator) -> Pixels:
    """Turn and mirror a crop, mix its colours and change its light, as if it were another scene."""
    turned = np.rot90(cut, int(rng.integers(4)))[:, :: int(rng.choice([-1, 1]))]
    mixed = turned[:, :, rng.permutation(3)].astype(np.float64)
    lit = (mixed - 128) * rng.uniform(*_CONTRAST) + 128 + rng.uniform(*_BRIGHTNESS)
    pixels: Pixels = np.rint(lit).clip(0, 255).astype(np.uint8)
    return pixels


def degrade(
    pixels: Pixels, blur: float, noise: float, compression: float, rng: np.random.Generator
) -> Pixels:
    """Blur an image, add noise and compress it.

    A strength of 0 is none (hardly any compression), one of 1 is as bad as a level's mean ever is.
    Blur and noise are Gaussian, the noise of each pixel and colour by itself.
    """
    from PIL import Image, ImageFilter

    image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(_BLUR * blur))
    noisy = np.asarray(image) + rng.normal(0.0, _NOISE * noise, pixels.shape)
    stored = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).round().astype(np.uint8)).save(
        stored,
        "JPEG",
        quality=max(_COARSEST, round(_FINEST - _LOSS * compression)),
        # said here, so that no other default of a library changes the pixels
        subsampling="4:2:0",
        optimize=False,
        progressive=False,
    )
    return np.asarray(Image.open(stored).convert("RGB"))
