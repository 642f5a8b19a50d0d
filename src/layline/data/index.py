"""What is known of image files, so that a second start need not read them again.

An index is kept for each folder of images, beside the caches. It has a row for each file: its name
below the folder, what the system says of it (size, times of change, inode), a digest of its bytes,
the height and width of the image, why it cannot be decoded if so, and its perceptual hash. A file
that the system describes as before is not read: that costs a look at the list of files. A file that
changed within the clock's last ticks before it was read is read again, since a second change may
have left no trace.
"""

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from layline.data.array_cache import cache_folder
from layline.data.copies import HASH_BYTES, picture_hash
from layline.data.dataset import Images, Indices, Names
from layline.data.decoding import (
    PILLOW,
    check_size,
    examine,
    open_regular,
    thread_map,
    why_bad,
)
from layline.data.file_digests import (
    DIGEST_BYTES,
    Stamp,
    blake2b,
    is_settled,
    stamp_of,
)
from layline.data.images import ImageFiles
from layline.utils.files import atomic_write

INDEX_FORMAT = 1  # of the file, and of what a row means: another number reads all files again
SUFFIX = ".index"
_HASHED_AT = 64  # pixels at the shorter side that are decoded: enough for the perceptual hash
_IN_MEMORY = 1 << 28  # bytes: larger files are read twice instead
_STAMP = 4  # numbers that the system says of a file


@dataclass(frozen=True, eq=False)
class FileIndex:
    """What is known of some image files, a row for each.

    Attributes:
        digests: Of their bytes; zeros for one that cannot be read at all.
        hashes: Perceptual hashes, see :mod:`layline.data.copies`; zeros for a bad image.
        shapes: Height and width; zeros for a bad image.
        faults: Why images cannot be decoded, by their place.
        notes: What a user should know of the index, such as that it could not be kept.
    """

    digests: UInt8[np.ndarray, "n bytes"]
    hashes: UInt8[np.ndarray, "n bytes"]
    shapes: Int[np.ndarray, "n 2"]
    faults: dict[int, str]
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.digests)

    def subset(self, keep: Indices) -> "FileIndex":
        """Keep some rows only, in the order given."""
        keep = np.asarray(keep, dtype=np.int64)
        faults = {}
        if self.faults:
            rows = enumerate(keep.tolist())
            faults = {place: self.faults[row] for place, row in rows if row in self.faults}
        return FileIndex(self.digests[keep], self.hashes[keep], self.shapes[keep], faults)

    def digest(self) -> str:
        """Name the content of all files, in their order."""
        digest = hashlib.blake2b(f"{len(self)} files".encode(), digest_size=DIGEST_BYTES)
        digest.update(np.ascontiguousarray(self.digests).data)
        return digest.hexdigest()


def index_images(
    images: ImageFiles, progress: Callable[[int], None] | None = None, verify: bool = False
) -> FileIndex:
    """Say what is known of image files, after reading those that are new or changed.

    Args:
        images: The files.
        progress: Called with the number of files that are known so far; never if all were.
        verify: Read every file again, whatever is known.
    """
    names, root = Names(images.names), str(images.root.resolve())
    place = index_file(Path(root))
    stamps = _stamps(root, names)
    known = None if verify else _read(place)
    row_of = np.full(len(names), -1) if known is None else _rows_of(names, known.names)
    if known is not None:
        found = np.flatnonzero(row_of >= 0)
        changed = (known.stamps[row_of[found]] != stamps[found]).any(axis=1)
        row_of[found[changed]] = -1
    unknown = np.flatnonzero(row_of < 0)
    index = _Rows.empty(names, stamps)
    if known is not None:
        index.copy(known, np.flatnonzero(row_of >= 0), row_of[row_of >= 0])
    if len(unknown) == 0:
        with suppress(OSError):
            os.utime(place)  # the list of caches tells when each was used
        return index.about()
    _read_files(index, root, unknown, progress)
    note = _write(place, root, index, None if known is None else known.without(names, root))
    return index.about(note)


def index_file(root: Path) -> Path:
    """Name the file of the index of a folder of images."""
    name = hashlib.blake2b(os.fsencode(root.resolve()), digest_size=16).hexdigest()
    return cache_folder() / f"files-{name}{SUFFIX}"


@dataclass(frozen=True, eq=False)
class _Rows:
    """An index as it is kept."""

    names: Names
    stamps: Indices
    digests: UInt8[np.ndarray, "n bytes"]
    hashes: UInt8[np.ndarray, "n bytes"]
    shapes: Int[np.ndarray, "n 2"]
    faults: dict[int, str]

    @classmethod
    def empty(cls, names: Names, stamps: Indices) -> "_Rows":
        n = len(names)
        digests, hashes = (np.zeros((n, k), np.uint8) for k in (DIGEST_BYTES, HASH_BYTES))
        return cls(names, stamps, digests, hashes, np.zeros((n, 2), np.int32), {})

    def copy(self, other: "_Rows", places: Indices, rows: Indices) -> None:
        """Take rows over from another index."""
        for mine, theirs in (
            (self.digests, other.digests),
            (self.hashes, other.hashes),
            (self.shapes, other.shapes),
        ):
            mine[places] = theirs[rows]
        if other.faults:
            pairs = zip(places.tolist(), rows.tolist(), strict=True)
            self.faults.update({i: other.faults[row] for i, row in pairs if row in other.faults})

    def without(self, names: Names, root: str) -> "_Rows":
        """Give the rows of files that are still there, but under none of these names."""
        asked = set(names)
        rows = [
            row
            for row, name in enumerate(self.names)
            if name not in asked and stamp_of(Path(root, name))[0] >= 0
        ]
        keep = np.array(rows, dtype=np.int64)
        rest = _Rows.empty(self.names.take(keep), self.stamps[keep])
        rest.copy(self, np.arange(len(keep)), keep)
        return rest

    def about(self, *notes: str) -> FileIndex:
        faults = dict(sorted(self.faults.items()))
        told = tuple(note for note in notes if note)
        return FileIndex(self.digests, self.hashes, self.shapes, faults, told)


def _stamps(root: str, names: Iterable[str]) -> Indices:
    """Ask the system about each file: (n, 4)."""
    join = os.path.join  # a million objects of pathlib would take seconds
    rows = [stamp_of(join(root, name)) for name in names]
    return np.array(rows, dtype=np.int64).reshape(-1, _STAMP)


def _rows_of(names: Names, known: Names) -> Indices:
    """Find the row of each name, -1 where there is none."""
    if names == known:
        return np.arange(len(names))
    row = {name: place for place, name in enumerate(known)}
    return np.fromiter((row.get(name, -1) for name in names), dtype=np.int64, count=len(names))


def _read_files(
    index: _Rows, root: str, unknown: Indices, progress: Callable[[int], None] | None
) -> None:
    """Read files into their rows."""

    def look(number: int) -> tuple[Stamp, bytes, bytes, tuple[int, int], str]:
        path = Path(root, index.names[int(unknown[number])])
        now, stamp = time.time_ns(), stamp_of(path)
        if not is_settled(stamp, now):
            stamp = (stamp[0], -1, -1, -1)
        return stamp, *_look(path, stamp[0])

    before = len(index.names) - len(unknown)
    with closing(thread_map(look, len(unknown))) as looks:
        for number, (stamp, digest, picture, shape, fault) in enumerate(looks):
            row = int(unknown[number])
            index.stamps[row] = stamp
            index.digests[row] = np.frombuffer(digest, np.uint8)
            index.hashes[row] = np.frombuffer(picture, np.uint8)
            index.shapes[row] = shape
            if fault:
                index.faults[row] = fault
            if progress is not None:
                progress(before + number + 1)


def _look(path: Path, size: int) -> tuple[bytes, bytes, tuple[int, int], str]:
    """Read a file once: the digest of its bytes, the hash and shape of its image, its fault."""
    digest, picture, shape = bytes(DIGEST_BYTES), bytes(HASH_BYTES), (0, 0)
    try:
        with open_regular(path) as file:
            stream = BytesIO(file.read()) if size < _IN_MEMORY else file
            digest = hashlib.file_digest(stream, blake2b).digest()
            stream.seek(0)
            pixels, shape = examine(stream, _HASHED_AT)
            picture = picture_hash(pixels)
    except Exception as error:  # garbage makes Pillow raise almost anything
        return digest, bytes(HASH_BYTES), (0, 0), why_bad(error)
    return digest, picture, shape, ""


def _about() -> dict[str, object]:
    heic = find_spec("pillow_heif") is not None  # an image that it opens is bad without it
    return {"format": INDEX_FORMAT, "pillow": PILLOW, "heic": heic, "hash": HASH_BYTES}


def _write(place: Path, root: str, index: _Rows, rest: _Rows | None) -> str:
    """Keep the index; gives a note if that cannot be done, which harms nothing but the next start.

    Of several processes that write the same one the last wins.
    """
    both = [index, *([rest] if rest is not None and len(rest.names) else [])]
    names = Names(name for rows in both for name in rows.names) if len(both) > 1 else index.names
    text, ends = names.pack()
    faults = dict(index.faults)
    if len(both) > 1:
        faults |= {len(index.names) + row: why for row, why in both[1].faults.items()}
    about = json.dumps({**_about(), "root": root, "faults": faults}).encode()
    try:
        with atomic_write(place) as part, part.open("wb") as file:
            arrays: dict[str, Any] = {
                name: np.concatenate([getattr(rows, name) for rows in both])
                for name in ("stamps", "digests", "hashes", "shapes")
            }
            arrays |= {"about": np.frombuffer(about, np.uint8), "ends": ends}
            np.savez(file, text=np.frombuffer(text, np.uint8), **arrays)
    except OSError as error:
        return (
            f"What is known of the images could not be kept in {place.parent}: "
            f"{error.strerror or error}; the next start reads them all again"
        )
    return ""


def _read(place: Path) -> _Rows | None:
    """Read an index; None if there is none, or one that is damaged or of another format."""
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            if any(about.get(key) != value for key, value in _about().items()):
                return None
            names = Names.unpack(arrays["text"].tobytes(), arrays["ends"])
            stamps, digests = arrays["stamps"], arrays["digests"]
            hashes, shapes = arrays["hashes"], arrays["shapes"]
            faults = {int(row): str(why) for row, why in about["faults"].items()}
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        return None
    widths = {_STAMP: stamps, DIGEST_BYTES: digests, HASH_BYTES: hashes, 2: shapes}
    if any(array.shape != (len(names), width) for width, array in widths.items()):
        return None
    return _Rows(names, stamps, digests, hashes, shapes, faults)


def known_root(file: Path) -> tuple[str, int] | None:
    """Tell the folder that an index is of and how many files it knows; None for a damaged one."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            return str(about["root"]), len(arrays["ends"])
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        return None


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be read, and why, in a few words."""

    index: int
    name: str
    why: str


def find_bad(
    images: Images,
    at_least: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[BadImage]:
    """List the images that cannot be read, in their order.

    Every image is read, unless its files are known already, see :mod:`layline.data.images.index`.

    Args:
        images: What to read.
        at_least: The size to decode at. None decodes a JPEG at an eighth of its size: that still
            reads every byte, so it finds the same files.
        progress: Called with the number of images read so far.
    """
    check_size(at_least)
    known = images.index if isinstance(images, ImageFiles) else None
    if known is not None:
        return [BadImage(i, images.names[i], why) for i, why in known.faults.items()]

    def fault(index: int) -> str | None:
        try:
            images.load(index, at_least or 1)
        except Exception as error:  # garbage makes Pillow raise almost anything
            return why_bad(error)
        return None

    bad = []
    with closing(thread_map(fault, len(images))) as faults:
        for index, why in enumerate(faults):
            if why is not None:
                bad.append(BadImage(index, images.names[index], why))
            if progress is not None:
                progress(index + 1)
    return bad


def describe_bad(bad: Sequence[BadImage], limit: int = 20, cure: bool = True) -> str:
    """Tell a user which images cannot be read, ``limit`` of them, and how to go on."""
    if not bad:
        return "every image can be read"
    lines = [f"{len(bad)} image{'s' if len(bad) > 1 else ''} cannot be read:"]
    lines += [f"  {image.name}: {image.why}" for image in bad[:limit]]
    if len(bad) > limit:
        lines.append(f"  … and {len(bad) - limit} more")
    if cure:
        lines.append("Mend or remove them, or leave them out with --skip-bad")
    return "\n".join(lines)
