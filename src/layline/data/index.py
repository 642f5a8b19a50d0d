"""An index of files in SQLite, so that a second start reads only files that are new or changed.

Each folder has an index file in the cache folder, with a row for each file: its size, times of
change and inode, a digest of its bytes, and for images the height and width, why it cannot be
decoded if so, and a perceptual hash once that was needed. An index file is replaced as a whole and
opened without locks, so it also works on file systems that have none.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import quote

import numpy as np
from jaxtyping import Int

from layline.data.array_cache import cache_folder
from layline.data.dataset import Dataset, Images, Indices
from layline.utils.errors import UserError
from layline.utils.files import atomic_write

if TYPE_CHECKING:
    from layline.data.images import ImageFiles

Stamp = tuple[int, int, int, int]
Progress = Callable[[int], None] | None
_DIGEST_BYTES = 16
_FORMAT = 1
_SETTLED = 2_000_000_000  # nanoseconds: the coarsest clock of a file system
_DECODED_AT = 64  # pixels of the shorter side
_BLANK = b"blank"  # instead of a perceptual hash
_IN_MEMORY = 1 << 28  # bytes; larger files are read twice instead
_READABLE = frozenset({".csv", ".tsv", ".txt", ".npz", ".xlsx", ".xlsm", ".tar", ".gz", ".tgz"})


class _Row(NamedTuple):
    size: int
    mtime: int
    ctime: int
    inode: int
    digest: bytes
    height: int = 0
    width: int = 0
    fault: str = ""
    hash: bytes = b""


@dataclass(frozen=True, eq=False)
class FileIndex:
    """What is known about some image files.

    Attributes:
        digests: A digest of the bytes of each file; zeros if it cannot be read.
        shapes: Height and width; zeros for a bad image.
        faults: Why images cannot be decoded, by their place.
        hashes: Perceptual hashes; empty where none was computed.
        notes: What a user should know about the index.
    """

    digests: tuple[bytes, ...]
    shapes: Int[np.ndarray, "n 2"]
    faults: dict[int, str]
    hashes: tuple[bytes, ...]
    notes: tuple[str, ...] = ()

    def subset(self, keep: Indices) -> "FileIndex":
        """Select rows, in the order given."""
        rows = [int(row) for row in keep]
        faults = {i: self.faults[row] for i, row in enumerate(rows) if row in self.faults}
        digests, hashes = (tuple(each[row] for row in rows) for each in (self.digests, self.hashes))
        return FileIndex(digests, self.shapes[rows], faults, hashes)

    def digest(self) -> str:
        """Hash the content of all files, in their order."""
        digest = hashlib.blake2b(f"{len(self.digests)} files".encode(), digest_size=_DIGEST_BYTES)
        digest.update(b"".join(self.digests))
        return digest.hexdigest()


def index_files(dataset: Dataset, progress: Progress = None, verify: bool = False) -> Dataset:
    """Look at the image files of a data set that are new or changed; other inputs stay as they are.

    Args:
        dataset: As :func:`layline.data.read` returns it.
        progress: Called with the number of files that are known so far, if some are new.
        verify: Read every file again.
    """
    from layline.data.images import ImageFiles

    images = dataset.inputs
    if not isinstance(images, ImageFiles):
        return dataset
    index = index_images(images, progress, verify)
    notes = (*dataset.notes, *index.notes)
    return replace(dataset, inputs=replace(images, index=index), notes=notes)


def check_files(dataset: Dataset, skip_bad: bool = False) -> Dataset:
    """Refuse a data set with images that cannot be read, or drop them with a note."""
    if not isinstance(dataset.inputs, Images) or dataset.inputs.decoded:
        return dataset
    bad = find_bad(dataset.inputs)
    if bad and not skip_bad:
        raise UserError(f"{describe_bad(bad)}\nRepair or remove them, or set data.skip_bad.")
    if not bad:
        return dataset
    dataset = dataset.drop(each.index for each in bad)
    return replace(dataset, notes=(*dataset.notes, f"Not used: {describe_bad(bad)}"))


def index_images(
    images: "ImageFiles", progress: Progress = None, verify: bool = False, hashes: bool = False
) -> FileIndex:
    """Return what is known about image files, after reading those that are new or changed.

    Args:
        images: The files.
        progress: Called with the number of files that are known so far, if some are new.
        verify: Read every file again.
        hashes: Compute perceptual hashes.
    """
    from layline.data.decoding import PILLOW, examine, why_bad
    from layline.data.duplicates import hash_picture

    def look(stream: BinaryIO, row: _Row) -> _Row:
        try:
            pixels, (height, width) = examine(stream, _DECODED_AT)
        except Exception as error:  # Pillow raises almost anything for damaged files
            return row._replace(fault=why_bad(error))
        hashed = (hash_picture(pixels) or _BLANK) if hashes else b""
        return row._replace(height=height, width=width, hash=hashed)

    heif = find_spec("pillow_heif") is not None  # without it such images cannot be decoded
    rows, note = _update(
        images.root.resolve(),
        images.names,
        look,
        f"{_FORMAT}, Pillow {PILLOW}, HEIF {heif}",
        progress,
        verify,
        lambda row: not hashes or bool(row.hash or row.fault),
    )
    shapes = np.array([(row.height, row.width) for row in rows], dtype=np.int64).reshape(-1, 2)
    faults = {place: row.fault for place, row in enumerate(rows) if row.fault}
    digests, hashed = tuple(row.digest for row in rows), tuple(row.hash for row in rows)
    return FileIndex(digests, shapes, faults, hashed, (note,) if note else ())


def digest_files(place: Path, deep: bool, verify: bool = False) -> list[tuple[str, str]]:
    """Return the names and digests of a file, or of the files in a folder that a source may read.

    Args:
        place: The file or folder.
        deep: Whether to include subfolders.
        verify: Read every file again.
    """
    is_file, root = place.is_file(), place.parent if place.is_file() else place
    files = [place] if is_file else sorted(root.glob("**/*" if deep else "*"))
    names = [
        file.relative_to(root).as_posix()
        for file in files
        if is_file
        or (file.suffix.lower() in _READABLE and file.is_file() and not file.name.startswith("."))
    ]
    rows, _ = _update(root.resolve(), names, lambda _, row: row, f"{_FORMAT}, bytes", None, verify)
    pairs = zip(names, rows, strict=True)
    return [("" if is_file else name, row.digest.hex()) for name, row in pairs]


def digest_file(path: Path) -> str:
    """Hash the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _blake2b).hexdigest()


def index_file(root: Path, version: str = "") -> Path:
    """Return the path of the index of a folder."""
    key = os.fsencode(root.resolve()) + b"\0" + version.encode()
    return cache_folder() / "index" / f"{hashlib.blake2b(key, digest_size=16).hexdigest()}.sqlite"


def known_root(file: Path) -> tuple[str, int] | None:
    """Return the folder that an index is of and its number of files; None for a damaged one."""
    try:
        with closing(_open(file, "immutable=1")) as database:
            (root,) = database.execute("SELECT value FROM about WHERE key = 'root'").fetchone()
            (count,) = database.execute("SELECT count(*) FROM files").fetchone()
            return os.fsdecode(root), int(count)
    except (sqlite3.Error, OSError, TypeError):
        return None


def stamp_of(path: str | Path) -> Stamp:
    """Return size, times of change and inode of a file; the size is negative if it is absent.

    The time of the last change of the entry reveals a file whose modification time was reset, and
    the inode two files that changed places.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 – called for many files
    except (OSError, ValueError):  # a name that contains a null
        return -1, 0, 0, 0
    inode = status.st_ino & (2**63 - 1)  # it may be unsigned
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode


def is_settled(stamp: Stamp, now: int) -> bool:
    """Check that a later change of a file would change its stamp: the clock of disks is coarse."""
    changed = stamp[1] if os.name == "nt" else stamp[2]
    return stamp[0] < 0 or changed < now - _SETTLED


def _blake2b() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


def _update(
    root: Path,
    names: Sequence[str],
    look: Callable[[BinaryIO, _Row], _Row],
    version: str,
    progress: Progress = None,
    verify: bool = False,
    complete: Callable[[_Row], bool] = lambda row: True,
) -> tuple[list[_Row], str]:
    """Return the row of each file and a note; only files that are not known are read."""
    from layline.data.decoding import thread_map

    file, base = index_file(root, version), str(root)
    known = {} if verify else _read(file)
    stamps = {name: stamp_of(os.path.join(base, name)) for name in names}  # noqa: PTH118
    rows = {}
    for name, stamp in stamps.items():
        row = known.get(os.fsencode(name))
        if row is not None and row[:4] == stamp and complete(row):
            rows[name] = row
    unknown = [name for name in stamps if name not in rows]
    if not unknown:
        with suppress(OSError):
            os.utime(file)  # the list of caches shows when an entry was used
        return [rows[name] for name in names], ""
    before = len(rows)
    with closing(thread_map(lambda i: _look(root / unknown[i], look), len(unknown))) as found:
        for number, row in enumerate(found):
            rows[unknown[number]] = row
            if progress is not None:
                progress(before + number + 1)
    known |= {os.fsencode(name): rows[name] for name in unknown}
    return [rows[name] for name in names], _write(file, root, known)


def _look(path: Path, look: Callable[[BinaryIO, _Row], _Row]) -> _Row:
    from layline.data.decoding import open_regular, why_bad

    now, stamp = time.time_ns(), stamp_of(path)
    if not is_settled(stamp, now):
        stamp = (stamp[0], -1, -1, -1)  # so that it is read again
    try:
        with open_regular(path) as file:
            stream = BytesIO(file.read()) if stamp[0] < _IN_MEMORY else file
            row = _Row(*stamp, hashlib.file_digest(stream, _blake2b).digest())
            stream.seek(0)
            return look(stream, row)
    except Exception as error:
        return _Row(*stamp, bytes(_DIGEST_BYTES), fault=why_bad(error))


def _open(file: Path, option: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(os.fsencode(file))}?{option}", uri=True)


def _read(file: Path) -> dict[bytes, _Row]:
    """Read an index; one that is absent or damaged is empty."""
    if not file.is_file():
        return {}
    try:
        with closing(_open(file, "immutable=1")) as database:
            return {name: _Row(*row) for name, *row in database.execute("SELECT * FROM files")}
    except (sqlite3.Error, OSError, TypeError):
        return {}


def _write(file: Path, root: Path, rows: dict[bytes, _Row]) -> str:
    """Replace an index; returns a note if that fails. The last of several processes wins."""
    try:
        with atomic_write(file) as part, closing(_open(part, "nolock=1")) as database:
            database.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
                "CREATE TABLE about (key TEXT, value BLOB);"
                "CREATE TABLE files (name BLOB PRIMARY KEY, size INT, mtime INT, ctime INT,"
                " inode INT, digest BLOB, height INT, width INT, fault TEXT, hash BLOB)"
                " WITHOUT ROWID"
            )
            database.execute("INSERT INTO about VALUES ('root', ?)", (os.fsencode(root),))
            database.executemany(
                f"INSERT INTO files VALUES ({', '.join('?' * 10)})",
                ((name, *row) for name, row in sorted(rows.items())),
            )
            database.commit()
    except (sqlite3.Error, OSError) as error:
        return (
            f"The index of the files could not be written to {file.parent} ({error}). The next "
            "start reads all files again."
        )
    return ""


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be read, and a short reason."""

    index: int
    name: str
    why: str


def find_bad(images: Images, progress: Progress = None) -> list[BadImage]:
    """List the images that cannot be read. Those without an index are decoded.

    Args:
        images: The images.
        progress: Called with the number of images decoded so far.
    """
    from layline.data.decoding import thread_map, why_bad

    known = getattr(images, "index", None)
    if isinstance(known, FileIndex):
        return [BadImage(i, images.names[i], why) for i, why in known.faults.items()]

    def find_fault(index: int) -> str | None:
        try:
            images.load(index, 1)  # a JPEG is read to its end at any size
        except Exception as error:  # Pillow raises almost anything for damaged files
            return why_bad(error)
        return None

    bad = []
    with closing(thread_map(find_fault, len(images))) as faults:
        for index, why in enumerate(faults):
            if why is not None:
                bad.append(BadImage(index, images.names[index], why))
            if progress is not None:
                progress(index + 1)
    return bad


def describe_bad(bad: Iterable[BadImage], limit: int = 20) -> str:
    """List images that cannot be read, at most ``limit`` of them."""
    bad = list(bad)
    lines = [f"{len(bad)} image{'s' if len(bad) > 1 else ''} cannot be read:"]
    lines += [f"  {image.name}: {image.why}" for image in bad[:limit]]
    if len(bad) > limit:
        lines.append(f"  … and {len(bad) - limit} more")
    return "\n".join(lines)
