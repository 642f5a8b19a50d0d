"""A CSV or Excel file that lists images with their labels."""

import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.dataset import SHARES, Dataset, Indices, format_list
from layline.data.detect import ImageNames, image_column, image_folder, label_column
from layline.data.groups import describe_groups, find_groups, looks_like_group, suggest_columns
from layline.data.labels import rank_labels
from layline.data.splits import assign_splits, split_named
from layline.data.table_encoding import texts_of
from layline.data.tables import TableFile, read_table_file
from layline.utils.errors import UserError


def read_manifest(
    root: str | Path,
    *,
    classes: str | Sequence[Any] | None = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
    path: str = "path",
    label: str = "label",
    split: str | None = "split",
    group: str | None = "group",
    group_by: str | None = None,
    images: str | Path | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
) -> Dataset:
    """Read images that a file lists.

    Args:
        root: The file, or a folder with a single one.
        classes: The labels from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples for validation, if it is drawn.
        test: Share of the samples for testing, if it is drawn.
        path: The column of the images; if it is absent, the column that names images.
        label: The column of the classes; if it is absent, one with a usual name.
        split: The column of train, val or test, which may be absent.
        group: The column of what must stay in one split, such as a patient; it may be absent.
        group_by: A regular expression that finds the group in the path instead.
        images: The folder that the paths start from; that of the file or a subfolder by default.
        sheet: The sheet of a workbook, if not the first.
        encoding: The encoding of a text file, if it is not UTF-8.
    """
    from layline.data.images import ImageFiles

    file = read_table_file(root, sheet, encoding)
    own = file.path.parent
    given = None if images is None else Path(images).expanduser()
    if given is not None and not given.is_dir():
        raise FileNotFoundError(f"The folder of the images, {given}, does not exist.")
    notes = list(file.notes)
    if path not in file.frame and path == "path":
        path = image_column(file, given or own) or path
        notes.append(f"The images are in column {path!r}.")
    written = [
        posixpath.normpath(cell.replace("\\", "/")) for cell in file.read_column("path", path)
    ]
    folder = given or image_folder(written, own) or own
    if folder not in (own, given):
        notes.append(f"The paths of the images start in the folder {folder.name}.")
    paths = _complete_names(file, folder, written)
    label, label_note = label_column(file, label, {path, split, group, "id"})
    labels = file.read_column("label", label)
    splits = file.read_optional("split", split)
    groups = file.read_optional("group", group)
    if group_by is not None and groups is not None:
        raise UserError(f"The groups are in column {group!r} already; leave out group_by.")
    if group_by is not None:
        groups = list(find_groups(group_by, paths))
    ranks, ordered, order_note = rank_labels(labels, file.rows, classes)
    words = None if splits is None else [split_named(word) for word in splits]
    keep = _find_first(paths, {"label": labels, "split": words, "group": groups})
    if len(keep) < len(paths):
        notes.append(f"{len(paths) - len(keep)} rows repeat an image and are not used.")
    kept_groups = None if groups is None else tuple(groups[i] for i in keep)
    if groups is None:
        others = [str(name) for name in file.frame if name not in (path, label, split)]
        columns = {name: texts_of(file.frame[name]) for name in others if looks_like_group(name)}
        notes += suggest_columns(columns, labels, splits)
    kept_words = None if words is None else [words[i] for i in keep]
    return Dataset(
        ImageFiles(folder, [paths[i] for i in keep]),
        ranks[keep],
        ordered,
        assign_splits(kept_words, ranks[keep], ordered, kept_groups),
        (*notes, *label_note, order_note, *describe_groups(kept_groups)),
        groups=kept_groups,
        shares={"validation": validation, "test": test},
    )


def _complete_names(file: TableFile, folder: Path, paths: Sequence[str]) -> list[str]:
    """Add the suffixes that names of images lack."""
    images, names = ImageNames(folder), []
    for row, path in zip(file.rows, paths, strict=True):
        several = [] if (folder / path).is_file() else images.complete(path)
        if len(several) > 1:
            raise UserError(
                f"{path!r} in row {row} may be any of {format_list(several)}. Add the suffix."
            )
        names.append(several[0] if several else path)
    return names


def _find_first(paths: Sequence[str], columns: dict[str, Sequence[str] | None]) -> Indices:
    """Return the first row of each path, and refuse rows of one path that contradict each other."""
    first: dict[str, int] = {}
    for i, path in enumerate(paths):
        first.setdefault(path, i)
    for name, values in columns.items():
        several = [
            path for i, path in enumerate(paths) if values and values[i] != values[first[path]]
        ]
        if several:
            raise UserError(
                f"Some images have more than one {name}: {format_list(dict.fromkeys(several))}."
            )
    return np.fromiter(first.values(), dtype=np.int64)
