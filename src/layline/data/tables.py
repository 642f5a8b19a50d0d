"""Reading tables from CSV and Excel files with pandas.

All cells are kept as they are written: what "NA" means in a column is decided by
:mod:`layline.data.table_encoding`, and a label "007" keeps its zeros.
"""

import io
import re
import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from layline.data.dataset import find_file, format_list
from layline.data.table_encoding import MISSING, check_unique, texts_of
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_known

if TYPE_CHECKING:
    import pandas as pd

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
EXCEL_SUFFIXES = (".xlsx", ".xlsm")
_ZIP = b"PK\x03\x04"  # a workbook is a ZIP file
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file with a header and columns.

    Attributes:
        path: The file.
        frame: The columns that have a name; its index has the row numbers of the file, from 1.
        notes: What a user should know about the reading, one sentence each.
    """

    path: Path
    frame: "pd.DataFrame"
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[int]:
        """The number of each row in the file."""
        return [int(row) for row in self.frame.index]

    @property
    def row_names(self) -> list[str]:
        """The name of each row in messages."""
        return [f"row {row}" for row in self.rows]

    def read_column(self, argument: str, name: str) -> list[str]:
        """Return the cells of a column, none of which may be empty.

        Args:
            argument: The setting that names the column, for the message.
            name: The column.
        """
        if name not in self.frame:
            names = [str(column) for column in self.frame]
            near = get_close_matches(name.lower(), [each.lower() for each in names], n=1)
            cure = [f"Did you mean {each!r}?" for each in names if each.lower() in near]
            raise UserError(
                f"{self.path.name} has no column {name!r} ({argument}). "
                + " ".join([*cure, f"The columns are {format_list(names)}."])
            )
        cells = texts_of(self.frame[name])
        empty = [row for row, cell in zip(self.rows, cells, strict=True) if not cell]
        if empty:
            raise UserError(
                f"Column {name!r} has no value in row {format_list(empty)}. Fill in the cells, or "
                "delete the rows."
            )
        return cells

    def read_optional(self, argument: str, name: str | None) -> list[str] | None:
        """Return the cells of a column that may be absent if it has its default name."""
        if name is None or (name == argument and name not in self.frame):
            return None
        return self.read_column(argument, name)


def read_table_file(
    root: str | Path | bytes,
    sheet: str | None = None,
    encoding: str | None = None,
    rows: int | None = None,
) -> TableFile:
    """Read a CSV file, with commas, semicolons or tabs, or a sheet of an Excel workbook.

    Args:
        root: The file, a folder with a single table, or the content of a file.
        sheet: The sheet of a workbook; the first if not given.
        encoding: The encoding of a text file; UTF-8 or UTF-16, else Windows-1252, if not given.
        rows: Read only the first rows.
    """
    pandas = require("pandas", extra="images", needed_by="reading tables")
    if isinstance(root, bytes):
        path, raw = Path("the file"), root
    else:
        path = find_file(root, (*TEXT_SUFFIXES[:2], *EXCEL_SUFFIXES))
        raw = path.read_bytes()
    most = None if rows is None else rows + 1  # with the header
    notes: tuple[str, ...] = ()
    if raw.startswith(_ZIP) or path.suffix.lower() in EXCEL_SUFFIXES:
        frame, notes = _read_workbook(path, raw, sheet, most)
        delimiter = ","
    elif sheet is not None:
        raise UserError(f"{path.name} is not a workbook, so it has no sheet {sheet!r}.")
    else:
        text, notes = _decode(path, raw, encoding)
        header = text.partition("\n")[0]
        delimiter = max(",;\t", key=header.count)
        try:
            frame = pandas.read_csv(
                io.StringIO(text),
                sep=delimiter,
                header=None,
                dtype=object,
                keep_default_na=False,
                skipinitialspace=True,
                skip_blank_lines=False,
                nrows=most,
            )
        except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
            why = re.sub(r"Error tokenizing data\. C error: ", "", str(error)).strip()
            raise UserError(
                f"{path.name} cannot be read as a table: {why}. Put quotes around cells that "
                "contain the delimiter or a line break."
            ) from None
    frame.index = frame.index + 1
    blank = frame.apply(lambda column: [not text for text in texts_of(column)]).all(axis=1)
    frame = frame[~blank]
    if len(frame) < 2:
        raise UserError(f"{path} must have a header and at least one row.")
    header_cells = texts_of(frame.iloc[0])
    named = [place for place, name in enumerate(header_cells) if name]
    check_unique([header_cells[place] for place in named])
    frame = frame.iloc[1:, named].set_axis([header_cells[place] for place in named], axis=1)
    if len(named) < len(header_cells):
        notes += ("Columns without a name in the header are not used.",)
    if delimiter != ",":
        frame, more = _read_decimal_commas(frame)
        notes += more
    return TableFile(path, frame, notes)


def _decode(path: Path, raw: bytes, encoding: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the text of a file, with a note if its encoding is a guess."""
    usual = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return raw.decode(encoding or usual).lstrip("\r\n"), ()
    except (UnicodeDecodeError, LookupError):
        if encoding is not None or b"\0" in raw:
            raise UserError(
                f"{path} cannot be read as {encoding or 'text'}. Save it as CSV in UTF-8, or set "
                "the option encoding."
            ) from None
    note = f"{path.name} is not in UTF-8; it is read as Windows-1252. The option is encoding."
    return raw.decode("cp1252", errors="replace").lstrip("\r\n"), (note,)


def _read_workbook(
    path: Path, raw: bytes, sheet: str | None, rows: int | None
) -> tuple["pd.DataFrame", tuple[str, ...]]:
    pandas = require("pandas", extra="images", needed_by="reading tables")
    require("openpyxl", extra="excel", needed_by=f"reading {path.name}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles
            book = pandas.ExcelFile(io.BytesIO(raw), engine="openpyxl")
            sheets = [str(name) for name in book.sheet_names]
            chosen = sheet if sheet in sheets else sheets[0]
            frame = book.parse(chosen, header=None, dtype=object, keep_default_na=False, nrows=rows)
    except Exception as error:  # openpyxl raises almost anything for damaged files
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path} cannot be read as an Excel workbook: {why}") from None
    if sheet is not None:
        check_known("sheet", sheet, sheets)
    elif len(sheets) > 1:
        note = f"The first sheet of {format_list(sheets)} is read. The option is sheet."
        return frame, (note,)
    return frame, ()


def _read_decimal_commas(frame: "pd.DataFrame") -> tuple["pd.DataFrame", tuple[str, ...]]:
    """Replace decimal commas by points in columns where all cells are such numbers."""
    changed = {}
    for name in frame:
        texts = texts_of(frame[name])
        numbers = [text for text in texts if text.lower() not in MISSING]
        with_comma = [text for text in numbers if _DECIMAL_COMMA.fullmatch(text)]
        integers = sum(_INTEGER.fullmatch(text) is not None for text in numbers)
        if len(with_comma) + integers < len(numbers):
            continue
        if not all(map(_THOUSANDS.fullmatch, with_comma)):  # 1,234 may be a thousand
            changed[name] = [text.replace(",", ".") for text in texts]
    if not changed:
        return frame, ()
    columns = ", ".join(map(repr, changed))
    return frame.assign(**changed), (f"Decimal commas are read as points in {columns}.",)
