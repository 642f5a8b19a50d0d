"""Samples that a user passes to a model: paths, folders, bytes, files, arrays, data frames."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from layline.data.dataset import Indices, Pixels, format_list, require_path
from layline.data.tables import Rows, TableEncoding, read_table_file
from layline.utils.validation import UserError, require


@dataclass(frozen=True)
class UserImages:
    """Images that a user passes: files and bytes, decoded when needed, and arrays."""

    items: tuple[Path | bytes | Pixels, ...]
    names: tuple[str, ...]  # paths, or else places in what was passed
    skipped: tuple[Path, ...] = ()  # files in folders that are not images

    def __len__(self) -> int:
        return len(self.items)

    @property
    def decoded(self) -> bool:
        """Whether no image needs decoding."""
        return not any(isinstance(item, Path | bytes) for item in self.items)

    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given."""
        return type(self)(tuple(self.items[i] for i in keep), tuple(self.names[i] for i in keep))

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image, see :class:`layline.data.Images`."""
        from layline.data.images import BadImageError, decode  # needs Pillow

        item = self.items[index]
        if isinstance(item, Path):
            return decode(item, at_least)
        if not isinstance(item, bytes):
            return item
        try:
            return decode(io.BytesIO(item), at_least)
        except BadImageError as error:
            raise BadImageError(error.why, self.names[index]) from error

    def digest(self) -> str:
        """Hash the content of the files and arrays, in their order."""
        digest = hashlib.blake2b(digest_size=16)
        for item in self.items:
            content = item.read_bytes() if isinstance(item, Path) else item
            digest.update(hashlib.blake2b(np.ascontiguousarray(content).data).digest())
        return digest.hexdigest()


def as_images(samples: Any) -> UserImages:
    """Convert what a user passes to images.

    That is a path, a folder, the bytes of an image file, an open file, an array (height, width, 3)
    of values from 0 to 255, a Pillow image, or a sequence of them, such as a Series of paths.
    """
    items: list[Path | bytes | Pixels] = []
    names: list[str] = []
    skipped: list[Path] = []
    for place, sample in enumerate(_as_sequence(samples)):
        if isinstance(sample, str | Path):
            path = require_path(sample)
            paths = _list_folder(path, skipped) if path.is_dir() else [path]
            items += paths
            names += map(str, paths)
        elif _is_content(sample):
            name = getattr(sample, "name", None)
            items.append(_read_content(sample))
            names.append(name if isinstance(name, str) else str(place))
        else:
            items.append(_to_pixels(sample, place))
            names.append(str(place))
    return UserImages(tuple(items), tuple(names), tuple(skipped))


def as_rows(samples: Any, encoding: TableEncoding) -> Rows:
    """Convert a data frame, a dict of columns, or a CSV or Excel file (path or content) to rows.

    Arrays also work if the model has numeric columns only, in the order of its columns.
    """
    pandas = require("pandas", extra="images", needed_by="predicting from a table")
    if isinstance(samples, str | Path) or _is_content(samples):
        file = read_table_file(_read_content(samples) if _is_content(samples) else samples)
        return encoding.encode_rows(file.frame, file.row_names)
    try:
        if isinstance(samples, Mapping):  # columns of Series belong together by place, not by index
            columns = {name: c if isinstance(c, str) else list(c) for name, c in samples.items()}
            samples = pandas.DataFrame(columns)
        elif isinstance(samples, np.ndarray) and not encoding.categorical:
            samples = pandas.DataFrame(samples, columns=list(encoding.names))
        elif not isinstance(samples, pandas.DataFrame):
            raise TypeError(f"got {type(samples).__name__}")
    except (ValueError, TypeError) as error:
        raise UserError(
            "The samples must be a data frame or the path of a CSV file, with the columns "
            f"{format_list(encoding.names)}: {error}."
        ) from None
    return encoding.encode_rows(samples, [f"row {row}" for row in range(len(samples))])


def _as_sequence(samples: Any) -> Sequence[Any]:
    """Return the samples one by one; a single image is a sequence of one."""
    if isinstance(samples, str | Path) or hasattr(samples, "getbands") or _is_content(samples):
        return [samples]
    if isinstance(samples, Sequence):
        return samples
    array = np.asarray(samples)
    many = array.ndim == 4 or (array.ndim == 1 and array.dtype.kind in "OUT")  # objects or texts
    return list(array) if many else [array]


def _is_content(sample: Any) -> bool:
    """Check whether a sample is the content of a file, or an open file."""
    return isinstance(sample, bytes | bytearray | memoryview) or hasattr(sample, "read")


def _read_content(sample: Any) -> bytes:
    if isinstance(sample, bytes | bytearray | memoryview):
        return bytes(sample)
    if sample.seekable():
        sample.seek(0)
    content = sample.read()
    if not isinstance(content, bytes):
        raise UserError("A file is open for text. Open it with 'rb'.")
    return content


def _list_folder(folder: Path, skipped: list[Path]) -> list[Path]:
    from layline.data.images import describe_skipped, list_images

    others: list[str] = []
    paths = [folder / name for name in list_images(folder, others)]
    skipped += [folder / name for name in others]
    if not paths:
        why = f" {describe_skipped(others)}" if others else ""
        raise UserError(f"The folder {folder} has no images.{why}")
    return paths


def _to_pixels(sample: Any, place: int) -> Pixels:
    if hasattr(sample, "getbands"):  # a Pillow image
        from layline.data.images import to_pixels

        return to_pixels(sample.copy())
    array = np.asarray(sample)
    if array.ndim == 2:
        array = array[..., None].repeat(3, axis=2)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise UserError(
            f"Images must be uint8 arrays of shape (height, width, 3), got {array.dtype} of shape "
            f"{array.shape} at place {place}."
        )
    return np.ascontiguousarray(array)
