"""The official lists of Adience: for each fold three text files, ``folder/file label`` per line."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_PARTS = {"train": "train", "validation": "val", "test": "test"}
_NUM_CLASSES = 8


@dataclass(frozen=True)
class Line:
    """One line of a list.

    Attributes:
        path: The image, below the folder of the aligned faces.
        rank: The age group.
    """

    path: str
    rank: int

    @property
    def folder(self) -> str:
        """The album that the image lies in: nobody is in two of them."""
        return self.path.rpartition("/")[0]


def read_lists(place: Path, fold: int) -> dict[str, list[Line]]:
    """Read the lists of one fold, by the name of the part.

    Args:
        place: A folder with ``test_fold_is_0`` … in it or below it, or a tar archive of them.
        fold: Which one is the test fold.
    """
    wanted = {f"test_fold_is_{fold}/age_{file}.txt": part for part, file in _PARTS.items()}
    found = dict(_in_archive(place, wanted) if place.is_file() else _in_folder(place, wanted))
    absent = [name for name, part in wanted.items() if part not in found]
    if absent:
        raise FileNotFoundError(
            f"lists must hold {absent[0]}, got {place}: put the official lists there, or give "
            "their folder or archive as lists"
        )
    return {part: _parse(*found[part]) for part in _PARTS}


def _in_folder(place: Path, wanted: dict[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Find the lists, the nearest ones first; gives the part, the file's name and its text."""
    for name, part in wanted.items():
        for depth in range(3):
            path = next(iter(sorted(place.glob("*/" * depth + name))), None)
            if path is not None:
                yield part, (str(path), path.read_text(encoding="utf-8", errors="replace"))
                break


def _in_archive(place: Path, wanted: dict[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                part = wanted.get("/".join(PurePosixPath(member.name).parts[-2:]))
                stream = archive.extractfile(member) if part is not None else None
                if part is not None and stream is not None:
                    text = stream.read().decode("utf-8", errors="replace")
                    yield part, (f"{place}:{member.name}", text)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(
            f"lists must be a folder or an intact tar archive, got {place} ({error})"
        ) from error


def _parse(file: str, text: str) -> list[Line]:
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        path, label = ["", *line.rsplit(maxsplit=1)][-2:]
        parts = PurePosixPath(path.strip()).parts
        if len(parts) < 2 or ".." in parts or parts[0] == "/":
            raise ValueError(
                f"line {number} of {file} must be folder/file and a label, got {line!r}"
            )
        if label not in map(str, range(_NUM_CLASSES)):
            raise ValueError(
                f"the label in line {number} of {file} must be in 0…{_NUM_CLASSES - 1}, "
                f"got {label!r}"
            )
        lines.append(Line("/".join(parts), int(label)))
    return lines
