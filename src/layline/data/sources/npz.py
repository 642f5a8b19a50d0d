"""Images in NumPy's ``.npz``, with the names of arrays that MedMNIST uses, or Keras."""

import math
import re
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layline.data.dataset import Dataset, Drawing, KnownClasses, format_list, only_file
from layline.data.labels import Array, parse_names, rank_labels
from layline.data.splits import PART_WORDS, RandomSplit
from layline.utils.errors import UserError
from layline.utils.memory import check_fits, in_words

_SPLIT = "|".join(PART_WORDS)
_KEY = re.compile(
    rf"(?:(?P<split>{_SPLIT})_)?(?P<kind>images|labels|x|y)|(?P<first>x|y)_(?P<then>{_SPLIT})",
)
_EXPECTED = "expected are train_images, train_labels, val_…, test_…"


def read_npz(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    calibration: float = 0.0,
) -> Dataset:
    """Read arrays of images and of their ranks.

    Args:
        root: The file, or the folder with just one.
        partition: Seed of the split where none is ready-made.
        classes: What rank 0, 1, … is called, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        calibration: Share of the training samples to calibrate with.
    """
    from layline.data.images import ImageArrays

    pairs = _pairs(_load(only_file(root, (".npz",))))
    images = {word: _images(word, pair["images"]) for word, pair in pairs.items()}
    shapes = {array.shape[1:] for array in images.values()}
    if len(shapes) > 1:
        sizes = " and ".join(str(array.shape[1:]) for array in images.values())
        raise UserError(f"images must have one size in every part, got {sizes}: resize them")
    labels = np.concatenate(
        [_labels(word, pair["labels"], len(images[word])) for word, pair in pairs.items()]
    )
    note = "The classes are in the order of their integers"
    if isinstance(classes, KnownClasses):
        labels, ordered, note = _known_ranks(labels, classes)
    else:
        ordered = _class_names(labels, classes)
    words = [word for word, array in images.items() for _ in range(len(array))]
    names = [f"{word}/{i}".lstrip("/") for word, array in images.items() for i in range(len(array))]
    split = RandomSplit(validation, test, partition, calibration)
    draw = partial(split.partition, labels, ordered, None if "" in pairs else words, None)
    parts, notes = draw()
    inputs = ImageArrays(np.concatenate(list(images.values())), names)
    drawing = Drawing(draw, notes)
    return Dataset(inputs, labels, ordered, parts, (note, *notes), drawing=drawing)


def _load(path: Path) -> dict[str, Array]:
    """Read the arrays whose names say what they are; nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile) or archive.zip is None:
                raise UserError("one array without a name")
            wanted = [key for key in archive.files if _part_and_kind(key)]
            sizes = {key: _claimed_size(archive.zip, key) for key in wanted}
            check_fits(str(path), sizes, "take a part of the images, or an image folder")
            return {key: archive[key] for key in wanted}
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"root must be an .npz file of plain arrays, got {path} ({error}): {_EXPECTED}"
        ) from error


def _claimed_size(archive: zipfile.ZipFile, key: str) -> int:
    """Read from the header of an array how many bytes it has, and see that they are there."""
    name = key if key in archive.namelist() else f"{key}.npy"
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:  # names of fields in other alphabets, which no image has
            raise UserError(f"{key} of the format {version}")
        shape, _, dtype = read(file)
        if dtype.hasobject:  # NumPy refuses them itself
            return 0
        size, there = math.prod(shape) * dtype.itemsize, archive.getinfo(name).file_size
        if size != there - file.tell():
            raise UserError(
                f"{key} claims {in_words(size)} of {dtype} {shape}, and has {in_words(there)}"
            )
        return size


def _part_and_kind(key: str) -> tuple[str, str] | None:
    """Tell the word for the part, empty without a split, and whether it is images or labels."""
    match = _KEY.fullmatch(key.lower())
    if match is None:
        return None
    word = match["split"] or match["then"] or ""
    return word, "images" if (match["kind"] or match["first"]) in ("images", "x") else "labels"


def _pairs(arrays: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """Give the images and the labels of each part."""
    by_kind = {_part_and_kind(key): array for key, array in arrays.items()}
    words = dict.fromkeys(each[0] for each in by_kind if each)
    kinds = ("images", "labels")
    complete = words and all((word, kind) in by_kind for word in words for kind in kinds)
    if not complete or len(by_kind) < len(arrays) or ("" in words and len(words) > 1):
        raise UserError(
            f"arrays must be images and labels of each part, got "
            f"{', '.join(arrays) or 'none of them'}: {_EXPECTED}"
        )
    return {word: {kind: by_kind[word, kind] for kind in kinds} for word in words}


def _images(word: str, array: Array) -> Array:
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    right = array.ndim == 3 or (array.ndim == 4 and array.shape[-1] == 3)
    if array.dtype != np.uint8 or not right:
        raise UserError(
            f"{word} images must be uint8 of the shape (n, height, width) or (n, height, width, 3)"
            f", got {array.dtype} {array.shape}: convert them first".lstrip()
        )
    return array


def _labels(word: str, array: Array, count: int) -> NDArray[np.int64]:
    if array.shape not in ((count,), (count, 1)) or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"{word} labels must be integers of the shape ({count},) or ({count}, 1), got "
            f"{array.dtype} {array.shape}: one rank for each image".lstrip()
        )
    return array.reshape(-1).astype(np.int64)


def _known_ranks(
    labels: NDArray[np.int64], classes: KnownClasses
) -> tuple[NDArray[np.int64], tuple[str, ...], str]:
    """Take integers for classes of a model: by name, or as ranks where it has other names."""
    texts = [str(label) for label in labels.tolist()]
    if {*texts}.isdisjoint(classes) and labels.min() >= 0 and labels.max() < len(classes):
        return labels, classes, f"The integers 0, 1, … are taken for {', '.join(classes)}"
    return rank_labels(texts, range(len(texts)), classes)


def _class_names(labels: NDArray[np.int64], classes: str | Sequence[Any] | None) -> tuple[str, ...]:
    """Name the classes, after a check that the labels are ranks."""
    present = np.unique(labels)
    if not np.array_equal(present, np.arange(len(present))):
        raise UserError(
            f"labels must be 0, 1, … without a gap, got {format_list(present)}: number them anew"
        )
    if classes is None:
        return tuple(str(rank) for rank in present)
    names = parse_names("classes", classes)
    if len(names) != len(present):
        raise UserError(
            f"classes must name the {len(present)} labels, got {len(names)}: {', '.join(names)}"
        )
    return names
