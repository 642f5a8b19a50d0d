"""Photographs in a folder per class, with or without train, validation and test above them."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.base import Dataset, KnownClasses, existing
from layline.data.labels import order_names, parse_names, ranks_of
from layline.data.recognition import user_folders
from layline.data.splits import PART_WORDS, RandomSplit, part_named

_TREE = "expected is root/<class>/<image>, or root/train/<class>/<image> with val and test beside"


def read_folder(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    calibration: float = 0.0,
) -> Dataset:
    """Read images whose folder is their class.

    Args:
        root: The folder of the class folders, or of train, val and test.
        partition: Seed of the split where none is ready-made.
        classes: The class folders from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        calibration: Share of the training samples to calibrate with.
    """
    from layline.data.images.files import ImageFiles, list_images

    root = existing(root)
    if not root.is_dir():
        raise ValueError(f"root must be a folder, got {root}: {_TREE}")
    splits = _split_folders(root, classes)
    class_names = {split: user_folders(root / split) for split in splits}
    ordered, note = _class_order(root, class_names, classes)
    files = [file.relative_to(root) for file in list_images(root)]
    depth = 1 if splits == [""] else 2
    class_folders = {(split, name)[-depth:] for split in splits for name in class_names[split]}
    images = [f for f in files if len(f.parts) > depth and f.parts[:depth] in class_folders]
    for empty in sorted(class_folders - {f.parts[:depth] for f in images}):
        raise ValueError(
            f"every class must have images, got none in {root.joinpath(*empty)}: "
            "add some, or remove the folder"
        )
    ranks = ranks_of([f.parts[depth - 1] for f in images], np.array(ordered))
    words = [f.parts[0] for f in images] if depth == 2 else None
    parts, notes = RandomSplit(validation, test, partition, calibration).partition(
        ranks, ordered, words
    )
    if len(files) > len(images):
        notes += (f"Outside the class folders {len(files) - len(images)} images were left out",)
    inputs = ImageFiles(root, [f.as_posix() for f in images])
    return Dataset(inputs, ranks, ordered, parts, (note, *notes))


def _split_folders(root: Path, classes: str | Sequence[Any] | None) -> list[str]:
    """Name the folders of a ready-made split; ``[""]``, the root itself, where there is none."""
    folders = user_folders(root)
    splits = [name for name in folders if name.casefold() in PART_WORDS]
    if not splits or (classes is not None and set(splits) <= {*parse_names("classes", classes)}):
        return [""]
    others = [name for name in folders if name not in splits]
    if others:
        raise ValueError(
            f"root must hold classes or splits, got the folders {', '.join(splits)} beside "
            f"{', '.join(others)}: move the others away, or list all of them in classes"
        )
    parts = [part_named(name) for name in splits]
    if len(set(parts)) < len(parts) or "train" not in parts:
        raise ValueError(
            f"root must hold one train folder and at most one val and test, got "
            f"{', '.join(splits)}: {_TREE}"
        )
    return sorted(splits, key=lambda name: part_named(name) != "train")  # errors compare with train


def _class_order(
    root: Path, class_names: dict[str, list[str]], classes: str | Sequence[Any] | None
) -> tuple[tuple[str, ...], str]:
    """Give the classes in order and the note on it, after a check that every split has them all."""
    if isinstance(classes, KnownClasses):  # a part may lack a class
        return order_names({*chain(*class_names.values())}, classes, "folder names")
    (first, names), *others = class_names.items()
    if len(names) < 2:
        got = f"one, {names[0]}" if names else "none"
        raise ValueError(
            f"{root / first} must hold a folder for each of two or more classes, got {got}: {_TREE}"
        )
    for split, folders in others:
        if unseen := [name for name in folders if name not in names]:
            raise ValueError(
                f"{split} must have classes of {first} only, got {', '.join(unseen)}: "
                "training would never see them"
            )
        if lacking := [name for name in names if name not in folders]:
            raise ValueError(
                f"{split} must have every class of {first}, got no folder {', '.join(lacking)}: "
                "add it, or use a csv file, where a part may lack a class"
            )
    ordered, note = order_names(names, classes, "folder names")
    if outside := [name for name in names if name not in ordered]:
        raise ValueError(
            f"folders must be among the classes {', '.join(ordered)}, got {', '.join(outside)}: "
            "add it to classes, or move it away"
        )
    return ordered, note
