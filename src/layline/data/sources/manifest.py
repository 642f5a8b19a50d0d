"""A CSV file that lists images with their labels."""

import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.base import Dataset, Indices, listed
from layline.data.labels import rank_labels
from layline.data.recognition import image_column, image_folder
from layline.data.recognition import label_column as find_label_column
from layline.data.splits import RandomSplit, part_named
from layline.data.table_file import TableFile, read_delimited


def read_manifest(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    path_column: str = "path",
    label_column: str = "label",
    split_column: str | None = "split",
    group_column: str | None = "group",
    images: str | Path | None = None,
) -> Dataset:
    """Read images that a file lists.

    Args:
        root: The file, or the folder with just one.
        partition: Seed of the split where none is given.
        classes: The labels from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        path_column: Where each image is; without a column of that name, the one that names images.
        label_column: Its class; without a column of that name, another that must be it.
        split_column: Train, val or test; the column may be absent.
        group_column: What must stay in one part, such as a patient; it may be absent.
        images: The folder that the paths start from; that of the file if not given, or one in it.
    """
    from layline.data.images.files import ImageFiles

    sheet = read_delimited(root)
    path_column, path_note = _path_column(sheet, path_column)
    paths = [
        posixpath.normpath(path.replace("\\", "/"))  # as a file written on Windows has them
        for path in sheet.filled("path_column", path_column)
    ]
    folder, folder_note = _folder(sheet.path.parent, images, paths)
    used = {path_column, split_column, group_column, "id"}
    label_column, label_note = find_label_column(sheet, "label_column", label_column, used)
    labels = sheet.filled("label_column", label_column)
    splits = sheet.optional("split_column", split_column, "split")
    groups = sheet.optional("group_column", group_column, "group")
    ranks, ordered, note = rank_labels(labels, sheet.rows.tolist(), classes)
    keep = _first_of_each(
        paths, {"label": labels, "split": splits and [*map(part_named, splits)], "group": groups}
    )
    kept_groups = None if groups is None else tuple(groups[i] for i in keep)
    parts, notes = RandomSplit(validation, test, seed=partition).partition(
        ranks[keep],
        ordered,
        splits and [splits[i] for i in keep],
        kept_groups,
    )
    if len(keep) < len(paths):
        notes += (f"Of rows that repeat another {len(paths) - len(keep)} were left out",)
    inputs = ImageFiles(folder, [paths[i] for i in keep])
    notes = (*path_note, *folder_note, *label_note, note, *notes)
    return Dataset(inputs, ranks[keep], ordered, parts, notes, groups=kept_groups)


def _path_column(sheet: TableFile, name: str) -> tuple[str, tuple[str, ...]]:
    """Find the column of the images, and say so where it is not the one named."""
    if name in sheet.frame or name != "path":
        return name, ()
    columns = [str(column) for column in sheet.frame]
    found = image_column(columns, sheet.frame.head(50).fillna("").to_numpy().tolist())
    if found is None:
        return name, ()  # the error names the columns that there are
    return found, (f"The images are taken from the column {found!r}",)


def _folder(
    own: Path, images: str | Path | None, paths: Sequence[str]
) -> tuple[Path, tuple[str, ...]]:
    """Find the folder that paths start from, and say so where it is not that of the file."""
    if images is not None:
        folder = Path(images).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(f"images must be a folder, got {folder}: check the path")
        return folder, ()
    found = image_folder(paths, own)
    if found is None or found == own:
        return own, ()  # files that are missing are found before training
    return found, (f"The paths of the images start in the folder {found.name}",)


def _first_of_each(paths: Sequence[str], columns: dict[str, Sequence[str] | None]) -> Indices:
    """Give the first row of each path, and refuse rows of one path that contradict each other."""
    first: dict[str, int] = {}
    for i, path in enumerate(paths):
        first.setdefault(path, i)
    for name, values in columns.items():
        if values is None:
            continue
        several = [path for i, path in enumerate(paths) if values[i] != values[first[path]]]
        if several:
            raise ValueError(
                f"an image must have one {name}, got several for "
                f"{listed(dict.fromkeys(several))}: keep one row of each"
            )
    return np.fromiter(first.values(), dtype=np.int64)
