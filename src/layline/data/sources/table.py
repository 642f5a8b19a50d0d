"""A table of numbers and categories with a column of labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layline.data.dataset import SHARES, Dataset
from layline.data.detect import label_column
from layline.data.groups import describe_groups, looks_like_group, suggest_columns
from layline.data.labels import parse_names, rank_labels
from layline.data.splits import assign_splits
from layline.data.table_encoding import UnencodedRows, texts_of
from layline.data.tables import read_table_file
from layline.utils.errors import UserError
from layline.utils.validation import check_known


def read_table(
    root: str | Path,
    *,
    classes: str | Sequence[Any] | None = None,
    validation: float = SHARES["validation"],
    test: float = SHARES["test"],
    label: str = "label",
    split: str | None = "split",
    group: str | None = "group",
    id: str | None = "id",  # noqa: A002 – the name of the column
    drop: str | Sequence[str] = (),
    sheet: str | None = None,
    encoding: str | None = None,
) -> Dataset:
    """Read the rows of a table; every column without another use is an input.

    Args:
        root: The file, or a folder with a single one.
        classes: The labels from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples for validation, if it is drawn.
        test: Share of the samples for testing, if it is drawn.
        label: The column of the labels.
        split: The column of train, val or test, which may be absent.
        group: The column of what must stay in one split, such as a patient; it may be absent.
        id: The column that names the rows, which may be absent.
        drop: Columns that are not used, as a list or ``"a,b,c"``.
        sheet: The sheet of a workbook, if not the first.
        encoding: The encoding of a text file, if it is not UTF-8.
    """
    file = read_table_file(root, sheet, encoding)
    label, label_note = label_column(file, label)
    labels = file.read_column("label", label)
    ranks, ordered, order_note = rank_labels(labels, file.rows, classes)
    splits = file.read_optional("split", split)
    groups = file.read_optional("group", group)
    names = [str(name) for name in file.frame]
    notes = [*file.notes, *label_note, order_note, *describe_groups(groups)]
    id_column = None if id == "id" and id not in names else id
    if id_column is not None:
        check_known("id", id_column, names)
        notes.append(f"Column {id_column!r} names the rows and is not an input.")
    if groups is None:
        others = [name for name in names if name not in (label, split)]
        columns = {name: texts_of(file.frame[name]) for name in others if looks_like_group(name)}
        notes += suggest_columns(columns, labels, splits)
    unused = parse_names("drop", drop) if drop else ()
    for name in unused:
        check_known("drop", name, names)
    used = {label, split, group, *unused} - {id_column}
    frame = file.frame[[name for name in names if name not in used]]
    if set(frame) <= {id_column}:
        raise UserError(f"{file.path.name} has no columns to learn from, only {label!r}.")
    kept = None if groups is None else tuple(groups)
    rows: Any = UnencodedRows(frame, file.row_names, id_column)
    return Dataset(
        rows,
        ranks,
        ordered,
        assign_splits(splits, ranks, ordered, kept),
        tuple(notes),
        groups=kept,
        shares={"validation": validation, "test": test},
    )
