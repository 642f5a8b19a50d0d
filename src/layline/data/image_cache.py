"""Images decoded once, at the size that is needed, in a file that is named after their contents.

The name is a digest of the bytes of all image files in their order, of the size they are decoded
at, and of what decodes them. Their own names are no part of it: the data may be moved. An image
whose shorter side has more pixels than are needed is resized (:func:`shrink`).

The file has all pixels, then the index, then its seal. The index has a row for each image: height,
width and the checksum of its pixels. The seal is a digest of the index and of the key that the file
is named after. A file that was cut off has no valid seal: that is seen whenever it is opened.
Pixels that changed do not fit their checksum: that is seen when all of it is verified.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from errno import EDQUOT, EFBIG, ENOSPC
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from layline.data.dataset import Indices, Names, Pixels
from layline.data.decoding import (
    PILLOW,
    BadImageError,
    check_size,
    decode,
    thread_map,
)
from layline.data.images import ImageFiles
from layline.data.preprocessing import shrink, shrunk_shape
from layline.utils.errors import UserError
from layline.utils.files import atomic_write, write_json

if TYPE_CHECKING:
    from layline.data.index import FileIndex

CACHE_FORMAT = 2  # of the file, and of what decoding gives: another number makes other caches
_ROW = 3 * 8  # three numbers of eight bytes
_SEAL = 32
_ABANDONED = 24 * 3600.0  # seconds without a write


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Images that were decoded before. Only the path of the pixels is sent to other processes.

    Attributes:
        file: The pixels of all images, one after the other.
        starts: Where the pixels of each image start.
        shapes: The height and width of each image.
        at_least: The size that the images were decoded at.
        index: What is known of the files that they come from.
    """

    file: Path
    names: Sequence[str]
    starts: Indices
    shapes: Indices
    at_least: int | None
    index: "FileIndex"

    decoded = True

    def __len__(self) -> int:
        return len(self.shapes)

    def subset(self, keep: Indices) -> "CachedImages":
        """Keep some images only, in the order given; the file is shared."""
        return replace(
            self,
            names=Names(self.names).take(keep),
            starts=self.starts[keep],
            shapes=self.shapes[keep],
            index=self.index.subset(keep),
        )

    def digest(self) -> str:
        """Name the content of the files that the images come from, in their order."""
        return self.index.digest()

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image out of the file; it may be larger than what is needed."""
        check_size(at_least)
        if self.at_least is not None and (at_least is None or at_least > self.at_least):
            raise UserError(
                f"at_least must not be above {self.at_least}, got {at_least}: "
                "the images were decoded at that size, make another cache"
            )
        height, width = self.shapes[index]
        start = self.starts[index]
        return np.array(self._pixels[start : start + 3 * height * width].reshape(height, width, 3))

    @cached_property
    def _pixels(self) -> Pixels:
        return _map(self.file)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"} | {
            "index": None  # workers load pixels only
        }


def cache_images(
    images: ImageFiles,
    at_least: int | None,
    folder: Path,
    progress: Callable[[int], None] | None = None,
    verify: bool = False,
) -> CachedImages:
    """Decode all images into a file of the folder, or take the file where that was done before.

    Args:
        images: The files.
        at_least: Pixels at the shorter side that are kept; None keeps them all.
        folder: Where the caches are, such as :func:`cache_folder`.
        progress: Called with the number of images decoded so far; never if they all were.
        verify: Check every pixel of a file that is there, not only that it is whole.
    """
    from layline.data.index import index_images

    check_size(at_least)
    index = index_images(images) if images.index is None else images.index
    for place, why in index.faults.items():
        raise BadImageError(why, str(images.path(place)))
    images = replace(images, index=index)
    key = _key(images, at_least)
    file = Path(folder) / f"{key}.pixels"
    shapes = _read_shapes(file, key, len(images), verify)
    if shapes is None:
        shapes = _build(file, key, images, at_least, progress)
        with suppress(OSError):  # only the list of caches wants it
            about = {"root": str(images.root.resolve()), "samples": len(images)}
            write_json(file.with_suffix(".json"), about)
    with suppress(OSError):
        os.utime(file)  # the list of caches tells when each was used
    sizes = 3 * shapes.prod(axis=1)
    return CachedImages(file, images.names, np.cumsum(sizes) - sizes, shapes, at_least, index)


def _key(images: ImageFiles, at_least: int | None) -> str:
    about = f"format {CACHE_FORMAT}, Pillow {PILLOW}, {images.digest()} at least {at_least}"
    return hashlib.blake2b(about.encode(), digest_size=20).hexdigest()


def _build(
    file: Path,
    key: str,
    images: ImageFiles,
    at_least: int | None,
    progress: Callable[[int], None] | None,
) -> Indices:
    def pixels(index: int) -> Pixels:
        image = decode(images.path(index), at_least)
        return image if at_least is None else shrink(image, at_least)

    assert images.index is not None  # the file is named after it
    shapes = images.index.shapes.astype(np.int64)
    if at_least is not None:
        shapes = np.array([shrunk_shape(h, w, at_least) for h, w in shapes.tolist()])
    needed = int(3 * shapes.reshape(-1, 2).prod(axis=1).sum())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(file.parent).free < needed:
            raise OSError(ENOSPC, os.strerror(ENOSPC))  # before hours of decoding, not after
        with closing(thread_map(pixels, len(images))) as decoded:
            return _write(file, key, decoded, progress)
    except OSError as error:
        raise _unwritable(file.parent, needed, error) from error


def _unwritable(folder: Path, needed: int, error: OSError) -> OSError:
    full = error.errno in (ENOSPC, EDQUOT, EFBIG)
    rule = f"have room for {needed:,} bytes" if full else f"take a file of {needed:,} bytes"
    text = (os.strerror(error.errno) if error.errno else str(error)).lower()
    raised = OSError(
        f"folder must {rule}, got {folder}: {text}; make room, or set LAYLINE_CACHE to another"
    )
    raised.errno = error.errno
    return raised


def _write(
    file: Path, key: str, images: Iterable[Pixels], progress: Callable[[int], None] | None
) -> Indices:
    """Write the file, and give the heights and widths, (count, 2)."""
    _remove_abandoned(file.parent)
    rows = []
    # two processes may write the same cache: the last one in wins
    with atomic_write(file) as part, part.open("wb") as out:
        for image in images:
            out.write(image.data)
            rows.append((image.shape[0], image.shape[1], crc32(image.data)))
            if progress is not None:
                progress(len(rows))
        index = np.array(rows, dtype="<i8").reshape(-1, 3)
        out.write(index.tobytes() + _seal(key, index.tobytes()))
    return index[:, :2].astype(np.int64)


def _read_shapes(file: Path, key: str, count: int, verify: bool) -> Indices | None:
    """Read the heights and widths, (count, 2), and to verify them all pixels.

    Gives None if there is no such file, or one that is not as it was written.
    """
    try:
        pixels = _map(file)
    except (OSError, ValueError):  # numpy cannot map an empty file
        return None
    start = len(pixels) - count * _ROW - _SEAL
    if start < 0:
        return None
    index = pixels[start : len(pixels) - _SEAL].tobytes()
    if pixels[len(pixels) - _SEAL :].tobytes() != _seal(key, index):
        return None
    rows = np.frombuffer(index, dtype="<i8").reshape(count, 3).astype(np.int64)
    ends = np.cumsum(3 * rows[:, 0] * rows[:, 1])
    if (ends[-1] if count else 0) != start:
        return None
    if not verify:
        return rows[:, :2]

    def intact(i: int) -> bool:
        start = ends[i] - 3 * rows[i, 0] * rows[i, 1]
        return crc32(pixels[start : ends[i]].data) == int(rows[i, 2])

    with closing(thread_map(intact, count)) as checks:
        return rows[:, :2] if all(checks) else None


def _map(file: Path) -> Pixels:
    # for reading only: a private mapping for writing would be counted against the machine's memory
    return np.memmap(file, dtype=np.uint8, mode="r")


def _seal(key: str, index: bytes) -> bytes:
    return hashlib.blake2b(key.encode() + index, digest_size=_SEAL).digest()


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote."""
    for part in folder.glob("*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED:
                part.unlink()
