"""The user's own data: images in class folders, a list of images, a table, or an npz file.

Options that several of these sources have:

- ``classes``: the classes from the lowest to the highest, as a list or ``"a,b,c"``;
- ``validation`` and ``test``: shares of the samples, for splits that are drawn;
- ``label``, ``split`` and ``group``: the columns of the label, of train, val or test, and of what
  must stay in one split, such as a patient; the last two may be absent;
- ``group_by``: a regular expression that finds the group in the path of an image: its first group,
  or else the whole match;
- ``sheet``: the sheet of a workbook, if not the first.
"""

import posixpath
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.dataset import SHARES, Dataset, KnownClasses, find_file, format_list
from layline.data.detect import (
    describe_skipped,
    find_images,
    image_column,
    image_folder,
    label_column,
    list_images,
    suggest_group_columns,
    suggest_group_pattern,
    user_folders,
)
from layline.data.images import ImageArrays, ImageFiles
from layline.data.labels import Array, parse_names, rank_labels
from layline.data.splits import SPLIT_WORDS, assign_splits, find_groups
from layline.data.tables import UnencodedRows, read_table_file
from layline.utils.validation import UserError, check_known

Classes = str | Sequence[Any] | None
_TREE = "Expected root/<class>/<image>, or root/train/<class>/<image> with val and test."
_ARRAYS = "Expected arrays: train_images, train_labels, val_images, … , or images and labels."


def read_folder(
    root: Path,
    *,
    classes: Classes = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
    group_by: str | None = None,
) -> Dataset:
    """Read images whose folder is their class, below folders of the splits if there are any."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder. {_TREE}")
    above: list[tuple[str, ...]] = [(name,) for name in _split_folders(root, classes)] or [()]
    folders = {(*path, name) for path in above for name in user_folders(root.joinpath(*path))}
    depth = len(above[0]) + 1
    listed, skipped = list_images(root)
    folder_of = {name: tuple(name.split("/")[:depth]) for name in (*listed, *skipped)}
    names = [name for name in listed if folder_of[name] in folders]
    skipped = [name for name in skipped if folder_of[name] in folders]
    for empty in sorted(folders - {folder_of[name] for name in names}):
        others = describe_skipped(name for name in skipped if folder_of[name] == empty)
        folder = root.joinpath(*empty)
        raise UserError(f"The class folder {folder} has no images. {others}".rstrip())
    groups = None if group_by is None else find_groups(group_by, names)
    notes = suggest_group_pattern(names) if groups is None else []
    if len(listed) > len(names):
        notes.append(f"{len(listed) - len(names)} images outside the class folders are not used.")
    if skipped:
        notes.append(describe_skipped(skipped))
    labels = [folder_of[name][-1] for name in names]
    words = [folder_of[name][0] for name in names] if depth == 2 else None
    shares = {"validation": validation, "test": test}
    return _make_dataset(ImageFiles(root, names), labels, classes, words, groups, notes, shares)


def _split_folders(root: Path, classes: Classes) -> list[str]:
    """List the folders of a prescribed split; none if the folders in the root are classes."""
    folders = user_folders(root)
    splits = [name for name in folders if name.casefold() in SPLIT_WORDS]
    if classes is not None and {*splits} <= {*parse_names("classes", classes)}:
        return []
    others = [name for name in folders if name not in splits]
    if splits and others:
        raise UserError(
            f"{root} has folders of splits ({', '.join(splits)}) and others ({', '.join(others)}). "
            "Move the others away, or list all of them as classes."
        )
    if len({SPLIT_WORDS[name.casefold()] for name in splits}) < len(splits):
        raise UserError(f"{root} has several folders for one split: {', '.join(splits)}.")
    return splits


def read_manifest(
    root: Path,
    *,
    classes: Classes = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
    path: str = "path",
    label: str = "label",
    split: str | None = "split",
    group: str | None = "group",
    group_by: str | None = None,
    images: str | Path | None = None,
    sheet: str | None = None,
) -> Dataset:
    """Read images that a CSV or Excel file lists.

    Paths start from the folder ``images``; by default that of the file, or a subfolder.
    """
    file = read_table_file(root, sheet)
    own = file.path.parent
    given = None if images is None else Path(images).expanduser()
    if given is not None and not given.is_dir():
        raise FileNotFoundError(f"The folder of the images, {given}, does not exist.")
    notes = list(file.notes)
    if path not in file.frame and path == "path":
        path = image_column(file, given or own) or path
        notes.append(f"The images are in column {path!r}.")
    cells = file.read_column("path", path)
    paths = [posixpath.normpath(cell.replace("\\", "/")) for cell in cells]
    folder = given or image_folder(paths, own) or own
    if folder not in (own, given):
        notes.append(f"The paths of the images start in the folder {folder.name}.")
    for i, images_named in enumerate(find_images(folder, paths)):
        if len(images_named) > 1:
            raise UserError(f"{paths[i]!r} may be {format_list(images_named)}. Add the suffix.")
        paths[i] = images_named[0] if images_named else paths[i]
    label, label_note = label_column(file, label, {path, split, group, "id"})
    notes += label_note
    labels = file.read_column("label", label)
    words = file.read_optional("split", split)
    groups = file.read_optional("group", group)
    if group_by is not None and groups is not None:
        raise UserError(f"The groups are in column {group!r} already; leave out group_by.")
    if group_by is not None:
        groups = list(find_groups(group_by, paths))
    if groups is None:
        notes += suggest_group_columns(file, {path, label, split}, labels)
    shares = {"validation": validation, "test": test}
    return _make_dataset(ImageFiles(folder, paths), labels, classes, words, groups, notes, shares)


def read_table(
    root: Path,
    *,
    classes: Classes = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
    label: str = "label",
    split: str | None = "split",
    group: str | None = "group",
    id: str | None = "id",  # noqa: A002 – the name of the column
    drop: str | Sequence[str] = (),
    sheet: str | None = None,
) -> Dataset:
    """Read the rows of a table; every column without another use is an input.

    The column ``id`` names the rows, and may be absent; those of ``drop`` are not used.
    """
    file = read_table_file(root, sheet)
    names = list(file.frame)
    label, label_note = label_column(file, label)
    labels = file.read_column("label", label)
    words = file.read_optional("split", split)
    groups = file.read_optional("group", group)
    notes = [*file.notes, *label_note]
    if groups is None:
        notes += suggest_group_columns(file, {label, split}, labels)
    id_column = None if id == "id" and id not in names else id
    if id_column is not None:
        check_known("id", id_column, names)
    unused = parse_names("drop", drop) if drop else ()
    for name in unused:
        check_known("drop", name, names)
    used = {label, split, group, *unused} - {id_column}
    frame = file.frame[[name for name in names if name not in used]]
    if set(frame) <= {id_column}:
        raise UserError(f"{file.path.name} has no columns to learn from, only {label!r}.")
    rows = UnencodedRows(frame, file.row_names, id_column)
    shares = {"validation": validation, "test": test}
    return _make_dataset(rows, labels, classes, words, groups, notes, shares)


def read_npz(
    root: Path,
    *,
    classes: Classes = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
) -> Dataset:
    """Read arrays of images and ranks with the names that MedMNIST or Keras use.

    Names of ``classes`` belong to the ranks 0, 1, …
    """
    images, integers = _load_arrays(find_file(root, (".npz",)))
    shapes = {array.shape[1:] for array in images.values()}
    if len(shapes) > 1:
        raise UserError(f"The splits have images of different sizes: {format_list(shapes)}.")
    for word, array in integers.items():
        count = len(images[word])
        if array.shape not in ((count,), (count, 1)) or array.dtype.kind not in "iu":
            raise UserError(
                f"{word} labels must be integers of shape ({count},) or ({count}, 1), got "
                f"{array.dtype} of shape {array.shape}.".lstrip()
            )
    ranks = [rank for word in images for rank in integers[word].ravel().tolist()]
    present = sorted({*ranks})
    names = tuple(map(str, present)) if classes is None else parse_names("classes", classes)
    labels = [str(rank) for rank in ranks]
    if not isinstance(classes, KnownClasses):
        if present != list(range(len(present))):
            raise UserError(f"The labels must be 0, 1, … without gaps, got {format_list(present)}.")
        if len(names) != len(present):
            raise UserError(f"classes has {len(names)} names for {len(present)} different labels.")
        labels = [names[rank] for rank in ranks]
    elif {*labels}.isdisjoint(names) and 0 <= present[0] <= present[-1] < len(names):
        labels = [names[rank] for rank in ranks]
    paths = [(word, f"{word}/{i}".lstrip("/")) for word in images for i in range(len(images[word]))]
    inputs = ImageArrays(np.concatenate(list(images.values())), [path for _, path in paths])
    words = None if "" in images else [word for word, _ in paths]
    shares = {"validation": validation, "test": test}
    return _make_dataset(inputs, labels, classes, words, None, [], shares)


def _load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Read the images and the labels of each split; nothing in the file is executed."""
    images: dict[str, Array] = {}
    labels: dict[str, Array] = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for key in archive.files:
                word, kind = re.sub(r"^([xy])_(\w+)$", r"\2_\1", key.lower()).rpartition("_")[::2]
                if (word == "" or word in SPLIT_WORDS) and kind in ("images", "x", "labels", "y"):
                    (images if kind in ("images", "x") else labels)[word] = archive[key]
    except Exception as error:  # a damaged file may raise almost anything
        raise UserError(f"{path} cannot be read as an npz file ({error}). {_ARRAYS}") from error
    if not images or images.keys() != labels.keys() or ("" in images and len(images) > 1):
        raise UserError(f"The arrays of {path.name} are incomplete or ambiguous. {_ARRAYS}")
    gray = {word: a[..., 0] if a.ndim == 4 and a.shape[3] == 1 else a for word, a in images.items()}
    return gray, labels


def _make_dataset(
    inputs: Any,
    labels: Sequence[str],
    classes: Classes,
    words: Sequence[str] | None,
    groups: Sequence[Hashable] | None,
    notes: list[str],
    shares: dict[str, float],
) -> Dataset:
    """Build a data set: ranks of the labels, splits that the data prescribe, and its groups."""
    ranks, ordered, note = rank_labels(labels, classes)
    notes.append(note)
    groups = None if groups is None else tuple(groups)
    if groups:
        notes.append(f"{len({*groups}):,} groups in {len(groups):,} samples.")
    splits = assign_splits(words, ranks, ordered, groups)
    return Dataset(inputs, ranks, ordered, splits, tuple(notes), groups=groups, shares=shares)
