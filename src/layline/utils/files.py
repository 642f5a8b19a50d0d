"""The cache folder, and atomic writing of files and folders."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layline.utils.validation import UserError


def cache_folder() -> Path:
    """Return the folder for caches: ``$LAYLINE_CACHE``, or the system's usual place."""
    if own := os.environ.get("LAYLINE_CACHE"):
        return Path(own).expanduser()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "layline"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and replace ``path`` with it at the end.

    After an error, such as a full disk, the old file is unchanged and the temporary one is deleted.
    ``~`` is expanded, and missing folders are made.
    """
    path = path.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f".{path.name[:200]}.{secrets.token_hex(4)}.part"
    try:
        part.touch(exist_ok=False)
        yield part
        _flush(part)
        part.replace(path)
        _flush(path.parent)
    except OSError as error:
        raise write_error(error, path) from error
    finally:
        part.unlink(missing_ok=True)


def check_output(path: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raise an error if writing to a path would overwrite one of the files that are read."""
    place = Path(path).expanduser()
    for given in (Path(each).expanduser() for each in inputs):
        if place.exists() and given.exists() and place.samefile(given):
            raise UserError(f"The output {path} is also an input. Choose another path.")


def publish_folder(part: Path, place: Path) -> None:
    """Rename a complete folder to ``place``, which must not exist, after its files are on disk."""
    for file in part.iterdir():
        _flush(file)
    _flush(part)
    part.rename(place)
    _flush(place.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def json_text(values: Any, indent: int | None = None) -> str:
    """Convert values to JSON, with bytes of file names that are not UTF-8 as escapes."""
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write values as JSON, atomically."""
    write_text(path, json_text(values, indent=2) + "\n")


def _flush(path: Path) -> None:
    """Wait until a file or the entries of a folder are on disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_error(error: OSError, path: Path) -> OSError:
    """Return an error of the same class that names the file and says that it is unchanged."""
    why = error.strerror or str(error)
    return type(error)(error.errno, f"{why}; nothing was left half-written", str(path))


def digest_file(path: Path) -> str:
    """Hash the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
