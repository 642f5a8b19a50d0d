"""A table of numbers and categories with a column of labels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layline.data.dataset import Dataset
from layline.data.detect import LABEL_COLUMNS, label_column
from layline.data.groups import describe_groups, looks_like_group, suggest_columns
from layline.data.labels import parse_names, rank_labels
from layline.data.splits import RandomSplit
from layline.data.table_encoding import Rows, TableEncoding, check_float32, texts_of
from layline.data.tables import TableFile, read_table_file
from layline.utils.errors import UserError
from layline.utils.validation import check_known

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
    split: str | None = "split",
    group: str | None = "group",
    id: str | None = "id",  # noqa: A002 – as the column is called
    drop: str | Sequence[str] = (),
    sheet: str | None = None,
    encoding: str | None = None,
    known_encoding: TableEncoding | None = None,
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
        split: Train, val or test; the column may be absent.
        group: What must stay in one part, such as a patient; the column may be absent.
        id: What each row is called; the column may be absent.
        drop: Columns to leave out, as a list or ``"a,b,c"``.
        sheet: Of a workbook, if not the first.
        encoding: Of a text file, if it is not found out.
        known_encoding: How a trained model reads the cells; learned from the training rows if not
            given.
    """
    named = {split, group, id}
    usual = {name for names in LABEL_COLUMNS for name in names}

    def read_file(is_label: Callable[[str], bool]) -> TableFile:
        def is_text(name: str) -> bool:
            is_word = known_encoding is not None and known_encoding.is_text(name)
            return is_word or name in named or is_label(name)

        return read_table_file(root, is_text, sheet, encoding)

    file = read_file(lambda name: name == label or name.lower() in usual)
    label, label_note = label_column(file, "label", label)
    if any(name != label and name.lower() in usual for name in file.frame):
        file = read_file(lambda name: name == label)  # the others are inputs like any
    labels = file.filled("label", label)
    ranks, ordered, note = rank_labels(labels, file.rows.tolist(), classes)
    splits = file.optional("split", split, "split")
    groups = file.optional("group", group, "group")
    drawn = RandomSplit(validation, test, partition, calibration)
    parts, notes = drawn.partition(ranks, ordered, splits, groups)
    notes += describe_groups(groups, "rows")
    if id is not None and (id != "id" or "id" in file.frame):
        file.texts("id", id)  # which has to be there
        notes += (f"The column {id!r} names the rows and is not an input",)
    else:
        id = None  # noqa: A001
    if groups is None:
        others = [name for name in file.frame if name not in (label, split)]
        columns = {name: texts_of(file.frame[name]) for name in others if looks_like_group(name)}
        notes += suggest_columns(columns, labels, splits)
    used = {label, split, group, *_dropped(file, drop)} - {id}
    frame = file.frame[[name for name in file.frame if name not in used]]
    if set(frame) <= {id}:
        raise UserError(f"root must have columns beside {label!r}, got none: nothing to learn from")
    numbers = file.row_names
    if known_encoding is None:
        encoded = TableEncoding.fit(frame, parts.train, id)
    else:
        encoded = replace(known_encoding, id_column=id or known_encoding.id_column)
    values = encoded.apply(frame, numbers)
    check_float32(values, encoded.columns, numbers)
    rows = Rows(values, encoded.row_names(frame, numbers), encoded)
    more = (*_left_out(file, frame, encoded, known_encoding), *encoded.unseen(frame))
    notes = (*file.notes, *label_note, note, *notes, *more)
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
