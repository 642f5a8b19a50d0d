"""What the cache folder keeps about image files: an index, and decoded pixels if they are cached.

The index tells which files are new or changed, so a second start reads only those. Each folder has
an index in SQLite, with a :class:`FileRow` for each image. It is read and replaced as a whole, so
it also works on file systems without locks.
"""

import hashlib
import os
import sqlite3
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from layline.data.array_cache import ArrayCache, check_not_truncated
from layline.data.dataset import Dataset, Images, Indices, Pixels, format_lines
from layline.data.images import ImageFiles, examine, pillow_version, thread_map, why_bad
from layline.data.preprocessing import shrink, shrunk_shape
from layline.data.tables import Rows
from layline.utils.files import atomic_write, cache_folder
from layline.utils.validation import UserError

Progress = Callable[[int], None]  # called with the number of images that are done
_INDEX_FORMAT = 2
_CACHE_FORMAT = 3
_DECODED_AT = 64  # pixels of the shorter side
_COMMIT = 1000  # images
_HEADER = 8  # bytes of height and width
_blake2b = partial(hashlib.blake2b, digest_size=16)


class FileRow(NamedTuple):
    """What is known about an image file."""

    size: int
    mtime: int
    ctime: int  # reveals a file whose modification time was reset
    inode: int  # reveals two files that changed places
    digest: bytes = bytes(16)  # of the bytes
    height: int = 0
    width: int = 0
    fault: str = ""  # why the image cannot be decoded
    hash: bytes = b""  # perceptual; empty until it is needed


def index_files(
    dataset: Dataset, progress: Progress | None = None, verify: bool = False
) -> Dataset:
    """Look at the image files of a data set that are new or changed, or at all to verify them."""
    if not isinstance(dataset.inputs, ImageFiles):
        return dataset
    return replace(dataset, inputs=index_images(dataset.inputs, progress, verify))


def index_images(
    images: ImageFiles,
    progress: Progress | None = None,
    verify: bool = False,
    hashes: bool = False,
) -> ImageFiles:
    """Add to image files what is known about them, after reading those that are new or changed.

    Files that could not be read are tried again, and all of them with ``verify``.
    """
    root = images.root.resolve()
    about = f"\0{_INDEX_FORMAT}, Pillow {pillow_version()}"
    key = _blake2b(os.fsencode(root) + about.encode()).hexdigest()
    file, base = index_folder() / f"{key}.sqlite", str(root)
    known = {} if verify else _read(file)
    rows, unknown = {}, []
    for name in dict.fromkeys(images.names):
        row = known.get(os.fsencode(name))
        stamp = _stamp(os.path.join(base, name))  # noqa: PTH118 – pathlib is slow for many files
        if row and row[:4] == stamp and not row.fault and (row.hash or not hashes):
            rows[name] = row
        else:
            unknown.append(name)
    found = thread_map(lambda number: _look(root / unknown[number], hashes), len(unknown))
    for name, row in zip(unknown, found, strict=True):
        rows[name] = row
        if progress is not None:
            progress(len(rows))
    updated = known | {os.fsencode(name): rows[name] for name in unknown}
    if updated != known:
        _write(file, updated)
    else:
        with suppress(OSError):
            os.utime(file)  # the list of caches shows when an entry was used
    return replace(images, rows=tuple(rows[name] for name in images.names))


def _stamp(path: str | Path) -> tuple[int, int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):  # absent, or a name that contains a null
        return -1, 0, 0, 0
    inode = status.st_ino & (2**63 - 1)  # it may be unsigned
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode


def _look(path: Path, hashes: bool) -> FileRow:
    from layline.data.duplicates import hash_picture

    row = FileRow(*_stamp(path))
    try:
        with path.open("rb") as file:
            row = row._replace(digest=hashlib.file_digest(file, _blake2b).digest())
            file.seek(0)
            pixels, (height, width) = examine(file, _DECODED_AT)
    except Exception as error:
        return row._replace(fault=why_bad(error))
    hashed = hash_picture(pixels) if hashes else b""
    return row._replace(height=height, width=width, hash=hashed)


def index_folder() -> Path:
    """Return the folder of the index files."""
    return cache_folder() / "index"


def _read(file: Path) -> dict[bytes, FileRow]:
    """Read an index; one that is absent or damaged is empty."""
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(file.read_bytes())
            return {name: FileRow(*row) for name, *row in database.execute("SELECT * FROM files")}
    except (sqlite3.Error, OSError, TypeError, MemoryError):  # the last for an empty file
        return {}


def _write(file: Path, rows: dict[bytes, FileRow]) -> None:
    """Replace an index. The last of several processes wins."""
    columns, places = ", ".join(FileRow._fields), ", ".join("?" * (1 + len(FileRow._fields)))
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE files (name BLOB PRIMARY KEY, {columns}) WITHOUT ROWID")
        values = ((name, *row) for name, row in sorted(rows.items()))
        database.executemany(f"INSERT INTO files VALUES ({places})", values)
        database.commit()
        content = database.serialize()
    try:
        with atomic_write(file) as part:
            part.write_bytes(content)
    except OSError as error:
        warnings.warn(f"The index of the images could not be written: {error}", stacklevel=3)


def check_files(dataset: Dataset, skip_bad: bool = False) -> Dataset:
    """Refuse a data set with images that cannot be read, or drop them with a note."""
    if not (bad := find_bad(dataset.inputs)):
        return dataset
    described = describe_bad(dataset.inputs.names, bad)
    if not skip_bad:
        raise UserError(f"{described}\nRepair or remove them, or set data.skip_bad.")
    dataset = dataset.drop(bad)
    return replace(dataset, notes=(*dataset.notes, f"Not used: {described}"))


def find_bad(images: Images | Rows) -> dict[int, str]:
    """Return why images cannot be read, by their place. Those without an index are decoded."""
    if isinstance(images, ImageFiles) and images.rows is not None:
        return {place: row.fault for place, row in enumerate(images.rows) if row.fault}
    if not isinstance(images, Images) or images.decoded:
        return {}

    def find_fault(index: int) -> str:
        try:
            images.load(index, 1)  # a JPEG is read to its end at any size
        except Exception as error:  # Pillow raises almost anything for damaged files
            return why_bad(error)
        return ""

    faults = enumerate(thread_map(find_fault, len(images)))
    return {index: why for index, why in faults if why}


def describe_bad(names: Sequence[str], bad: Mapping[int, str]) -> str:
    """List images that cannot be read, the first twenty of them with the reason."""
    title = f"{len(bad)} image{'s' if len(bad) > 1 else ''} cannot be read:"
    return format_lines(title, [f"{names[place]}: {why}" for place, why in bad.items()])


@dataclass(frozen=True, eq=False)
class CachedImages(ImageFiles):
    """Image files that were decoded before; other processes open the cache themselves.

    All images are one array of bytes: the height and width of each, then its pixels. Names are not
    part of the key, so the data may be moved.
    """

    _: KW_ONLY
    key: str
    starts: Indices  # of each image
    pixels: Pixels | None = field(repr=False)  # None if it was removed

    decoded = True

    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given; the pixels are shared."""
        return replace(super().subset(keep), starts=self.starts[keep])

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image out of the cache, at the size that it was cached with."""
        if self.pixels is None:
            raise UserError("The cache of images was removed while it was in use.")
        check_not_truncated(self.pixels)
        start = int(self.starts[index]) + _HEADER
        height, width = np.frombuffer(self.pixels[start - _HEADER : start].tobytes(), np.int32)
        return np.array(self.pixels[start : start + 3 * height * width].reshape(height, width, 3))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pixels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"pixels": ArrayCache().open(state["key"])})


def cache_images(
    images: ImageFiles, at_least: int, progress: Progress = lambda done: None
) -> CachedImages:
    """Decode all images into the cache, or use the pixels that are there.

    Of the shorter side, ``at_least`` pixels are kept.
    """
    about = f"{_CACHE_FORMAT}, Pillow {pillow_version()}, {images.digest()}, {at_least}"
    key = f"pixels-{_blake2b(about.encode()).hexdigest()}"
    rows = images.indexed_rows()
    shapes = [shrunk_shape(row.height, row.width, at_least) for row in rows]
    # JPEGs are decoded at a fraction of their size, which is rounded up
    sizes = [_HEADER + 3 * (height + 2) * (width + 2) for height, width in shapes]
    starts = np.cumsum([0, *sizes])
    root, names, opened = images.root, images.names, ArrayCache().open(key)
    cached = CachedImages(root, names, rows, key=key, starts=starts[:-1], pixels=opened)
    if cached.pixels is not None:
        return cached
    recorded = {"root": str(root.resolve()), "samples": len(images)}
    writer = ArrayCache().writer(key, (int(starts[-1]),), np.uint8, recorded)
    first = int(np.searchsorted(starts, writer.done))  # a killed run continues

    def load(number: int) -> Pixels:
        return shrink(images.load(first + number, at_least), at_least)

    for place, image in enumerate(thread_map(load, len(images) - first), start=first):
        start, end = starts[place], starts[place + 1]
        content = np.array(image.shape[:2], dtype=np.int32).tobytes() + image.tobytes()
        if len(content) > end - start:
            raise UserError(f"{names[place]} changed while it was read.")
        writer.array[start : start + len(content)] = np.frombuffer(content, np.uint8)
        if (place + 1) % _COMMIT == 0 or place + 1 == len(images):
            writer.commit(int(end))
        progress(place + 1)
    return replace(cached, pixels=writer.array)
