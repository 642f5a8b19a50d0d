"""Adience: faces in eight age groups, with the official five folds (Levi and Hassner, 2015).

Train, validation and test are what the official lists say, line by line. In them no folder, and so
no person, is both in test and elsewhere; validation is drawn at random from the training folds, so
the same people are in both, and a few images even are. Notes say how many.
"""

from pathlib import Path

import numpy as np

from layline.arguments import check_boolean
from layline.data.base import Dataset, Partition
from layline.data.sources.adience_lists import Line, read_lists

_AGES = ("0-2", "4-6", "8-13", "15-20", "25-32", "38-43", "48-53", "60+")


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
    from layline.data.images.files import ImageFiles

    check_boolean("distinct", distinct)
    root = Path(root)
    place = root if lists is None else Path(str(lists)).expanduser()
    if not place.exists():
        raise FileNotFoundError(f"lists must exist, got {place}: check the path")
    parts = read_lists(place, partition)
    _check_subjects(parts)
    notes = _describe(parts)
    if distinct:
        parts = _without_repeats(parts)
        notes = (*notes, "Every image was taken once: not line by line as published.")
    lines = [line for part in parts.values() for line in part]
    ends = np.cumsum([len(part) for part in parts.values()])
    return Dataset(
        inputs=ImageFiles(_find_images(root), [line.path for line in lines]),
        ranks=np.array([line.rank for line in lines], dtype=np.int64),
        classes=_AGES,
        partition=Partition(*np.split(np.arange(len(lines)), ends[:-1])),
        notes=notes,
    )


def _find_images(root: Path) -> Path:
    tries = [root / "aligned", *([root] if root.name == "aligned" else [])]
    for place in [*tries, *sorted(root.glob("*/aligned"))]:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"root must hold the folder aligned, got {root}: unpack aligned.tar.gz there"
    )


def _check_subjects(parts: dict[str, list[Line]]) -> None:
    """Refuse lists in which somebody of the test fold is seen before."""
    test = {line.folder for line in parts["test"]}
    for name in ("train", "validation"):
        shared = sorted(test & {line.folder for line in parts[name]})
        if shared:
            raise ValueError(
                f"the lists must keep people apart, got {len(shared)} folders both in {name} and "
                f"in test, such as {shared[0]}: take the official lists"
            )


def _describe(parts: dict[str, list[Line]]) -> tuple[str, ...]:
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


def _without_repeats(parts: dict[str, list[Line]]) -> dict[str, list[Line]]:
    held_out = {line.path for line in parts["validation"]}
    train = [line for line in parts["train"] if line.path not in held_out]
    return {
        name: list({line.path: line for line in part}.values())
        for name, part in {**parts, "train": train}.items()
    }
