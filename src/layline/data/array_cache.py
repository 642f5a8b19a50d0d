"""Large arrays in the cache folder: decoded pixels and extracted features.

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
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from layline.utils.errors import UserError
from layline.utils.files import write_json

DEFAULT_LIMIT = 20 * 10**9  # bytes
_STATE = {"shape", "dtype", "done", "id", "about"}


def cache_folder() -> Path:
    """Return the folder for caches: ``$LAYLINE_CACHE``, or the system's usual place."""
    if own := os.environ.get("LAYLINE_CACHE"):
        return Path(own).expanduser()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "layline"


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache.

    Attributes:
        key: Its name.
        size: Bytes on disk.
        used: When it was last opened, in seconds since the epoch.
        complete: Whether all rows are written.
        about: What the writer recorded about it.
    """

    key: str
    size: int
    used: float
    complete: bool
    about: dict[str, Any]


class ArrayCache:
    """Arrays on disk, up to a total size; the least recently used entries make room for new ones.

    Args:
        folder: Where the files are; created when needed.
        limit_bytes: The most bytes of all entries; ``$LAYLINE_CACHE_GB`` or 20 GB if not given.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self.folder = cache_folder() / "arrays" if folder is None else Path(folder)
        self.limit_bytes = _default_limit() if limit_bytes is None else limit_bytes

    def open(self, key: str) -> NDArray[Any] | None:
        """Map an entry for reading; None if it is absent, incomplete or damaged.

        Call :func:`check_not_truncated` before each read.
        """
        state = _read_state(self._state_file(key))
        if state is None or state["done"] < state["shape"][0]:
            return None
        array = _map(self._file(key), state, "r")
        if array is not None:
            with suppress(OSError):
                os.utime(self._state_file(key))
        return array

    def writer(
        self, key: str, shape: tuple[int, ...], dtype: DTypeLike, about: dict[str, Any]
    ) -> "Writer":
        """Create an entry, or continue one that is not finished.

        Args:
            key: The name of the entry.
            shape: The shape of the whole array.
            dtype: Its type.
            about: What to record about it, for the list of caches.

        Raises:
            OSError: The array does not fit into the limit or onto the disk. Work without a cache.
        """
        file, state_file = self._file(key), self._state_file(key)
        wanted = {"shape": list(shape), "dtype": np.dtype(dtype).str}
        state = _read_state(state_file)
        if state is not None and wanted == {name: state[name] for name in wanted}:
            is_whole = _map(file, state, "r") is not None  # "r+" would extend a truncated file
            array = _map(file, state, "r+") if is_whole else None
            if array is not None:
                return Writer(state_file, array, state)
        self.remove(key)
        self._make_room(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        state = {**wanted, "done": 0, "id": uuid.uuid4().hex, "about": about}
        try:
            array = np.lib.format.open_memmap(file, mode="w+", dtype=np.dtype(dtype), shape=shape)
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
            state = _read_state(file.with_suffix(".json"))
            with suppress(OSError):  # removed by another process
                size = file.stat().st_size
                if state is None:
                    entries.append(CacheEntry(file.stem, size, 0.0, False, {}))
                    continue
                used = file.with_suffix(".json").stat().st_mtime
                complete = state["done"] >= state["shape"][0]
                entries.append(CacheEntry(file.stem, size, used, complete, state["about"]))
        return sorted(entries, key=lambda entry: entry.used)

    def remove(self, key: str) -> None:
        """Delete an entry. Processes that have it open can still read it."""
        self._state_file(key).unlink(missing_ok=True)
        self._file(key).unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        """Delete the least recently used entries until an array fits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        entries = self.entries() if needed <= self.limit_bytes else []
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if total + needed > self.limit_bytes:
                self.remove(entry.key)
                total -= entry.size
        free = shutil.disk_usage(self.folder).free
        if needed > min(free, self.limit_bytes):
            why = "disk has" if needed > free else "cache may use"
            raise OSError(
                ENOSPC,
                f"{needed / 1e9:.3g} GB are needed, and the {why} "
                f"{min(free, self.limit_bytes) / 1e9:.3g} GB. Make room, or set LAYLINE_CACHE to "
                "another folder or LAYLINE_CACHE_GB to another limit",
                str(self.folder),
            )

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npy"

    def _state_file(self, key: str) -> Path:
        return self.folder / f"{key}.json"


class Writer:
    """An entry that is being written.

    Attributes:
        array: The array to fill, mapped to the file.
        done: Rows at the beginning that are already written.
    """

    def __init__(self, state_file: Path, array: NDArray[Any], state: dict[str, Any]) -> None:
        self.array = array
        self.done: int = state["done"]
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

    def finish(self) -> NDArray[Any]:
        """Mark all rows as written, and return the array."""
        self.commit(len(self.array))
        return self.array


def check_not_truncated(array: NDArray[Any]) -> None:
    """Raise an error if the file of a mapped array became shorter: reading it would be a crash."""
    mapped: Any = array
    while mapped is not None and not isinstance(mapped, mmap.mmap):
        mapped = mapped.base if isinstance(mapped, np.ndarray) else None
    if mapped is not None and mapped.size() < len(mapped):
        raise UserError("A cache file was truncated while it was in use. Start the command again.")


def _default_limit() -> int:
    try:
        return int(float(os.environ.get("LAYLINE_CACHE_GB") or DEFAULT_LIMIT / 1e9) * 1e9)
    except (ValueError, OverflowError):
        raise UserError("LAYLINE_CACHE_GB must be a number of gigabytes.") from None


def _read_state(file: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and state.keys() >= _STATE and state["shape"] else None


def _map(file: Path, state: dict[str, Any], mode: Any) -> NDArray[Any] | None:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # absent, or shorter than its header says
        return None
    same = list(array.shape) == state["shape"] and array.dtype.str == state["dtype"]
    return array if same else None
