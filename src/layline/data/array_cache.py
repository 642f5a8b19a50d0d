"""Large arrays in the cache folder: decoded images and extracted features.

An entry is a NumPy file ``KEY.npy`` and a JSON file ``KEY.json`` that records how many rows are
written. The key must contain everything that the values depend on. A killed run continues after the
last :meth:`Writer.commit`.

All images of a data set are one array of bytes: the height and width of each, then its pixels.
Names are not part of the key, so the data may be moved.
"""

import hashlib
import json
import mmap
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from layline.data.dataset import Indices, Pixels
from layline.data.preprocessing import shrink, shrunk_shape
from layline.utils.errors import UserError
from layline.utils.files import cache_folder, write_json

if TYPE_CHECKING:
    from layline.data.images import ImageFiles

_LIMIT_GB = 20
_IMAGE_FORMAT = 3
_COMMIT = 1000  # images
_HEADER = 8  # bytes of height and width


class CacheEntry(NamedTuple):
    """An entry, for the list of caches."""

    name: str
    kind: str
    bytes: int
    used: float  # seconds since 1970
    samples: int | None = None
    root: str = ""  # where the data are


class ArrayCache:
    """Arrays on disk, up to a total size; the least recently used entries make room for new ones.

    The limit is ``$LAYLINE_CACHE_GB`` or 20 GB if it is not given.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self.folder = cache_folder() / "arrays" if folder is None else folder
        if limit_bytes is None:
            try:
                limit_bytes = int(float(os.environ.get("LAYLINE_CACHE_GB") or _LIMIT_GB) * 1e9)
            except (ValueError, OverflowError):
                raise UserError("LAYLINE_CACHE_GB must be a number of gigabytes.") from None
        self.limit_bytes = limit_bytes

    def open(self, key: str) -> NDArray[Any] | None:
        """Map an entry for reading; None if it is absent, incomplete or damaged.

        Call :func:`check_not_truncated` before each read.
        """
        file, state_file = self._files(key)
        state, array = _read_state(state_file), _map(file)
        if state is None or array is None or state["done"] < len(array):
            return None
        with suppress(OSError):
            os.utime(state_file)  # its last use
        return array

    def writer(
        self, key: str, shape: tuple[int, ...], dtype: DTypeLike, about: dict[str, Any]
    ) -> "Writer":
        """Create an entry, or continue one that is not finished; ``about`` is for its list.

        Raises:
            OSError: The array does not fit into the limit or onto the disk. Work without a cache.
        """
        file, state_file = self._files(key)
        dtype = np.dtype(dtype)
        state, array = _read_state(state_file), _map(file)
        if state is not None and array is not None and (array.shape, array.dtype) == (shape, dtype):
            return Writer(state_file, np.load(file, mmap_mode="r+"), state)
        self.remove(key)
        self._make_room(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        state = {"rows": shape[0], "done": 0, "id": uuid.uuid4().hex, "about": about}
        try:
            array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=shape)
            if hasattr(os, "posix_fallocate"):  # a full disk is an error now, not a crash later
                with file.open("r+b") as stream:
                    os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
            write_json(state_file, state)
        except OSError:
            self.remove(key)
            raise
        return Writer(state_file, array, state)

    def entries(self) -> list[CacheEntry]:
        """List the entries, the least recently used first."""
        entries = []
        for file in self.folder.glob("*.npy"):
            state_file = file.with_suffix(".json")
            state = _read_state(state_file) or {"rows": 1, "done": 0, "about": {}}
            kind = file.stem.partition("-")[0] if state["done"] >= state["rows"] else "unfinished"
            about = (state["about"].get("samples"), state["about"].get("root", ""))
            with suppress(OSError):  # removed by another process
                used = (state_file if state_file.exists() else file).stat().st_mtime
                entries.append(CacheEntry(file.stem, kind, file.stat().st_size, used, *about))
        return sorted(entries, key=lambda entry: entry.used)

    def remove(self, key: str) -> None:
        """Delete an entry. Processes that have it open can still read it."""
        for file in self._files(key):
            file.unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        """Delete the least recently used entries until an array fits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        entries = self.entries() if needed <= self.limit_bytes else []
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total + needed > self.limit_bytes:
                self.remove(entry.name)
                total -= entry.bytes
        free = min(shutil.disk_usage(self.folder).free, self.limit_bytes)
        if needed > free:
            raise OSError(
                ENOSPC,
                f"{needed / 1e9:.3g} GB are needed, {free / 1e9:.3g} GB are available. Make room, "
                "or set LAYLINE_CACHE to another folder or LAYLINE_CACHE_GB to another limit",
                str(self.folder),
            )

    def _files(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.npy", self.folder / f"{key}.json"


class Writer:
    """An entry that is being written."""

    def __init__(self, state_file: Path, array: NDArray[Any], state: dict[str, Any]) -> None:
        self.array = array  # to be filled; it is mapped to the file
        self.done: int = state["done"]  # rows at the beginning that are already written
        self._state_file, self._state = state_file, state

    def commit(self, rows_done: int) -> None:
        """Put the rows up to ``rows_done`` on the disk, so that a killed run continues there."""
        if isinstance(self.array, np.memmap):
            self.array.flush()
        current = _read_state(self._state_file)
        if current is not None and current["id"] == self._state["id"]:  # it was not removed
            self._state["done"] = max(rows_done, current["done"])
            write_json(self._state_file, self._state)
        self.done = rows_done


def check_not_truncated(array: object) -> None:
    """Raise an error if the file of a mapped array became shorter: reading it would be a crash."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    if isinstance(mapped, mmap.mmap) and mapped.size() < len(mapped):
        raise UserError("A cache file was truncated while it was in use. Start the command again.")


def _read_state(file: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state


def _map(file: Path) -> NDArray[Any] | None:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError):  # absent, or shorter than its header says
        return None
    return array


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Image files that were decoded before; other processes open the cache themselves."""

    files: "ImageFiles"
    key: str
    starts: Indices  # where each image starts in the array
    pixels: Pixels | None = field(repr=False)

    decoded = True

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def names(self) -> Sequence[str]:
        """The names of the files."""
        return self.files.names

    def subset(self, keep: Indices) -> "CachedImages":
        """Select images, in the order given; the pixels are shared."""
        return replace(self, files=self.files.subset(keep), starts=self.starts[keep])

    def digest(self) -> str:
        """Hash the content of the files in their order."""
        return self.files.digest()

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
    images: "ImageFiles", at_least: int, progress: Callable[[int], None] = lambda done: None
) -> CachedImages:
    """Decode all images into the cache, or use the pixels that are there.

    Of the shorter side, ``at_least`` pixels are kept. ``progress`` is called with the number of
    images decoded so far, but not if all are there.
    """
    from layline.data.images import PILLOW, thread_map  # needs Pillow
    from layline.data.index import index_images

    images = images if images.rows is not None else index_images(images)
    about = f"{_IMAGE_FORMAT}, Pillow {PILLOW}, {images.digest()}, {at_least}"
    key = f"pixels-{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}"
    shapes = [shrunk_shape(row.height, row.width, at_least) for row in images.rows or ()]
    # JPEGs are decoded at a fraction of their size, which is rounded up
    sizes = [_HEADER + 3 * (height + 2) * (width + 2) for height, width in shapes]
    starts = np.cumsum([0, *sizes])
    cached = CachedImages(images, key, starts[:-1], ArrayCache().open(key))
    if cached.pixels is not None:
        return cached
    recorded = {"root": str(images.root.resolve()), "samples": len(images)}
    writer = ArrayCache().writer(key, (int(starts[-1]),), np.uint8, recorded)
    first = int(np.searchsorted(starts, writer.done))  # a killed run continues

    def load(number: int) -> Pixels:
        return shrink(images.load(first + number, at_least), at_least)

    for place, image in enumerate(thread_map(load, len(images) - first), start=first):
        start, end = starts[place], starts[place + 1]
        content = np.array(image.shape[:2], dtype=np.int32).tobytes() + image.tobytes()
        if len(content) > end - start:
            raise UserError(f"{images.names[place]} changed while it was read.")
        writer.array[start : start + len(content)] = np.frombuffer(content, np.uint8)
        if (place + 1) % _COMMIT == 0 or place + 1 == len(images):
            writer.commit(int(end))
        progress(place + 1)
    return replace(cached, pixels=writer.array)
