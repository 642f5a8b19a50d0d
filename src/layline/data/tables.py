"""Reading tables from CSV and Excel files with pandas.

All cells are kept as they are written: what "NA" means in a column is decided by
:mod:`layline.data.table_encoding`, and a label "007" keeps its zeros.
"""

import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from layline.data.dataset import find_file, format_list
from layline.data.table_encoding import MISSING, check_unique, texts_of
from layline.utils.errors import UserError, require
from layline.utils.validation import check_known

if TYPE_CHECKING:
    import pandas as pd

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
EXCEL_SUFFIXES = (".xlsx", ".xlsm")
_ZIP = b"PK\x03\x04"  # a workbook is a ZIP file
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


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
    def row_names(self) -> list[str]:
        """The name of each row in messages."""
        return [f"row {row}" for row in self.frame.index]

    def read_column(self, argument: str, name: str) -> list[str]:
        """Return the cells of a column, none of which may be empty; ``argument`` is its setting."""
        check_known(f"column {argument}", name, [str(column) for column in self.frame])
        cells = texts_of(self.frame[name])
        empty = [row for row, cell in zip(self.row_names, cells, strict=True) if not cell]
        if empty:
            raise UserError(
                f"Column {name!r} has no value in {format_list(empty)}. Fill in the cells, or "
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
    notes: list[str] = []
    delimiter = ","
    if raw.startswith(_ZIP) or path.suffix.lower() in EXCEL_SUFFIXES:
        frame = _read_workbook(path, raw, sheet, most, notes)
    elif sheet is not None:
        raise UserError(f"{path.name} is not a workbook, so it has no sheet {sheet!r}.")
    else:
        text = _decode(path, raw, encoding, notes)
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
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
            why = str(error).removeprefix("Error tokenizing data. C error: ").strip()
            raise UserError(
                f"{path.name} cannot be read as a table: {why}. Put quotes around cells that "
                "contain the delimiter or a line break."
            ) from None
    frame.index = frame.index + 1
    frame = frame[frame.apply(lambda column: [text != "" for text in texts_of(column)]).any(axis=1)]
    if len(frame) < 2:
        raise UserError(f"{path} must have a header and at least one row.")
    header = texts_of(frame.iloc[0])
    named = [place for place, name in enumerate(header) if name]
    check_unique([header[place] for place in named])
    frame = frame.iloc[1:, named].set_axis([header[place] for place in named], axis=1)
    if len(named) < len(header):
        notes.append("Columns without a name in the header are not used.")
    if delimiter == ";":  # the format of countries with decimal commas
        frame = _replace_decimal_commas(frame, notes)
    return TableFile(path, frame, tuple(notes))


def _decode(path: Path, raw: bytes, encoding: str | None, notes: list[str]) -> str:
    usual = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return raw.decode(encoding or usual).lstrip("\r\n")
    except (UnicodeDecodeError, LookupError):
        if encoding is not None or b"\0" in raw:
            raise UserError(
                f"{path} cannot be read as {encoding or 'text'}. Save it as CSV in UTF-8, or set "
                "the option encoding."
            ) from None
    notes.append(
        f"{path.name} is not in UTF-8; it is read as Windows-1252. The option is encoding."
    )
    return raw.decode("cp1252", errors="replace").lstrip("\r\n")


def _read_workbook(
    path: Path, raw: bytes, sheet: str | None, rows: int | None, notes: list[str]
) -> "pd.DataFrame":
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
        notes.append(f"The first sheet of {format_list(sheets)} is read. The option is sheet.")
    return frame


def _replace_decimal_commas(frame: "pd.DataFrame", notes: list[str]) -> "pd.DataFrame":
    """Write points in columns where all cells are numbers, some of them with decimal commas."""
    changed = {}
    for name in frame:
        texts = texts_of(frame[name])
        numbers = [text for text in texts if text.lower() not in MISSING]
        if all(map(_DECIMAL_COMMA.fullmatch, numbers)) and any("," in text for text in numbers):
            changed[name] = [text.replace(",", ".") for text in texts]
    if changed:
        notes.append(f"Decimal commas are read as points in {', '.join(map(repr, changed))}.")
    return frame.assign(**changed)
