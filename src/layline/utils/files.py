"""Atomic writing: a file or folder is complete or not there, also after a crash."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layline.utils.errors import UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and put it in the place of ``path`` at the end.

    A reader sees the old file or the new one. After an error, a full disk among them, the old one
    is still there and the temporary one is gone.

    Args:
        path: The file to make or to replace; its folder is made if needed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        _flush(part)
        part.chmod(0o666 & ~_umask())  # mkstemp keeps it private
        part.replace(path)
        _flush(path.parent)
    except OSError as error:
        raise write_error(error, path) from error
    finally:
        part.unlink(missing_ok=True)


def check_output(path: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raise an error if writing to a path would overwrite an input.

    Args:
        path: The file or folder to write.
        inputs: Files and folders that are read.
    """
    place = Path(path).expanduser().resolve()
    for each in inputs:
        if place == (given := Path(each).expanduser().resolve()) or (
            place.exists() and given.exists() and place.samefile(given)
        ):
            raise UserError(f"The output {path} is also an input. Choose another path.")


def publish_folder(part: Path, place: Path) -> None:
    """Give a filled folder its name, once all of it is on the disk.

    Args:
        part: The folder as it was filled.
        place: Its name from now on; a folder that exists cannot be replaced in one step.
    """
    for file in part.iterdir():
        _flush(file)
    _flush(part)
    part.rename(place)
    _flush(place.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole, in UTF-8."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def json_text(values: Any, indent: int | None = None) -> str:
    r"""Give values as JSON that can be encoded, whatever the names in it.

    The name of a file may hold a byte that is no UTF-8. Python has 0xff as the character U+DCFF,
    and only the escape ``\udcff`` can stand for it. ``os.fsencode`` of what a program reads back
    gives the bytes of the name.
    """
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write values as JSON, as a whole."""
    write_text(path, json_text(values, indent=2) + "\n")


def _flush(path: Path) -> None:
    """Wait until a file or the entries of a folder are on the disk.

    Windows cannot open a folder, and wants a file to be writable for it.
    """
    is_windows = os.name == "nt"
    if is_windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_error(error: OSError, path: Path) -> OSError:
    """Say of an error in writing which file it hit, and that nothing half-written is left.

    It stays of the same class, so that a caller can still tell a full disk from a missing right.
    """
    why = error.strerror or str(error)
    return type(error)(error.errno, f"{why}; nothing was left half-written", str(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
