"""Photographs in a folder per class, with or without train, validation and test above them."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.dataset import Dataset, Drawing, KnownClasses, existing
from layline.data.detect import user_folders
from layline.data.groups import describe_groups, groups_by, suggest_pattern
from layline.data.labels import order_names, parse_names
from layline.data.splits import PART_WORDS, RandomSplit, part_named
from layline.utils.errors import UserError

_TREE = "expected is root/<class>/<image>, or root/train/<class>/<image> with val and test beside"


def read_folder(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    calibration: float = 0.0,
    group_by: str | None = None,
) -> Dataset:
    """Read images whose folder is their class.

    Args:
        root: The folder of the class folders, or of train, val and test.
        partition: Seed of the split where none is ready-made.
        classes: The class folders from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        calibration: Share of the training samples to calibrate with.
        group_by: A regular expression that finds in the path of an image what must stay in one
            part, such as a patient: its first group, or else the whole match.
    """
    from layline.data.images import ImageFiles, describe_skipped, list_names

    root = existing(root)
    if not root.is_dir():
        raise UserError(f"root must be a folder, got {root}: {_TREE}")
    splits = _split_folders(root, classes)
    class_names = {split: user_folders(root / split) for split in splits}
    ordered, note = _class_order(root, class_names, classes)
    passed_over: list[str] = []
    files = list_names(root, passed_over)
    depth = 1 if splits == [""] else 2
    class_folders = {
        f"{split}/{name}" if split else name for split in splits for name in class_names[split]
    }
    folders = ["/".join(name.split("/", depth)[:depth]) for name in files]
    keep = [i for i, folder in enumerate(folders) if folder in class_folders]
    names = [files[i] for i in keep]
    skipped = [
        root / name
        for name in passed_over
        if "/".join(name.split("/", depth)[:depth]) in class_folders
    ]
    for empty in sorted(class_folders - {folders[i] for i in keep}):
        raise UserError(_why_empty(root / empty, skipped))
    rank_of = {name: rank for rank, name in enumerate(ordered)}
    ranks = np.fromiter(
        (rank_of[folders[i].rpartition("/")[2]] for i in keep), dtype=np.int64, count=len(keep)
    )
    words = [folders[i].partition("/")[0] for i in keep] if depth == 2 else None
    groups = None if group_by is None else groups_by(group_by, names)
    draw = partial(
        RandomSplit(validation, test, partition, calibration).partition,
        ranks,
        ordered,
        words,
        groups,
    )
    parts, notes = draw()
    drawing = Drawing(draw, notes)
    notes += describe_groups(groups, "images") if groups else suggest_pattern(names)
    if len(files) > len(names):
        notes += (f"Outside the class folders {len(files) - len(names)} images were left out",)
    if skipped:
        notes += (describe_skipped(skipped),)
    inputs = ImageFiles(root, names)
    notes = (note, *notes)
    return Dataset(inputs, ranks, ordered, parts, notes, groups=groups, drawing=drawing)


def _why_empty(folder: Path, skipped: Sequence[Path]) -> str:
    """Say that a class folder has no images, and what it has instead."""
    from layline.data.images import count_suffixes, how_to_read

    there = [file for file in skipped if file.is_relative_to(folder)]
    cure = "add some, or remove the folder"
    if there:
        noun = "file" if len(there) == 1 else "files"
        cure = f"it has {count_suffixes(there)} {noun}; {how_to_read(there) or cure}"
    return f"every class must have images, got none in {folder}: {cure}"


def _split_folders(root: Path, classes: str | Sequence[Any] | None) -> list[str]:
    """Name the folders of a ready-made split; ``[""]``, the root itself, where there is none."""
    folders = user_folders(root)
    splits = [name for name in folders if name.casefold() in PART_WORDS]
    if not splits or (classes is not None and set(splits) <= {*parse_names("classes", classes)}):
        return [""]
    others = [name for name in folders if name not in splits]
    if others:
        raise UserError(
            f"root must hold classes or splits, got the folders {', '.join(splits)} beside "
            f"{', '.join(others)}: move the others away, or list all of them in classes"
        )
    parts = [part_named(name) for name in splits]
    if len(set(parts)) < len(parts) or "train" not in parts:
        raise UserError(
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
        raise UserError(
            f"{root / first} must hold a folder for each of two or more classes, got {got}: {_TREE}"
        )
    for split, folders in others:
        if unseen := [name for name in folders if name not in names]:
            raise UserError(
                f"{split} must have classes of {first} only, got {', '.join(unseen)}: "
                "training would never see them"
            )
        if lacking := [name for name in names if name not in folders]:
            raise UserError(
                f"{split} must have every class of {first}, got no folder {', '.join(lacking)}: "
                "add it, or use a csv file, where a part may lack a class"
            )
    ordered, note = order_names(names, classes, "folder names")
    if outside := [name for name in names if name not in ordered]:
        raise UserError(
            f"folders must be among the classes {', '.join(ordered)}, got {', '.join(outside)}: "
            "add it to classes, or move it away"
        )
    return ordered, note
