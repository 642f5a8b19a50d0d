"""A CSV file that lists images with their labels."""

import os
import posixpath
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.dataset import Dataset, Drawing, Indices, format_list
from layline.data.detect import ImageNames, image_column, image_folder, label_column
from layline.data.groups import describe_groups, groups_by, looks_like_group, suggest_columns
from layline.data.labels import rank_labels
from layline.data.splits import RandomSplit, part_named
from layline.data.table_encoding import texts_of
from layline.data.tables import WINDOWS, TableFile, read_table_file
from layline.utils.errors import UserError


def read_manifest(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    calibration: float = 0.0,
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
        root: The file, or the folder with just one.
        partition: Seed of the split where none is given.
        classes: The labels from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        calibration: Share of the training samples to calibrate with.
        path: Where each image is; without a column of that name, the one that names images.
        label: Its class; without a column of that name, another that must be it.
        split: Train, val or test; the column may be absent.
        group: What must stay in one part, such as a patient; the column may be absent.
        group_by: A regular expression that finds it in the path, where there is no such column.
        images: The folder that the paths start from; that of the file if not given, or one in it.
        sheet: Of a workbook, if not the first.
        encoding: Of a text file, if it is not found out.
    """
    from layline.data.images import ImageFiles

    file = read_table_file(root, sheet=sheet, encoding=encoding)
    own = file.path.parent
    path, path_note = _path_column(file, path, own if images is None else Path(images))
    written = [
        posixpath.normpath(cell.replace("\\", "/"))  # as a file written on Windows has them
        for cell in file.filled("path", path)
    ]
    folder, folder_note = _folder(own, images, written)
    paths, id_note = _on_disk(file, folder, written)
    label, label_note = label_column(file, "label", label, {path, split, group, "id"})
    labels = file.filled("label", label)
    splits = file.optional("split", split, "split")
    groups = _groups(file, group, group_by, paths)
    ranks, ordered, note = rank_labels(labels, file.rows.tolist(), classes)
    keep = _first_of_each(
        paths, {"label": labels, "split": splits and [*map(part_named, splits)], "group": groups}
    )
    kept_groups = None if groups is None else tuple(groups[i] for i in keep)
    draw = partial(
        RandomSplit(validation, test, partition, calibration).partition,
        ranks[keep],
        ordered,
        splits and [splits[i] for i in keep],
        kept_groups,
    )
    parts, notes = draw()
    drawing = Drawing(draw, notes)
    if len(keep) < len(paths):
        notes += (f"Of rows that repeat another {len(paths) - len(keep)} were left out",)
    notes += describe_groups(kept_groups, "images")
    if groups is None:
        others = [name for name in file.frame if name not in (path, label, split)]
        columns = {name: texts_of(file.frame[name]) for name in others if looks_like_group(name)}
        notes += suggest_columns(columns, labels, splits)
    inputs = ImageFiles(folder, [paths[i] for i in keep])
    notes = (*file.notes, *path_note, *folder_note, *id_note, *label_note, note, *notes)
    return Dataset(inputs, ranks[keep], ordered, parts, notes, groups=kept_groups, drawing=drawing)


def _groups(
    file: TableFile, group: str | None, group_by: str | None, paths: Sequence[str]
) -> Sequence[str] | None:
    """Give the group of each row, by its column or by its path."""
    groups = file.optional("group", group, "group")
    if group_by is None:
        return groups
    if groups is not None:
        raise UserError(
            f"group_by must be left out where a column has the groups, got {group_by!r} beside "
            f"{group!r}: one is enough"
        )
    return groups_by(group_by, paths)


def _on_disk(
    file: TableFile, folder: Path, paths: Sequence[str]
) -> tuple[list[str], tuple[str, ...]]:
    """Give the paths as the disk has them: with the ending that an ID lacks.

    Names that are no Unicode stand in a file of that encoding as the bytes that the disk has.
    """
    images, found, completed = ImageNames(folder), [], []
    for row, path in zip(file.rows.tolist(), paths, strict=True):
        several = images.without_ending(path)
        if len(several) > 1 and not (folder / path).is_file():
            raise UserError(
                f"an image must be one file, got {format_list(several)} for {path!r} in row {row}: "
                "write its ending"
            )
        if len(several) == 1 and not (folder / path).is_file():
            completed.append((path, several[0]))
            path = several[0]
        elif file.encoding == WINDOWS and not path.isascii():
            exact = os.fsdecode(path.encode(WINDOWS))
            path = exact if (folder / exact).is_file() else path
        found.append(path)
    if not completed:
        return found, ()
    short, long = completed[0]
    return found, (
        f"{len(completed):,} of {len(paths):,} images are named without their ending, such as "
        f"{short} for {long}",
    )


def _path_column(file: TableFile, name: str, folder: Path) -> tuple[str, tuple[str, ...]]:
    """Find the column of the images, and say so where it is not the one named."""
    if name in file.frame or name != "path":
        return name, ()
    columns = [str(column) for column in file.frame]
    head = [texts_of(file.frame[column].head(50)) for column in columns]
    found = image_column(columns, [list(row) for row in zip(*head, strict=True)], folder)
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
            raise UserError(
                f"an image must have one {name}, got several for "
                f"{format_list(dict.fromkeys(several))}: keep one row of each"
            )
    return np.fromiter(first.values(), dtype=np.int64)
