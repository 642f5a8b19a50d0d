"""Samples as a user hands them to a model: paths, folders, bytes, files, arrays, data frames."""

import hashlib
import io
import sys
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from layline.data.dataset import Indices, Pixels, format_list
from layline.data.table_encoding import Rows, TableEncoding, name_rows
from layline.data.tables import read_table_file
from layline.utils.errors import UserError
from layline.utils.optional import require

_LISTING = "OUT"  # kinds of dtypes whose arrays list samples: of objects, and both of texts


@dataclass(frozen=True)
class UserImages:
    """Images that a user hands over: files and bytes, decoded when asked for, and arrays.

    Attributes:
        items: The images.
        names: Their paths, or else their places in what was handed over.
        skipped: Files of folders that are no images that can be read.
    """

    items: tuple[Path | bytes | Pixels, ...]
    names: tuple[str, ...]
    skipped: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def decoded(self) -> bool:
        """Whether no image has to be decoded."""
        return not any(isinstance(item, Path | bytes) for item in self.items)

    def subset(self, keep: Indices) -> Self:
        """Keep some images only."""
        return type(self)(tuple(self.items[i] for i in keep), tuple(self.names[i] for i in keep))

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image, see :class:`layline.data.Images`."""
        from layline.data.decoding import BadImageError, decode  # which need Pillow

        item = self.items[index]
        if isinstance(item, Path):
            return decode(item, at_least)
        if not isinstance(item, bytes):
            return item
        try:
            return decode(io.BytesIO(item), at_least)
        except BadImageError as error:
            name = self.names[index]
            place = f"the bytes at place {name}" if name.isdecimal() else name
            raise BadImageError(error.why, place) from error

    def digest(self) -> str:
        """Name the content of the files and arrays, in their order."""
        digest = hashlib.blake2b(digest_size=16)
        for item in self.items:
            if isinstance(item, Path):
                with item.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "blake2b").digest())
            elif isinstance(item, bytes):
                digest.update(hashlib.blake2b(item).digest())  # as that of the same file
            else:
                digest.update(repr(item.shape).encode() + item.tobytes())
        return digest.hexdigest()


def as_images(samples: Any) -> UserImages:
    """Make images of what a user gives.

    Args:
        samples: A path, a folder, the bytes of an image file, an open file, an array
            (height, width, 3), a Pillow image, or a sequence of them, also a pandas Series or an
            array of paths; an array (n, height, width, 3) is n images. Arrays of pixels hold
            values from 0 to 255.
    """
    items: list[Path | bytes | Pixels] = []
    names: list[str] = []
    skipped: list[Path] = []
    for place, sample in enumerate(_as_sequence(samples)):
        if isinstance(sample, str | Path):
            found = _paths(Path(sample).expanduser(), skipped)
            items += found
            names += map(str, found)
        elif _is_content(sample):
            name = getattr(sample, "name", None)
            items.append(_content(sample, place))
            names.append(name if isinstance(name, str) else str(place))
        else:
            items.append(_pixels(sample, place))
            names.append(str(place))
    return UserImages(tuple(items), tuple(names), tuple(skipped))


def as_rows(samples: Any, encoding: TableEncoding) -> Rows:
    """Make rows of a data frame, a dict of columns, or a CSV file: its path, or what it holds.

    An array will do where the model knows numbers only, in the order of its columns.
    """
    pandas = require("pandas", extra="images", needed_by="predicting from a table")
    if isinstance(samples, str | Path) or _is_content(samples):
        given = _content(samples, 0) if _is_content(samples) else Path(samples).expanduser()
        file = read_table_file(given)
        frame, numbers = file.frame, file.row_names
    elif isinstance(samples, pandas.DataFrame | Mapping):
        if isinstance(samples, Mapping):
            _check_columns(samples)
            samples = {name: list(column) for name, column in samples.items()}
        frame = pandas.DataFrame(samples)
        numbers = [f"row {row}" for row in range(len(frame))]
    elif isinstance(samples, np.ndarray) and not encoding.categorical and samples.ndim == 2:
        if samples.shape[1] != len(encoding.names):
            raise UserError(
                f"samples must have {len(encoding.names)} columns, got {samples.shape[1]}: the "
                f"model was trained on {format_list(encoding.names)}"
            )
        frame = pandas.DataFrame(samples, columns=list(encoding.names))
        numbers = [f"row {row}" for row in range(len(frame))]
    else:
        raise UserError(
            "samples must be a data frame or the path of a CSV file, got "
            f"{type(samples).__name__}: the model was trained on a table"
        )
    names = name_rows(frame, encoding.id_column, numbers)
    return Rows(encoding.apply(frame, numbers), names, encoding)


def _check_columns(columns: Mapping[str, Any]) -> None:
    """Refuse a dict that is not of columns of one length."""
    for name, column in columns.items():
        if isinstance(column, str) or not isinstance(column, Sized):
            raise UserError(f"a column must be a list, got {column!r} as {name!r}")
    lengths = [len(column) for column in columns.values()]
    if len(set(lengths)) > 1:
        raise UserError(f"columns must be of one length, got {' and '.join(map(str, lengths))}")


def _as_sequence(samples: Any) -> Sequence[Any]:
    """Give the samples one by one: one image is a sequence of one."""
    if isinstance(samples, str | Path) or _is_pillow(samples) or _is_content(samples):
        return [samples]
    if isinstance(samples, Sequence):
        return samples
    array = np.asarray(samples)
    if array.ndim == 1 and array.dtype.kind in _LISTING:
        return list(array)
    return array if array.ndim == 4 else [array]  # type: ignore[return-value]


def _is_pillow(sample: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # without it there are no images of it
    return pillow is not None and isinstance(sample, pillow.Image)


def _is_content(sample: Any) -> bool:
    """Tell whether a sample is what a file holds, or an open file."""
    return isinstance(sample, bytes | bytearray | memoryview) or hasattr(sample, "read")


def _content(sample: Any, place: int) -> bytes:
    """Give what a file holds, from its beginning on where it has one."""
    if isinstance(sample, bytes | bytearray | memoryview):
        return bytes(sample)
    try:
        if sample.seekable():
            sample.seek(0)
        content = sample.read()
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"samples must be open files, got one at place {place} that cannot be read: {error}"
        ) from error
    if not isinstance(content, bytes):
        raise UserError(
            f"samples must be files of bytes, got {type(content).__name__} from the one at place "
            f"{place}: open it with 'rb'"
        )
    return content


def _paths(path: Path, skipped: list[Path]) -> list[Path]:
    if path.is_dir():
        from layline.data.images import describe_skipped, list_images

        passed_over: list[str] = []
        found = [path / name for name in list_images(path, passed_over)]
        if not found:
            why = f" {describe_skipped(passed_over)}" if passed_over else ""
            raise UserError(f"The folder {path} has no images.{why}")
        skipped += [path / name for name in passed_over]
        return found
    if not path.exists():
        raise FileNotFoundError(f"samples must exist, got {path}: check the path")
    return [path]


def _pixels(sample: Any, place: int) -> Pixels:
    if _is_pillow(sample):
        from layline.data.decoding import to_pixels

        return to_pixels(sample)
    array = np.asarray(sample)
    if array.ndim == 2:
        array = array[..., None].repeat(3, axis=2)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise UserError(
            "samples must be images of bytes, (height, width, 3), got "
            f"{array.dtype} of shape {array.shape} at place {place}: values from 0 to 255 in RGB"
        )
    return np.ascontiguousarray(array)
