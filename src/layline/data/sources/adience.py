"""Adience: faces in eight age groups, with the official five folds (Levi and Hassner, 2015).

Train, validation and test are what the official lists say, line by line: for each fold three text
files with ``folder/file label`` per line. In them no folder, and so no person, is both in test and
elsewhere; validation is drawn at random from the training folds, so the same people are in both,
and a few images even are. Notes say how many.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from layline.data.dataset import Dataset, Splits
from layline.utils.errors import UserError
from layline.utils.validation import check_boolean

_AGES = ("0-2", "4-6", "8-13", "15-20", "25-32", "38-43", "48-53", "60+")
_LISTS = {"train": "train", "validation": "val", "test": "test"}  # part, and word in a file's name


@dataclass(frozen=True)
class _Line:
    path: str  # below the folder of the aligned faces
    rank: int

    @property
    def folder(self) -> str:
        """The album that the image lies in: nobody is in two of them."""
        return self.path.rpartition("/")[0]


def read_adience(
    root: Path, *, partition: int = 0, lists: str | Path | None = None, distinct: bool = False
) -> Dataset:
    """Read one fold of the official lists.

    Args:
        root: The folder that holds ``aligned/``.
        partition: Which fold is the test fold.
        lists: Where the official lists are, a folder or a tar archive; below the root if not given.
        distinct: Take every image once: lines that repeat an image are dropped, and what is in
            validation is dropped from training.
    """
    from layline.data.images import ImageFiles

    check_boolean("distinct", distinct)
    root = Path(root)
    place = root if lists is None else Path(str(lists)).expanduser()
    if not place.exists():
        raise FileNotFoundError(f"lists must exist, got {place}: check the path")
    parts = _read_lists(place, partition)
    _check_subjects(parts)
    notes = _describe(parts)
    if distinct:
        parts = _distinct(parts)
        notes = (*notes, "Every image was taken once: not line by line as published.")
    lines = [line for part in parts.values() for line in part]
    ends = np.cumsum([len(part) for part in parts.values()])
    return Dataset(
        inputs=ImageFiles(_find_images(root), [line.path for line in lines]),
        ranks=np.array([line.rank for line in lines], dtype=np.int64),
        classes=_AGES,
        splits=Splits(*np.split(np.arange(len(lines)), ends[:-1])),
        notes=notes,
        groups=tuple(line.folder for line in lines),
    )


def _find_images(root: Path) -> Path:
    tries = [root / "aligned", *([root] if root.name == "aligned" else [])]
    for place in [*tries, *sorted(root.glob("*/aligned"))]:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"root must hold the folder aligned, got {root}: unpack aligned.tar.gz there"
    )


def _check_subjects(parts: dict[str, list[_Line]]) -> None:
    """Refuse lists in which somebody of the test fold is seen before."""
    test = {line.folder for line in parts["test"]}
    for name in ("train", "validation"):
        shared = sorted(test & {line.folder for line in parts[name]})
        if shared:
            raise UserError(
                f"the lists must keep people apart, got {len(shared)} folders both in {name} and "
                f"in test, such as {shared[0]}: take the official lists"
            )


def _describe(parts: dict[str, list[_Line]]) -> tuple[str, ...]:
    """Say what the lists share and repeat."""
    train, validation = parts["train"], parts["validation"]
    folders = {line.folder for line in validation}
    shared = folders & {line.folder for line in train}
    notes = []
    if shared:
        twice = {line.path for line in validation} & {line.path for line in train}
        notes.append(
            f"{len(shared)} of the {len(folders)} folders of validation are in training too, and "
            f"{len(twice)} images are in both lists; none is in test."
        )
    repeated = {name: len(part) - len({line.path for line in part}) for name, part in parts.items()}
    if any(repeated.values()):
        shown = ", ".join(f"{count} of {name}" for name, count in repeated.items())
        notes.append(f"Lines that repeat an image of their list: {shown}.")
    return tuple(notes)


def _distinct(parts: dict[str, list[_Line]]) -> dict[str, list[_Line]]:
    held_out = {line.path for line in parts["validation"]}
    train = [line for line in parts["train"] if line.path not in held_out]
    return {
        name: list({line.path: line for line in part}.values())
        for name, part in {**parts, "train": train}.items()
    }


def _read_lists(place: Path, fold: int) -> dict[str, list[_Line]]:
    """Read the lists of a fold by part, from a folder that they are in or below, or a tar file."""
    wanted = {f"test_fold_is_{fold}/age_{file}.txt": part for part, file in _LISTS.items()}
    found = dict(_in_archive(place, wanted) if place.is_file() else _in_folder(place, wanted))
    absent = [name for name, part in wanted.items() if part not in found]
    if absent:
        raise FileNotFoundError(
            f"lists must hold {absent[0]}, got {place}: put the official lists there, or give "
            "their folder or archive as lists"
        )
    return {part: _parse(*found[part]) for part in _LISTS}


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
        raise UserError(
            f"lists must be a folder or an intact tar archive, got {place} ({error})"
        ) from error


def _parse(file: str, text: str) -> list[_Line]:
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        path, label = ["", *line.rsplit(maxsplit=1)][-2:]
        parts = PurePosixPath(path.strip()).parts
        if len(parts) < 2 or ".." in parts or parts[0] == "/":
            raise UserError(
                f"line {number} of {file} must be folder/file and a label, got {line!r}"
            )
        if label not in map(str, range(len(_AGES))):
            raise UserError(
                f"the label in line {number} of {file} must be in 0…{len(_AGES) - 1}, got {label!r}"
            )
        lines.append(_Line("/".join(parts), int(label)))
    return lines
