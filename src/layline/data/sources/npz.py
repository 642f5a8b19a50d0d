"""Images in NumPy's npz format, with the names of arrays that MedMNIST or Keras use."""

import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layline.data.dataset import SHARES, Dataset, KnownClasses, find_file, format_list
from layline.data.labels import Array, parse_names, rank_labels
from layline.data.splits import SPLIT_WORDS, assign_splits
from layline.utils.errors import UserError

_SPLIT = "|".join(SPLIT_WORDS)
_KEY = re.compile(
    rf"(?:(?P<split>{_SPLIT})_)?(?P<kind>images|labels|x|y)|(?P<first>x|y)_(?P<then>{_SPLIT})",
)
_EXPECTED = "Expected arrays: train_images, train_labels, val_images, … , or images and labels."


def read_npz(
    root: str | Path,
    *,
    classes: str | Sequence[Any] | None = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
) -> Dataset:
    """Read arrays of images and of their ranks.

    Args:
        root: The file, or a folder with a single one.
        classes: The names of ranks 0, 1, …, as a list or ``"a,b,c"``.
        validation: Share of the samples for validation, if it is drawn.
        test: Share of the samples for testing, if it is drawn.
    """
    from layline.data.images import ImageArrays

    pairs = _pair(_load(find_file(root, (".npz",))))
    images = {word: _check_images(word, pair["images"]) for word, pair in pairs.items()}
    shapes = {array.shape[1:] for array in images.values()}
    if len(shapes) > 1:
        raise UserError(f"The splits have images of different sizes: {format_list(shapes)}.")
    labels = np.concatenate(
        [_check_labels(word, pair["labels"], len(images[word])) for word, pair in pairs.items()]
    )
    note = "The classes are in the order of their integers."
    if isinstance(classes, KnownClasses):
        labels, ordered, note = _match_ranks(labels, classes)
    else:
        ordered = _name_classes(labels, classes)
    words = [word for word, array in images.items() for _ in range(len(array))]
    names = [f"{word}/{i}".lstrip("/") for word, array in images.items() for i in range(len(array))]
    return Dataset(
        ImageArrays(np.concatenate(list(images.values())), names),
        labels,
        ordered,
        assign_splits(None if "" in pairs else words, labels, ordered),
        (note,),
        shares={"validation": validation, "test": test},
    )


def _load(path: Path) -> dict[str, Array]:
    """Read the arrays with known names; nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError("it has one array without a name")
            return {key: archive[key] for key in archive.files if _parse_key(key)}
    except MemoryError:
        raise UserError(f"{path} does not fit into memory.") from None
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path} cannot be read as an npz file of arrays ({error}). {_EXPECTED}"
        ) from error


def _parse_key(key: str) -> tuple[str, str] | None:
    """Return the word for the split, empty without one, and ``images`` or ``labels``."""
    match = _KEY.fullmatch(key.lower())
    if match is None:
        return None
    word = match["split"] or match["then"] or ""
    return word, "images" if (match["kind"] or match["first"]) in ("images", "x") else "labels"


def _pair(arrays: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """Return the images and the labels of each split."""
    by_kind = {_parse_key(key): array for key, array in arrays.items()}
    words = dict.fromkeys(each[0] for each in by_kind if each)
    kinds = ("images", "labels")
    complete = words and all((word, kind) in by_kind for word in words for kind in kinds)
    if not complete or len(by_kind) < len(arrays) or ("" in words and len(words) > 1):
        raise UserError(f"The arrays are {', '.join(arrays) or 'unknown'}. {_EXPECTED}")
    return {word: {kind: by_kind[word, kind] for kind in kinds} for word in words}


def _check_images(word: str, array: Array) -> Array:
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    right = array.ndim == 3 or (array.ndim == 4 and array.shape[-1] == 3)
    if array.dtype != np.uint8 or not right:
        raise UserError(
            f"{word} images must be uint8 of shape (n, height, width) or (n, height, width, 3), "
            f"got {array.dtype} of shape {array.shape}.".lstrip()
        )
    return array


def _check_labels(word: str, array: Array, count: int) -> NDArray[np.int64]:
    if array.shape not in ((count,), (count, 1)) or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"{word} labels must be integers of shape ({count},) or ({count}, 1), got "
            f"{array.dtype} of shape {array.shape}.".lstrip()
        )
    return array.reshape(-1).astype(np.int64)


def _match_ranks(
    labels: NDArray[np.int64], classes: KnownClasses
) -> tuple[NDArray[np.int64], tuple[str, ...], str]:
    """Match integers with the classes of a model: by name, or as ranks if it has other names."""
    texts = [str(label) for label in labels.tolist()]
    if {*texts}.isdisjoint(classes) and labels.min() >= 0 and labels.max() < len(classes):
        return labels, classes, f"The integers 0, 1, … mean {', '.join(classes)}."
    return rank_labels(texts, range(len(texts)), classes)


def _name_classes(
    labels: NDArray[np.int64], classes: str | Sequence[Any] | None
) -> tuple[str, ...]:
    present = np.unique(labels)
    if not np.array_equal(present, np.arange(len(present))):
        raise UserError(f"The labels must be 0, 1, … without a gap, got {format_list(present)}.")
    if classes is None:
        return tuple(str(rank) for rank in present)
    names = parse_names("classes", classes)
    if len(names) != len(present):
        raise UserError(f"classes has {len(names)} names for {len(present)} different labels.")
    return names
