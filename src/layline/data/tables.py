"""Files of tables: text with columns divided by commas, semicolons or tabs, and Excel workbooks.

pandas reads the text. It is told to take an empty cell for missing and nothing else: what "NA" or
"None" mean is for :mod:`layline.data.table_encoding` to say. Numbers with decimal commas
are understood where commas divide nothing. A cell of a workbook is taken as it is shown: a number
with the format ``000`` keeps its zeros, and a date is the text 2024-05-31.
"""

import codecs
import csv
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from layline.data.dataset import Indices, format_list, only_file
from layline.data.table_encoding import MISSING, NUMERIC_KINDS, check_different, text_of, texts_of
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_known

if TYPE_CHECKING:
    import pandas as pd

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
EXCEL_SUFFIXES = (".xlsx", ".xlsm")
WINDOWS = "cp1252"  # what Excel writes in Western Europe and America unless told otherwise
_DELIMITERS = (",", ";", "\t")
_ZIP = b"PK\x03\x04"  # a workbook is one
_HEAD = 1 << 20  # bytes that are enough to see what a file is about
_DECIMAL_COMMA = re.compile(
    r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE
)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file with a header and columns.

    Attributes:
        path: The file.
        frame: Its columns that have a name.
        rows: Which row of the file each row of the frame is, counted from 1.
        unnamed: How many columns were left out because the header has no name for them.
        notes: What a user should know about the reading, one sentence each.
        encoding: That of the text.
    """

    path: Path
    frame: "pd.DataFrame"
    rows: Indices
    unnamed: int = 0
    notes: tuple[str, ...] = ()
    encoding: str = "utf-8"

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
            raise UserError(
                f"{argument} must be a column of {self.path.name}, got {name!r}: "
                f"{cure}it has {', '.join(names)}"
            )
        return texts_of(self.frame[name])

    def filled(self, argument: str, name: str) -> list[str]:
        """Give the cells of a column that has to be there, none of them empty."""
        cells = self.texts(argument, name)
        empty = [row for row, cell in zip(self.rows.tolist(), cells, strict=True) if not cell]
        if empty:
            raise UserError(
                f"column {name!r} must be filled, got nothing in row {format_list(empty)}: "
                "fill the cells or delete the rows"
            )
        return cells

    def optional(self, argument: str, name: str | None, usual: str) -> list[str] | None:
        """Give the cells of a column that may be absent under its usual name only."""
        if name is None or (name == usual and name not in self.frame):
            return None
        return self.filled(argument, name)


def read_table_file(
    root: str | Path | bytes,
    is_text: Callable[[str], bool] = lambda name: True,
    sheet: str | None = None,
    encoding: str | None = None,
) -> TableFile:
    """Read text with commas, semicolons or tabs, whichever divide its first line, or a workbook.

    Args:
        root: The file, the folder with just one, or what the file holds.
        is_text: Whether the cells of a column are kept as they are written, since a label "007"
            or "NA" must stay what it is. Numbers of other columns are read as such.
        sheet: Of a workbook, if not the first.
        encoding: Of a text file, if it is not found out.
    """
    if isinstance(root, bytes):
        path, raw = Path("the bytes given"), root
    else:
        path = only_file(root, (*TEXT_SUFFIXES[:2], *EXCEL_SUFFIXES))
        raw = path.read_bytes()
    if raw.startswith(_ZIP) or path.suffix.lower() in EXCEL_SUFFIXES:
        return _read_workbook(path, raw, is_text, sheet)
    if sheet is not None:
        raise UserError(f"sheet must be left out for text, got {sheet!r}: {path.name} has none")
    text, name, notes = _decoded(path, raw, encoding)
    return _read_text(path, text, is_text, name, notes)


def _decoded(path: Path, raw: bytes, encoding: str | None) -> tuple[str, str, tuple[str, ...]]:
    """Give the text of a file, its encoding, and a note where that is a guess."""
    notes: tuple[str, ...] = ()
    name = encoding or _marked_encoding(raw)
    try:
        try:
            text = raw.decode(name)
        except UnicodeDecodeError:
            if encoding is not None:
                raise
            name, text = WINDOWS, raw.decode(WINDOWS)
            word = re.search(r"\w*[^\x00-\x7f]\w*", text)
            notes = (
                f"{path.name} is not in UTF-8 and was read as Windows-1252, with "
                f"{word[0] if word else ''!r} in it: --set data.options.encoding=NAME for another",
            )
    except (UnicodeDecodeError, LookupError) as error:
        cure = "save it as CSV UTF-8, or name its encoding: --set data.options.encoding=NAME"
        tried = f" as {encoding}" if encoding else ""
        raise UserError(
            f"root must be text in UTF-8, got {path}, which cannot be read{tried}: {cure}"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n"), name, notes


def _marked_encoding(raw: bytes) -> str:
    """Tell UTF-16, which Excel calls Unicode text, by its mark or its zeros; all else is UTF-8."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    start = raw[:1000]
    if b"\0" in start:
        return "utf-16-le" if b"\0" in start[1::2] else "utf-16-be"
    return "utf-8-sig"


def _read_text(
    path: Path,
    text: str,
    is_text: Callable[[str], bool],
    encoding: str,
    notes: tuple[str, ...],
) -> TableFile:
    pandas = require("pandas", extra="images", needed_by="reading tables")
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
        raise UserError(f"root must be a table, got {path.name}: {error}") from error
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame(columns=range(len(header)))
    keep = ~_empty_rows(frame)
    if not keep.any():
        lines = sum(1 for _ in _records(path, io.StringIO(text), delimiter))
        raise UserError(f"root must have a header and rows, got {path} with {lines} lines")
    named = [i for i, name in enumerate(header) if name]
    names = [header[i] for i in named]
    check_different(names)
    # a row that is too long makes an index of its first cell, one that is too short lacks the last
    if not isinstance(frame.index, pandas.RangeIndex) or (_missing(frame.iloc[:, -1]) & keep).any():
        _check_records(path, text, delimiter)
    infinite = {header[i] for i in named if _has_infinity(frame[i])}
    if infinite:  # the error shows what is written
        wanted = is_text
        return _read_text(
            path, text, lambda name: wanted(name) or name in infinite, encoding, notes
        )
    if not keep.all():
        frame = frame[keep]
    frame = frame[named].set_axis(names, axis=1)
    if delimiter != ",":
        frame, note = _with_decimal_points(frame, is_text)
        notes += note
    rows = header_row + 1 + np.flatnonzero(keep)
    return TableFile(path, frame, rows, len(header) - len(named), notes, encoding)


def read_head(
    path: Path, rows: int = 50, sheet: str | None = None
) -> tuple[list[str], list[list[str]]]:
    """Read the names of the columns and the first rows only, to see what a file is about."""
    with path.open("rb") as file:
        raw = file.read(_HEAD)
        if raw.startswith(_ZIP) or path.suffix.lower() in EXCEL_SUFFIXES:
            raw += file.read()
            cells, _ = _sheet_rows(path, raw, sheet, most=rows + 1)
            texts = [["" if cell is None else str(cell) for cell in row] for _, row in cells]
            header, *found = texts or [[]]
            return header, [row + [""] * (len(header) - len(row)) for row in found]
    # what is cut off in the middle of a letter does not matter here
    encoding = _marked_encoding(raw)
    text = codecs.getincrementaldecoder(encoding)(errors="surrogateescape").decode(raw)
    if encoding == "utf-8-sig" and re.search("[\udc80-\udcff]", text):
        text = raw.decode(WINDOWS, errors="replace")
    lines = [line for line in text.splitlines(keepends=True)[: 2 * rows] if line.strip()]
    records = csv.reader(lines, delimiter=_delimiter(lines), skipinitialspace=True)
    header, *found = [[cell.strip() for cell in record] for record in records] or [[]]
    return header, found[:rows]


def _with_decimal_points(
    frame: "pd.DataFrame", is_text: Callable[[str], bool]
) -> "tuple[pd.DataFrame, tuple[str, ...]]":
    """Read 1,5 as 1.5 in the columns where all cells can be meant so, and say in which."""
    changed = {}
    for name in frame:
        if is_text(name) or frame[name].dtype.kind in NUMERIC_KINDS:
            continue
        texts = texts_of(frame[name])
        numbers = {text for text in texts if text.lower() not in MISSING}
        if _have_decimal_commas(numbers):
            points = {text: text.replace(".", "").replace(",", ".") for text in numbers}
            changed[name] = [points.get(text, text) for text in texts]
    if not changed:
        return frame, ()
    columns = ", ".join(map(repr, changed))
    return frame.assign(**changed), (f"Decimal commas were read as points: {columns}",)


def _have_decimal_commas(numbers: Iterable[str]) -> bool:
    """Tell whether texts are numbers with decimal commas, and cannot be anything else.

    1,234 may be a thousand and 1.234 a decimal number, unless others in the column say.
    """
    with_comma = [text for text in numbers if "," in text]
    if not with_comma or not all(map(_DECIMAL_COMMA.fullmatch, numbers)):
        return False
    if any("." in text for text in numbers):
        return any("." in text for text in with_comma)
    return not all(map(_THOUSANDS.fullmatch, with_comma))


def _read_workbook(
    path: Path, raw: bytes, is_text: Callable[[str], bool], sheet: str | None
) -> TableFile:
    pandas = require("pandas", extra="images", needed_by="reading tables")
    rows, notes = _sheet_rows(path, raw, sheet)
    if len(rows) < 2:
        raise UserError(f"root must have a header and rows, got {path} with {len(rows)} rows")
    (_, first), *others = rows
    header = ["" if cell is None else str(cell) for cell in first]
    names = [name for name in header if name]
    check_different(names)
    columns = {}
    for place, name in enumerate(header):
        cells = [row[place] if place < len(row) else None for _, row in others]
        if name:
            columns[name] = pandas.Series(cells, dtype=object if is_text(name) else None)
    numbers = np.array([number for number, _ in others])
    unnamed = max(len(row) for _, row in rows) - len(names)
    return TableFile(path, pandas.DataFrame(columns), numbers, unnamed, notes)


def _sheet_rows(
    path: Path, raw: bytes, sheet: str | None, most: int | None = None
) -> tuple[list[tuple[int, list[Any]]], tuple[str, ...]]:
    """Give the rows of a sheet that are not blank, with their numbers, and a note on the sheet."""
    openpyxl = require("openpyxl", extra="excel", needed_by=f"reading {path.name}")
    rows: list[tuple[int, list[Any]]] = []
    wrong = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and rules, which are not wanted
            book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
            known = [each.title for each in book.worksheets]
            for number, cells in enumerate(
                book[sheet].iter_rows() if sheet in known else book.worksheets[0].iter_rows(), 1
            ):
                values = [_cell_value(cell) for cell in cells]
                while values and values[-1] is None:
                    values.pop()
                if values:
                    rows.append((number, values))
                if len(rows) == most:
                    break
    except Exception as error:  # a damaged file makes openpyxl raise almost anything
        wrong = str(error).partition("\n")[0] or type(error).__name__
    if wrong:
        raise UserError(
            f"root must be an Excel workbook, got {path} ({wrong}): save it again as .xlsx or CSV"
        )
    if sheet is not None:
        check_known("sheet", sheet, known)
        return rows, ()
    if len(known) == 1:
        return rows, ()
    return rows, (
        f"Of the sheets {format_list(known)} the first is read: --set data.options.sheet=NAME "
        "takes another",
    )


def _cell_value(cell: Any) -> Any:
    """Give a cell as it is shown: None where it is empty or an error, numbers as numbers."""
    value = cell.value
    if value is None or cell.data_type == "e":
        return None
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, int | float):
        zeros = cell.number_format
        padded = re.fullmatch("0{2,}", zeros) and value >= 0 and value == int(value)
        return f"{int(value):0{len(zeros)}d}" if padded else value
    return text_of(value)


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
        raise UserError(
            f"root must be a table, got {path.name} with {error} in line {reader.line_num}: "
            "check the quotes"
        ) from error


def _check_records(path: Path, text: str, delimiter: str) -> None:
    """Refuse wrong quotes and rows that do not have as many cells as the header."""
    width = 0
    for row, cells in _records(path, io.StringIO(text), delimiter):
        width = width or len(cells)
        if len(cells) != width:
            raise UserError(
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
