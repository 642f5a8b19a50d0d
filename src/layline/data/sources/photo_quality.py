"""Photo quality: crops of two photographs, degraded to ordered levels; nothing to download.

The photographs are those that scikit-learn ships. Each is divided into a grid of cells, and each
cell belongs to training, validation or test, so no pixel is in two splits. A crop is rotated and
mirrored, and its colors and light are changed. Then it is blurred, made noisy and compressed, in
this order, with a strength s in (0, 1). The shares of s of the three are drawn, with mean s; or one
of them has all of it. The strength is uniform within the interval of the level, so neighboring
levels touch and do not overlap.
"""

import io
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from layline.data.dataset import Dataset, Pixels, Splits
from layline.data.images import ImageArrays
from layline.utils.validation import check_integer, check_known

Crop = tuple[int, str, int, int, int]  # see plan_crops
_LEVELS = ("very poor", "poor", "fair", "good", "very good", "excellent")
_DISTORTIONS = ("blur", "noise", "compression")
_ROWS, _COLUMNS, _CELL = 4, 6, 106  # cells of 106 × 106 pixels
_GAP = 4  # unused pixels around a cell
_CELLS = {"train": 12, "validation": 4, "test": 8}  # of each photograph
_CONTRAST, _BRIGHTNESS = (0.7, 1.1), (-30.0, 30.0)
_EVENNESS = 30.0  # how similar the shares of blur, noise and compression are
_BLUR = 3.0  # standard deviation in pixels at strength 1
_NOISE = 70.0  # standard deviation in gray levels at strength 1
_FINEST, _LOSS, _COARSEST = 95, 80, 5  # JPEG quality at strength 0, its loss at 1, the minimum


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
    """Generate square crops; the partition is the seed, and ``distortion`` may be a single one."""
    check_integer("partition", partition, 0)
    counts = {"train": per_class, "validation": validation_per_class, "test": test_per_class}
    for split, count in counts.items():
        check_integer(f"{split}_per_class".removeprefix("train_"), count, 1, most=10_000)
    check_integer("levels", levels, 2, most=256)
    check_integer("size", size, 8, most=_CELL - 2 * _GAP)
    check_known("distortion", distortion, ("all", *_DISTORTIONS))
    crops, pixels = _make_crops(partition, tuple(counts.items()), size, levels, distortion)
    classes = _LEVELS if levels == len(_LEVELS) else tuple(f"level {n + 1}" for n in range(levels))
    names = [
        f"{('china', 'flower')[photograph]}/{split}/{classes[rank]}/{index:04}"
        for index, (photograph, split, rank, *_) in enumerate(crops)
    ]
    splits = np.array([split for _, split, *_ in crops])
    return Dataset(
        inputs=ImageArrays(pixels, names),
        ranks=np.array([rank for _, _, rank, *_ in crops], dtype=np.int64),
        classes=classes,
        splits=Splits(*(np.flatnonzero(splits == split) for split in counts)),
    )


@lru_cache(maxsize=1)  # they take seconds, and consecutive runs often share them
def _make_crops(
    partition: int, counts: tuple[tuple[str, int], ...], size: int, levels: int, distortion: str
) -> tuple[tuple[Crop, ...], Pixels]:
    """Draw, cut and degrade all crops; the pixels are read-only."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(partition)
    photographs = load_sample_images().images
    crops = tuple(plan_crops(dict(counts), size, levels, rng))
    cut = []
    for photograph, _, rank, top, left in crops:
        strength = 1 - (rank + rng.random()) / levels
        if distortion == "all":
            strengths = (3 * strength * rng.dirichlet([_EVENNESS] * 3)).tolist()
        else:
            strengths = [strength * (name == distortion) for name in _DISTORTIONS]
        crop = photographs[photograph][top : top + size, left : left + size]
        cut.append(_degrade(_vary(crop, rng), strengths, rng))
    pixels = np.stack(cut)
    pixels.flags.writeable = False
    return crops, pixels


def plan_crops(
    counts: dict[str, int], size: int, levels: int, rng: np.random.Generator
) -> Iterator[Crop]:
    """Draw the photograph, split, level, top and left of ``counts`` crops of each level."""
    owners = np.repeat(list(_CELLS), list(_CELLS.values()))
    owner = [rng.permutation(owners) for _ in range(2)]
    for split, count in counts.items():
        for rank in range(levels):
            for index in range(count):
                photograph = index % 2
                cell = int(rng.choice(np.flatnonzero(owner[photograph] == split)))
                row, column = divmod(cell, _COLUMNS)
                top = row * _CELL + int(rng.integers(_GAP, _CELL - _GAP - size + 1))
                left = column * _CELL + int(rng.integers(_GAP, _CELL - _GAP - size + 1))
                yield photograph, split, rank, top, left


def _vary(cut: Pixels, rng: np.random.Generator) -> Pixels:
    """Rotate and mirror a crop, permute its colors and change its light."""
    turned = np.rot90(cut, int(rng.integers(4)))[:, :: int(rng.choice([-1, 1]))]
    mixed = turned[:, :, rng.permutation(3)].astype(np.float64)
    lit = (mixed - 128) * rng.uniform(*_CONTRAST) + 128 + rng.uniform(*_BRIGHTNESS)
    pixels: Pixels = np.rint(lit).clip(0, 255).astype(np.uint8)
    return pixels


def _degrade(pixels: Pixels, strengths: list[float], rng: np.random.Generator) -> Pixels:
    """Blur an image, add Gaussian noise and compress it; each strength is in [0, 1]."""
    from PIL import Image, ImageFilter

    blur, noise, compression = strengths
    image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(_BLUR * blur))
    noisy = np.asarray(image) + rng.normal(0.0, _NOISE * noise, pixels.shape)
    stored = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).round().astype(np.uint8)).save(
        stored,
        "JPEG",
        quality=max(_COARSEST, round(_FINEST - _LOSS * compression)),
        # explicit, so that other defaults of a library do not change the pixels
        subsampling="4:2:0",
        optimize=False,
        progressive=False,
    )
    return np.asarray(Image.open(stored).convert("RGB"))
