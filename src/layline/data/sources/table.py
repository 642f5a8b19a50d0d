"""A table of numbers and categories with a column of labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layline.arguments import check_known
from layline.data.base import Dataset
from layline.data.labels import parse_names, rank_labels
from layline.data.recognition import LABEL_COLUMNS, label_column
from layline.data.splits import RandomSplit
from layline.data.table import Rows, TableEncoding
from layline.data.table_file import TableFile, read_delimited

if TYPE_CHECKING:
    import pandas as pd


def read_table(
    root: str | Path,
    *,
    partition: int = 0,
    classes: str | Sequence[Any] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    calibration: float = 0.0,
    label: str = "label",
    split_column: str | None = "split",
    group_column: str | None = "group",
    id_column: str | None = "id",
    drop: str | Sequence[str] = (),
    encoding: TableEncoding | None = None,
) -> Dataset:
    """Read rows of a table; every column without another use is an input.

    Args:
        root: The file, or the folder with just one.
        partition: Seed of the split where none is given.
        classes: The labels from the lowest to the highest, as a list or ``"a,b,c"``.
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        calibration: Share of the training samples to calibrate with.
        label: The column of the labels.
        split_column: Train, val or test; the column may be absent.
        group_column: What must stay in one part, such as a patient; it may be absent.
        id_column: What each row is called; it may be absent.
        drop: Columns to leave out, as a list or ``"a,b,c"``.
        encoding: How a trained model reads the cells; learned from the training rows if not given.
    """
    named = {label, split_column, group_column, id_column}
    usual = {name for names in LABEL_COLUMNS for name in names}
    known = encoding

    def is_text(name: str) -> bool:
        is_word = known is not None and known.is_text(name)
        return is_word or name in named or name.lower() in usual

    file = read_delimited(root, is_text)
    label, label_note = label_column(file, "label", label)
    ranks, ordered, note = rank_labels(file.filled("label", label), file.rows.tolist(), classes)
    splits = file.optional("split_column", split_column, "split")
    groups = file.optional("group_column", group_column, "group")
    split = RandomSplit(validation, test, partition, calibration)
    parts, notes = split.partition(ranks, ordered, splits, groups)
    if id_column is not None and (id_column != "id" or "id" in file.frame):
        file.texts("id_column", id_column)  # which has to be there
        notes += (f"The column {id_column!r} names the rows and is not an input",)
    else:
        id_column = None
    used = {label, split_column, group_column, *_dropped(file, drop)} - {id_column}
    frame = file.frame[[name for name in file.frame if name not in used]]
    if set(frame) <= {id_column}:
        raise ValueError(
            f"root must have columns beside {label!r}, got none: nothing to learn from"
        )
    numbers = file.row_names
    if known is None:
        encoding = TableEncoding.fit(frame, parts.train, id_column)
    else:
        encoding = replace(known, id_column=id_column or known.id_column)
    rows = Rows(encoding.apply(frame, numbers), encoding.row_names(frame, numbers), encoding)
    notes = (
        *label_note,
        note,
        *notes,
        *_left_out(file, frame, encoding, known),
        *encoding.unseen(frame),
    )
    kept = None if groups is None else tuple(groups)
    return Dataset(rows, ranks, ordered, parts, notes, groups=kept)


def _dropped(file: TableFile, drop: str | Sequence[str]) -> tuple[str, ...]:
    names = parse_names("drop", drop) if drop else ()
    for name in names:
        check_known("drop", name, list(file.frame))
    return names


def _left_out(
    file: TableFile, frame: "pd.DataFrame", encoding: TableEncoding, known: TableEncoding | None
) -> list[str]:
    """Say which columns no one asked to leave out are not used."""
    why = "empty in the training rows" if known is None else "none that the model was trained with"
    notes = [
        f"Column {name!r} is {why} and was left out"
        for name in frame
        if name not in (*encoding.names, encoding.id_column)
    ]
    if file.unnamed:
        notes.append("Columns without a name in the header were left out")
    return notes
