"""Digests of files, computed once and kept: a file that the system describes as before is not read.

The folder of caches and what the system says of a file are here, since images, tables and extracted
features are all known by them.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from layline.data.array_cache import cache_folder
from layline.utils.files import atomic_write

DIGEST_BYTES = 16
Stamp = tuple[int, int, int, int]
_SETTLED = 2_000_000_000  # nanoseconds: the coarsest clock that a file system has
_KEPT = 1000  # files
_READ = frozenset(
    {".csv", ".tsv", ".txt", ".npz", ".xlsx", ".xls", ".ods", ".tar", ".gz", ".tgz", ".zip"}
)


def stamp_of(path: str | Path) -> Stamp:
    """Say what the system knows of a file; the size is negative if it cannot be found.

    Beside the size and the time of the last change these are the time that the entry changed, which
    tells a file whose time was set back, and the inode, which tells two files that changed places.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 – called for a million files
    except (OSError, ValueError):  # a name with a null in it
        return -1, 0, 0, 0
    inode = status.st_ino & (2**63 - 1)  # it may have 64 bits without a sign
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode


def is_settled(stamp: Stamp, now: int) -> bool:
    """Tell whether a file that looks like this at a time would look different after a change.

    A file that changed within the clock's last ticks may change again without a trace.
    """
    changed = stamp[1] if os.name == "nt" else stamp[2]  # there the other is that of its creation
    return stamp[0] < 0 or changed < now - _SETTLED


def digest_file(path: Path) -> str:
    """Name the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, blake2b).hexdigest()


def digest_files(place: Path, deep: bool, verify: bool = False) -> Iterator[tuple[str, str]]:
    """Give the name and the digest of a file, or of those in a folder that a source may read.

    Args:
        place: The file or folder.
        deep: Whether files of the folders in it count.
        verify: Read all of them again.
    """
    if place.is_dir():
        pattern = "**/*" if deep else "*"
        files = [f for f in place.glob(pattern) if f.suffix.lower() in _READ and f.is_file()]
        files = [f for f in files if not f.name.startswith(".")]
        named = sorted((f.relative_to(place).as_posix(), f) for f in files)
    else:
        named = [("", place)] if place.is_file() else []
    known = {} if verify else _read_known()
    stamps = {file: stamp_of(file) for _, file in named}
    new = {}
    for name, file in named:
        key = os.path.abspath(file)  # noqa: PTH100 – a link keeps its own name
        row = known.get(key)
        if row is None or row[:4] != list(stamps[file]):
            now = time.time_ns()
            row = [*stamps[file], digest_file(file)]
            if is_settled(stamps[file], now):
                new[key] = row
        yield name, str(row[4])
    if new:
        kept = list((known | new).items())[-_KEPT:]
        with suppress(OSError), atomic_write(_known_file()) as part:
            part.write_text(json.dumps(dict(kept)), encoding="utf-8")


def blake2b() -> "hashlib.blake2b":
    """Make the hash that files are known by."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def _known_file() -> Path:
    return cache_folder() / "digests.json"


def _read_known() -> dict[str, list[int | str]]:
    """Read what is known of files; nothing if that is damaged."""
    try:
        known = json.loads(_known_file().read_text(encoding="utf-8"))
        return {key: row for key, row in known.items() if len(row) == 5}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
