"""The file of decoded images: all pixels, then the index, then its seal.

The index has a row for each image: height, width and the checksum of its pixels. The seal is a
digest of the index and of the key that the file is named after. A file that was cut off has no
valid seal, and pixels that changed do not fit their checksum.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from zlib import crc32

import numpy as np

from layline.data.base import Indices, Pixels
from layline.data.images.threads import in_order

_ROW = 3 * 8  # three numbers of eight bytes
_SEAL = 32
_ABANDONED = 24 * 3600.0  # seconds without a write


def write(file: Path, key: str, images: Iterable[Pixels]) -> Indices:
    """Write the images under another name, and give the file its own when all of it is on disk.

    Gives the heights and widths, (count, 2).
    """
    _remove_abandoned(file.parent)
    # a name of its own: two processes may write the same cache, and the last one in wins
    part = file.with_name(f"{file.stem}-{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as out:
            rows = []
            for image in images:
                out.write(image.data)
                rows.append((image.shape[0], image.shape[1], crc32(image.data)))
            index = np.array(rows, dtype="<i8").reshape(-1, 3)
            out.write(index.tobytes() + _seal(key, index.tobytes()))
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    return index[:, :2].astype(np.int64)


def read_shapes(file: Path, key: str, count: int, workers: int | None = None) -> Indices | None:
    """Read the heights and widths, (count, 2).

    Gives None if there is no such file or anything in it is not as it was written: all of it is
    read for that.
    """
    try:
        pixels = mapped(file)
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

    def whole(i: int) -> bool:
        start = ends[i] - 3 * rows[i, 0] * rows[i, 1]
        return crc32(pixels[start : ends[i]].data) == int(rows[i, 2])

    with closing(in_order(whole, count, workers)) as checks:
        return rows[:, :2] if all(checks) else None


def mapped(file: Path) -> Pixels:
    """Map a file into memory, for reading only.

    A writable private mapping would be counted against the memory of the machine, and refused for
    a file that is larger.
    """
    return np.memmap(file, dtype=np.uint8, mode="r")


def _seal(key: str, index: bytes) -> bytes:
    return hashlib.blake2b(key.encode() + index, digest_size=_SEAL).digest()


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote."""
    for part in folder.glob("*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED:
                part.unlink()
