"""Images in a folder per class, with or without train, validation and test folders above them."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.dataset import SHARES, Dataset, KnownClasses, require_path
from layline.data.detect import user_folders
from layline.data.groups import describe_groups, find_groups, suggest_pattern
from layline.data.labels import order_names, parse_names
from layline.data.splits import SPLIT_WORDS, assign_splits, split_named
from layline.utils.errors import UserError

_TREE = "Expected root/<class>/<image>, or root/train/<class>/<image> with val and test."


def read_folder(
    root: str | Path,
    *,
    classes: str | Sequence[Any] | None = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
    group_by: str | None = None,
) -> Dataset:
    """Read images whose folder is their class.

    Args:
        root: The folder of the class folders, or of train, val and test.
        classes: The class folders from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples for validation, if it is drawn.
        test: Share of the samples for testing, if it is drawn.
        group_by: A regular expression that finds the group of an image in its path, such as a
            patient: its first group, or else the whole match. A group stays in one split.
    """
    from layline.data.images import ImageFiles, describe_skipped, list_images

    root = require_path(root)
    if not root.is_dir():
        raise UserError(f"{root} is not a folder. {_TREE}")
    split_folders = _split_folders(root, classes)
    class_names = {split: user_folders(root / split) for split in split_folders}
    ordered, note = _order_classes(root, class_names, classes)
    skipped: list[str] = []
    files = list_images(root, skipped)
    depth = 1 if split_folders == [""] else 2
    class_folders = {
        f"{split}/{name}".lstrip("/") for split, c in class_names.items() for name in c
    }
    names = [name for name in files if _parent(name, depth) in class_folders]
    folders = [_parent(name, depth) for name in names]
    skipped = [name for name in skipped if _parent(name, depth) in class_folders]
    for empty in sorted(class_folders - {*folders}):
        there = [name for name in skipped if _parent(name, depth) == empty]
        why = f" {describe_skipped(there)}" if there else ""
        raise UserError(f"The class folder {root / empty} has no images.{why}")
    rank_of = {name: rank for rank, name in enumerate(ordered)}
    ranks = np.array([rank_of[folder.rpartition("/")[2]] for folder in folders], dtype=np.int64)
    words = [folder.partition("/")[0] for folder in folders] if depth == 2 else None
    groups = None if group_by is None else find_groups(group_by, names)
    notes = [note, *(describe_groups(groups) if groups else suggest_pattern(names))]
    if len(files) > len(names):
        notes.append(f"{len(files) - len(names)} images outside the class folders are not used.")
    if skipped:
        notes.append(describe_skipped(skipped))
    return Dataset(
        ImageFiles(root, names),
        ranks,
        ordered,
        assign_splits(words, ranks, ordered, groups),
        tuple(notes),
        groups=groups,
        shares={"validation": validation, "test": test},
    )


def _parent(name: str, depth: int) -> str:
    """Return the first folders of a path."""
    return "/".join(name.split("/", depth)[:depth])


def _split_folders(root: Path, classes: str | Sequence[Any] | None) -> list[str]:
    """List the folders of a prescribed split; ``[""]``, the root itself, if there is none."""
    folders = user_folders(root)
    splits = [name for name in folders if name.casefold() in SPLIT_WORDS]
    if not splits or (classes is not None and {*splits} <= {*parse_names("classes", classes)}):
        return [""]
    others = [name for name in folders if name not in splits]
    if others:
        raise UserError(
            f"{root} has folders of splits ({', '.join(splits)}) and others ({', '.join(others)}). "
            "Move the others away, or list all of them as classes."
        )
    meant = [split_named(name) for name in splits]
    if len(set(meant)) < len(meant) or "train" not in meant:
        raise UserError(
            f"{root} has the folders {', '.join(splits)}; it must have one for training, and at "
            f"most one for each other split. {_TREE}"
        )
    return sorted(splits, key=lambda name: split_named(name) != "train")


def _order_classes(
    root: Path, class_names: dict[str, list[str]], classes: str | Sequence[Any] | None
) -> tuple[tuple[str, ...], str]:
    """Return the classes in order and a note; every split must have the same classes."""
    if isinstance(classes, KnownClasses):  # a split may lack a class
        return order_names({*chain(*class_names.values())}, classes, "folder names")
    (first, names), *others = class_names.items()
    if len(names) < 2:
        found = f"one class folder, {names[0]}" if names else "no class folders"
        raise UserError(f"{root / first} has {found}; at least two are needed. {_TREE}")
    for split, folders in others:
        if unseen := [name for name in folders if name not in names]:
            raise UserError(f"{split} has classes that {first} does not have: {', '.join(unseen)}.")
        if lacking := [name for name in names if name not in folders]:
            raise UserError(f"{split} has no folder for the classes {', '.join(lacking)}.")
    ordered, note = order_names(names, classes, "folder names")
    if outside := [name for name in names if name not in ordered]:
        raise UserError(f"classes does not list the folders {', '.join(outside)}.")
    return ordered, note
