"""Large arrays in the cache folder: decoded images and extracted features.

An entry is a NumPy file ``KEY.npy`` and a JSON file ``KEY.json`` that records how many rows are
written. The key must contain everything that the values depend on. A killed run continues after the
last :meth:`Writer.commit`.
"""

import json
import mmap
import os
import shutil
import uuid
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from layline.utils.files import cache_folder, write_json
from layline.utils.validation import UserError

Mapped = np.memmap[Any, Any]
_LIMIT_GB = 20


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

    def open(self, key: str) -> Mapped | None:
        """Map an entry for reading; None if it is absent, incomplete or damaged.

        Call :func:`check_not_truncated` before each read.
        """
        array, state = self._load(key)
        if array is None or state["done"] < len(array):
            return None
        with suppress(OSError):
            os.utime(self._files(key)[0])  # its last use
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
        array, state = self._load(key)
        if array is not None and (array.shape, array.dtype) == (shape, dtype):
            return Writer(self, key, np.load(file, mmap_mode="r+"), state)
        self.remove(key)
        self._make_room(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        state = {"done": 0, "id": uuid.uuid4().hex, "about": about}
        try:
            array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=shape)
            if hasattr(os, "posix_fallocate"):  # a full disk is an error now, not a crash later
                with file.open("r+b") as stream:
                    os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
            write_json(state_file, state)
        except OSError:
            self.remove(key)
            raise
        return Writer(self, key, array, state)

    def entries(self) -> list[CacheEntry]:
        """List the entries, the least recently used first."""
        entries = []
        for file in self.folder.glob("*.npy"):
            array, state = self._load(file.stem)
            finished = array is not None and state["done"] >= len(array)
            kind = file.stem.partition("-")[0] if finished else "unfinished"
            about = state.get("about", {})
            own = about.get("samples"), about.get("root", "")
            with suppress(OSError):  # removed by another process
                status = file.stat()
                entry = CacheEntry(file.stem, kind, status.st_size, status.st_mtime, *own)
                entries.append(entry)
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

    def _load(self, key: str) -> tuple[Mapped | None, dict[str, Any]]:
        """Map an entry and read its state; None if one is absent, or shorter than its header."""
        file, state_file = self._files(key)
        try:
            state: dict[str, Any] = json.loads(state_file.read_text(encoding="utf-8"))
            return np.load(file, mmap_mode="r"), state
        except (OSError, ValueError, EOFError):
            return None, {}


class Writer:
    """An entry that is being written."""

    def __init__(self, cache: ArrayCache, key: str, array: Mapped, state: dict[str, Any]) -> None:
        self.array: NDArray[Any] = array  # to be filled
        self.done: int = state["done"]  # rows at the beginning that are already written
        self._flush = array.flush
        self._cache, self._key, self._state = cache, key, state

    def commit(self, rows_done: int) -> None:
        """Put the rows up to ``rows_done`` on the disk, so that a killed run continues there."""
        self._flush()
        self.done = rows_done
        current = self._cache._load(self._key)[1]
        if current.get("id") == self._state["id"]:  # it was not removed
            done = max(rows_done, current["done"])
            write_json(self._cache._files(self._key)[1], {**self._state, "done": done})


def check_not_truncated(array: object) -> None:
    """Raise an error if the file of a mapped array became shorter: reading it would be a crash."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    if isinstance(mapped, mmap.mmap) and mapped.size() < len(mapped):
        raise UserError("A cache file was truncated while it was in use. Start the command again.")
