"""Adience: faces in eight age groups, with the official five folds (Levi and Hassner, 2015).

Train, validation and test are those of the official lists: for each fold three text files with
``folder/file label`` per line. No folder, and so no person, is both in test and elsewhere;
validation is drawn at random from the training folds, so it shares people, and a few images, with
training. Notes give the numbers.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from layline.data.dataset import Dataset, Splits, require_path
from layline.utils.errors import UserError

_AGES = ("0-2", "4-6", "8-13", "15-20", "25-32", "38-43", "48-53", "60+")
_LISTS = {"train": "train", "validation": "val", "test": "test"}  # split, and word in a file name


class _Line(NamedTuple):
    path: str  # from the folder of the aligned faces
    rank: int

    @property
    def folder(self) -> str:
        """The album of the image: nobody is in two of them."""
        return self.path.rpartition("/")[0]


_Lists = dict[str, list[_Line]]


def read_adience(root: Path, *, partition: int = 0, lists: str | Path | None = None) -> Dataset:
    """Read one fold of the official lists.

    Args:
        root: The folder that contains ``aligned/``.
        partition: The test fold.
        lists: The official lists, a folder or a tar archive; below the root if not given.
    """
    from layline.data.images import ImageFiles

    splits = _read_lists(require_path(root if lists is None else lists), partition)
    test = {line.folder for line in splits["test"]}
    for name in ("train", "validation"):
        if shared := sorted(test & {line.folder for line in splits[name]}):
            raise UserError(
                f"{len(shared)} folders are both in {name} and in test, such as {shared[0]}. Use "
                "the official lists."
            )
    lines = [line for split in splits.values() for line in split]
    ends = np.cumsum([len(split) for split in splits.values()])
    return Dataset(
        inputs=ImageFiles(_find_images(Path(root)), [line.path for line in lines]),
        ranks=np.array([line.rank for line in lines], dtype=np.int64),
        classes=_AGES,
        splits=Splits(*np.split(np.arange(len(lines)), ends[:-1])),
        notes=_describe(splits),
        groups=tuple(line.folder for line in lines),
    )


def _find_images(root: Path) -> Path:
    own = [root] if root.name == "aligned" else []
    for place in [root / "aligned", *own, *sorted(root.glob("*/aligned"))]:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"{root} has no folder 'aligned'. Unpack aligned.tar.gz there.")


def _describe(splits: _Lists) -> tuple[str, ...]:
    train, validation = splits["train"], splits["validation"]
    folders = {line.folder for line in validation}
    shared = folders & {line.folder for line in train}
    notes = []
    if shared:
        twice = {line.path for line in validation} & {line.path for line in train}
        notes.append(
            f"{len(shared)} of the {len(folders)} folders of validation are also in training, and "
            f"{len(twice)} images are in both lists; none is in test."
        )
    repeated = {name: len(each) - len({x.path for x in each}) for name, each in splits.items()}
    if any(repeated.values()):
        shown = ", ".join(f"{count} in {name}" for name, count in repeated.items())
        notes.append(f"Lines that repeat an image: {shown}.")
    return tuple(notes)


def _read_lists(place: Path, fold: int) -> _Lists:
    """Read the lists of a fold, from a folder that they are in or below, or a tar file."""
    wanted = {f"test_fold_is_{fold}/age_{file}.txt": split for split, file in _LISTS.items()}
    texts = dict(_read_archive(place, wanted) if place.is_file() else _read_folder(place, wanted))
    absent = [name for name, split in wanted.items() if split not in texts]
    if absent:
        raise FileNotFoundError(
            f"{place} does not contain {absent[0]}. Set lists to the folder or archive of the "
            "official lists."
        )
    return {split: _parse(*texts[split]) for split in _LISTS}


def _read_folder(place: Path, wanted: dict[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the split, the name and the text of each list, the nearest one of each."""
    for name, split in wanted.items():
        found = (path for depth in range(3) for path in sorted(place.glob("*/" * depth + name)))
        if (path := next(found, None)) is not None:
            yield split, (str(path), path.read_text(encoding="utf-8", errors="replace"))


def _read_archive(place: Path, wanted: dict[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                split = wanted.get("/".join(PurePosixPath(member.name).parts[-2:]))
                stream = archive.extractfile(member) if split is not None else None
                if split is not None and stream is not None:
                    text = stream.read().decode("utf-8", errors="replace")
                    yield split, (f"{place}:{member.name}", text)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{place} is neither a folder nor an intact archive ({error}).") from error


def _parse(file: str, text: str) -> list[_Line]:
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        path, label = ["", *line.rsplit(maxsplit=1)][-2:]
        parts = PurePosixPath(path.strip()).parts
        if len(parts) < 2 or ".." in parts or parts[0] == "/":
            raise UserError(f"Line {number} of {file} is not folder/file and a label: {line!r}.")
        if label not in map(str, range(len(_AGES))):
            raise UserError(f"The label in line {number} of {file} must be in 0…{len(_AGES) - 1}.")
        lines.append(_Line("/".join(parts), int(label)))
    return lines
