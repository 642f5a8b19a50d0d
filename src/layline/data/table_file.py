"""Files of tables: text with a header and columns, divided by commas, semicolons or tabs.

pandas reads them. It is told to take an empty cell for missing and nothing else: what "NA" or
"None" mean is for the encoding to say, in :mod:`layline.data.table`.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from layline.data.base import Indices, listed, only_file
from layline.data.table import NUMERIC_KINDS, check_different, texts_of
from layline.optional import require

if TYPE_CHECKING:
    import pandas as pd

_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True, eq=False)
class TableFile:
    """A text file with a header and columns.

    Attributes:
        path: The file.
        frame: Its columns that have a name.
        rows: Which row of the file each row of the frame is, counted from 1.
        unnamed: How many columns were left out because the header has no name for them.
    """

    path: Path
    frame: "pd.DataFrame"
    rows: Indices
    unnamed: int = 0

    @property
    def row_names(self) -> list[str]:
        """Call each row by its number in the file."""
        return [f"row {row}" for row in self.rows.tolist()]

    def texts(self, argument: str, name: str) -> list[str]:
        """Give the cells of a column that has to be there."""
        if name not in self.frame:
            names = list(self.frame)
            near = get_close_matches(str(name), names, n=1, cutoff=0.5)
            near = near or [column for column in names if column.lower() == name.lower()]
            cure = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"{argument} must be a column of {self.path.name}, got {name!r}: "
                f"{cure}it has {', '.join(names)}"
            )
        return texts_of(self.frame[name])

    def filled(self, argument: str, name: str) -> list[str]:
        """Give the cells of a column that has to be there, none of them empty."""
        cells = self.texts(argument, name)
        empty = [row for row, cell in zip(self.rows.tolist(), cells, strict=True) if not cell]
        if empty:
            raise ValueError(
                f"column {name!r} must be filled, got nothing in row {listed(empty)}: "
                "fill the cells or delete the rows"
            )
        return cells

    def optional(self, argument: str, name: str | None, usual: str) -> list[str] | None:
        """Give the cells of a column that may be absent under its usual name only."""
        if name is None or (name == usual and name not in self.frame):
            return None
        return self.filled(argument, name)


def read_delimited(
    root: str | Path, is_text: Callable[[str], bool] = lambda name: True
) -> TableFile:
    """Read a file with commas, semicolons or tabs, whichever divide its first line.

    Args:
        root: The file, or the folder with just one.
        is_text: Whether the cells of a column are kept as they are written, since a label "007"
            or "NA" must stay what it is. Numbers of other columns are read as such.
    """
    pandas = require("pandas", extra="images", needed_by="reading tables")
    path = only_file(root, (".csv", ".tsv"))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"root must be text in UTF-8, got {path}: save it as CSV with that encoding"
        ) from error
    delimiter = _delimiter(io.StringIO(text))
    if '"' in text:  # pandas would accept wrong quotes
        _check_records(path, text, delimiter)
    stream = io.StringIO(text)
    header_row, header = next(_records(path, stream, delimiter), (0, [""]))
    try:
        frame = pandas.read_csv(  # from the row below the header on
            stream,
            sep=delimiter,
            header=None,
            names=range(len(header)),
            dtype={i: str for i, name in enumerate(header) if is_text(name)},
            # an empty cell is the only one that can be missing without losing what it said
            keep_default_na=False,
            na_values=[""],
            skipinitialspace=True,
            skip_blank_lines=False,
            low_memory=False,
        )
    except pandas.errors.ParserError as error:
        _check_records(path, text, delimiter)
        raise ValueError(f"root must be a table, got {path.name}: {error}") from error
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame(columns=range(len(header)))
    keep = ~_empty_rows(frame)
    if not keep.any():
        lines = sum(1 for _ in _records(path, io.StringIO(text), delimiter))
        raise ValueError(f"root must have a header and rows, got {path} with {lines} lines")
    named = [i for i, name in enumerate(header) if name]
    names = [header[i] for i in named]
    check_different(names)
    # a row that is too long makes an index of its first cell, one that is too short lacks the last
    if not isinstance(frame.index, pandas.RangeIndex) or (_missing(frame.iloc[:, -1]) & keep).any():
        _check_records(path, text, delimiter)
    infinite = {header[i] for i in named if _has_infinity(frame[i])}
    if infinite:  # the error shows what is written
        return read_delimited(path, lambda name: is_text(name) or name in infinite)
    if not keep.all():
        frame = frame[keep]
    frame = frame[named].set_axis(names, axis=1)
    rows = header_row + 1 + np.flatnonzero(keep)
    return TableFile(path, frame, rows, unnamed=len(header) - len(named))


def read_head(path: Path, rows: int = 50) -> tuple[list[str], list[list[str]]]:
    """Read the names of the columns and the first rows only, to see what a file is about."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        lines = [line for line, _ in zip(stream, range(2 * rows), strict=False) if line.strip()]
    records = csv.reader(lines, delimiter=_delimiter(lines), skipinitialspace=True)
    header, *found = [[cell.strip() for cell in record] for record in records] or [[]]
    return header, found[:rows]


def _delimiter(lines: Iterable[str]) -> str:
    """Tell what divides the first line into most cells."""
    first = next((line for line in lines if line.strip()), "")
    return max(_DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))


def _records(path: Path, stream: io.StringIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Give the rows of a file that are not blank, with their numbers."""
    reader = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for row, record in enumerate(reader, start=1):
            if any(cells := [cell.strip() for cell in record]):
                yield row, cells
    except csv.Error as error:
        raise ValueError(
            f"root must be a table, got {path.name} with {error} in line {reader.line_num}: "
            "check the quotes"
        ) from error


def _check_records(path: Path, text: str, delimiter: str) -> None:
    """Refuse wrong quotes and rows that do not have as many cells as the header."""
    width = 0
    for row, cells in _records(path, io.StringIO(text), delimiter):
        width = width or len(cells)
        if len(cells) != width:
            raise ValueError(
                f"every row must have {width} cells like the header, got {len(cells)} in "
                f"row {row} of {path.name}: put quotes around a cell that holds the delimiter"
            )


def _empty_rows(frame: "pd.DataFrame") -> NDArray[np.bool_]:
    """Tell which rows have nothing in any column."""
    empty = np.ones(len(frame), dtype=bool)
    for name in frame:
        places = np.flatnonzero(empty)
        if len(places) == 0:
            break
        empty[places] = _missing(frame[name].iloc[places])
    return empty


def _missing(column: "pd.Series[Any]") -> NDArray[np.bool_]:
    numeric = column.dtype.kind in NUMERIC_KINDS
    return np.array(column.isna() if numeric else [not text for text in texts_of(column)], bool)


def _has_infinity(column: "pd.Series[Any]") -> bool:
    return column.dtype.kind == "f" and bool(np.isinf(column.to_numpy()).any())
