"""A table of numbers and categories with a column of labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layline.data.base import Dataset
from layline.data.labels import parse_names, rank_labels
from layline.data.splits import RandomSplit
from layline.data.table import Delimited, Rows, TableEncoding, read_delimited
from layline.registry import check_known

_LABELS = ("label", "rank", "grade", "class", "target", "y")


def read_table(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    label: str = "label",
    split_column: str | None = "split",
    group_column: str | None = "group",
    id_column: str | None = "id",
    drop: str | Sequence[str] = (),
) -> Dataset:
    """Read rows of a table; every column without another use is an input.

    Args:
        root: The file, or the folder with just one.
        partition: Seed of the split where none is given.
        classes: The labels from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        label: The column of the labels.
        split_column: Train, val or test; the column may be absent.
        group_column: What must stay in one part, such as a patient; it may be absent.
        id_column: What each row is called; it may be absent.
        drop: Columns to leave out, as a list or ``"a,b,c"``.
    """
    sheet = read_delimited(root)
    label, found = _label_column(sheet, label)
    ranks, ordered, note = rank_labels(sheet.filled("label", label), sheet.rows, classes)
    splits = sheet.optional("split_column", split_column, "split")
    groups = sheet.optional("group_column", group_column, "group")
    split = RandomSplit(validation, test, seed=partition)
    parts, notes = split.partition(ranks, ordered, splits, groups)
    used = {label, split_column, group_column, id_column, *_dropped(sheet, drop)}
    frame = {name: cells for name, cells in sheet.columns.items() if name not in used}
    if not frame:
        raise ValueError(
            f"root must have columns beside {label!r}, got none: nothing to learn from"
        )
    encoding = TableEncoding.fit(frame, parts.train)
    numbers = [f"row {row}" for row in sheet.rows]
    names, named = _row_names(sheet, id_column, numbers)
    rows = Rows(encoding.apply(frame, numbers), names, encoding)
    notes = (*found, note, *notes, *named, *_left_out(sheet, frame, encoding))
    return Dataset(rows, ranks, ordered, parts, (*notes, *encoding.unseen(frame)))


def _label_column(sheet: Delimited, label: str) -> tuple[str, tuple[str, ...]]:
    """Find the column of the labels, and say so where it is not the one named."""
    if label in sheet.columns or label != _LABELS[0]:
        return label, ()  # a name that the user chose is not replaced by another
    usual = [name for name in sheet.columns if name.lower() in _LABELS]
    if len(usual) == 1:
        return usual[0], (f"The labels are taken from the column {usual[0]!r}",)
    cure = f"say which of {', '.join(usual)} it is" if usual else "say which it is"
    raise ValueError(
        f"label must be a column of {sheet.path.name}, got {label!r}: {cure}, "
        f"the columns are {', '.join(sheet.columns)}"
    )


def _row_names(
    sheet: Delimited, id_column: str | None, numbers: list[str]
) -> tuple[list[str], tuple[str, ...]]:
    """Call the rows by their id where they have one, and say that it is not an input."""
    if id_column is None or (id_column == "id" and "id" not in sheet.columns):
        return numbers, ()
    ids = sheet.column("id_column", id_column)
    note = f"The column {id_column!r} names the rows and is not an input"
    return [own or number for own, number in zip(ids, numbers, strict=True)], (note,)


def _dropped(sheet: Delimited, drop: str | Sequence[str]) -> tuple[str, ...]:
    names = parse_names("drop", drop) if drop else ()
    for name in names:
        check_known("drop", name, sheet.columns)
    return names


def _left_out(sheet: Delimited, frame: dict[str, list[str]], encoding: TableEncoding) -> list[str]:
    """Say which columns no one asked to leave out are not used."""
    notes = [
        f"Column {name!r} is empty in the training rows and was left out"
        for name in frame
        if name not in encoding.names
    ]
    if sheet.unnamed:
        notes.append("Columns without a name in the header were left out")
    return notes
