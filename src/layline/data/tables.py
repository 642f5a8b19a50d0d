"""Tables: reading CSV and Excel files, and encoding cells as the numbers that a network takes.

All cells of a file are kept as they are written, so a label "007" keeps its zeros.

A column is numeric if all its training cells are numbers, booleans or missing, and categorical
otherwise. A missing number becomes the median; where training had missing numbers, a second column
of zeros and ones marks them. A categorical column becomes a column of zeros and ones for each
category; a value that training did not have is none of them.

In a numeric column an empty cell, NA, N/A, NaN, null, None and ? are missing, in upper or lower
case; in a categorical column they are categories. A data frame and the CSV file that it would be
written to are encoded alike.
"""

import hashlib
import io
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from layline.data.class_order import is_number
from layline.data.dataset import Indices, find_file, format_list
from layline.data.labels import natural_order
from layline.utils.validation import UserError, check_known, require

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float64]
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
EXCEL_SUFFIXES = (".xlsx", ".xlsm")
_ZIP = b"PK\x03\x04"  # a workbook is a ZIP file
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_WORDS = {"true": 1.0, "false": 0.0, "inf": math.inf, "infinity": math.inf}
_MANY = 50  # categories; more must repeat
_LARGEST = float(np.finfo(np.float32).max)  # networks compute in float32
_STRICT = {"strict": True, "extra": "forbid", "allow_inf_nan": False}  # for pydantic


def texts_of(column: "pd.Series[Any]") -> list[str]:
    """Convert cells to texts as in a CSV file; empty if missing."""
    return [text_of(cell) for cell in column.to_numpy(dtype=object)]


def text_of(cell: Any) -> str:
    """Convert a cell to a text; empty if missing."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, Real) and not isinstance(cell, Integral):
        number = float(cell)
        if math.isnan(number):
            return ""
        return repr(int(number)) if number.is_integer() else repr(number)
    text = str(cell).removesuffix(" 00:00:00")  # a date without a time
    return "" if text in ("None", "NaT", "<NA>") else text


def _check_unique(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"There are two columns {twice[0]!r}. Rename one.")


@dataclass(frozen=True, eq=False)
class TableFile:
    """A table of texts, empty where missing; the index of its frame has the row numbers."""

    path: Path
    frame: "pd.DataFrame"
    notes: tuple[str, ...] = ()

    @property
    def row_names(self) -> list[str]:
        """The name of each row in messages."""
        return [f"row {row}" for row in self.frame.index]

    def read_column(self, argument: str, name: str) -> list[str]:
        """Return the cells of a column, none of which may be empty; ``argument`` is its setting."""
        check_known(f"column {argument}", name, list(self.frame))
        cells: list[str] = self.frame[name].tolist()
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
    rows: int | None = None,
) -> TableFile:
    """Read a CSV file, with commas, semicolons or tabs, or a sheet of an Excel workbook.

    The root is the file, its content, or a folder with a single table. Only the first ``rows`` are
    read if given. Text is UTF-8 or UTF-16, else Windows-1252.
    """
    if isinstance(root, bytes):
        return _parse(Path("the file"), root, sheet, rows)
    path = find_file(root, (*TEXT_SUFFIXES[:2], *EXCEL_SUFFIXES))
    about = path.stat()
    version = (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size)
    return _read_version(path, sheet, rows, version)


@lru_cache(maxsize=4)
def _read_version(
    path: Path, sheet: str | None, rows: int | None, version: tuple[int, ...]
) -> TableFile:
    """Read a file, but only once per version: the runs of a grid share a table."""
    return _parse(path, path.read_bytes(), sheet, rows)


def _parse(path: Path, raw: bytes, sheet: str | None, rows: int | None) -> TableFile:
    pandas = require("pandas", extra="images", needed_by="reading tables")
    notes: list[str] = []
    # the header is read as a row, so that its cells are not changed
    how: dict[str, Any] = {"header": None, "dtype": object, "keep_default_na": False}
    how["nrows"] = None if rows is None else rows + 1
    delimiter = ","
    if raw.startswith(_ZIP) or path.suffix.lower() in EXCEL_SUFFIXES:
        frame = _read_workbook(path, raw, sheet, how, notes)
    elif sheet is not None:
        raise UserError(f"{path.name} is not a workbook, so it has no sheet {sheet!r}.")
    else:
        text = _decode(path, raw, notes)
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        how |= {"sep": delimiter, "skipinitialspace": True, "skip_blank_lines": False}
        try:
            frame = pandas.read_csv(io.StringIO(text), **how)
        except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
            raise UserError(
                f"{path.name} cannot be read as a table: {error}. Put quotes around cells that "
                "contain the delimiter or a line break."
            ) from None
    frame = frame.map(text_of).set_axis(frame.index + 1)
    frame = frame[(frame != "").any(axis=1)]
    if len(frame) < 2:
        raise UserError(f"{path} must have a header and at least one row.")
    header = frame.iloc[0].tolist()
    frame = frame.iloc[1:].set_axis(header, axis=1).loc[:, [name != "" for name in header]]
    _check_unique(list(frame))
    if "" in header:
        notes.append("Columns without a name in the header are not used.")
    if delimiter == ";":  # the format of countries with decimal commas
        frame = _replace_decimal_commas(frame, notes)
    return TableFile(path, frame, tuple(notes))


def _decode(path: Path, raw: bytes, notes: list[str]) -> str:
    usual = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return raw.decode(usual).lstrip("\r\n")
    except UnicodeDecodeError:
        if b"\0" in raw:
            raise UserError(f"{path} is not a text file. Save it as CSV in UTF-8.") from None
    notes.append(f"{path.name} is read as Windows-1252. If this is wrong, save it in UTF-8.")
    return raw.decode("cp1252", errors="replace").lstrip("\r\n")


def _read_workbook(
    path: Path, raw: bytes, sheet: str | None, how: dict[str, Any], notes: list[str]
) -> "pd.DataFrame":
    pandas = require("pandas", extra="images", needed_by="reading tables")
    require("openpyxl", extra="excel", needed_by=f"reading {path.name}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles
            book = pandas.ExcelFile(io.BytesIO(raw), engine="openpyxl")
            sheets = [str(name) for name in book.sheet_names]
            frame = book.parse(sheet if sheet in sheets else sheets[0], **how)
    except Exception as error:  # openpyxl raises almost anything for damaged files
        raise UserError(f"{path} cannot be read as an Excel workbook: {error}") from None
    if sheet is not None:
        check_known("sheet", sheet, sheets)
    elif len(sheets) > 1:
        notes.append(f"The first sheet of {format_list(sheets)} is read. The option is sheet.")
    return frame


def _replace_decimal_commas(frame: "pd.DataFrame", notes: list[str]) -> "pd.DataFrame":
    """Write points in columns where all cells are numbers, some of them with decimal commas."""
    changed = {}
    for name in frame:
        numbers = [text for text in frame[name] if text.lower() not in _MISSING]
        if all(map(_DECIMAL_COMMA.fullmatch, numbers)) and any("," in text for text in numbers):
            changed[name] = [text.replace(",", ".") for text in frame[name]]
    if changed:
        notes.append(f"Decimal commas are read as points in {', '.join(map(repr, changed))}.")
    return frame.assign(**changed)


def numbers_of(column: "pd.Series[Any]") -> tuple[Values, NDArray[np.bool_]]:
    """Return the numbers of a column, NaN where missing, and which cells are words instead."""
    if column.dtype.kind in "biuf":  # booleans, integers and floats
        values: Values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.zeros(len(column), dtype=bool)
    texts = texts_of(column)
    number = {text: _number(text) for text in set(texts)}
    words = np.array([number[text] is None for text in texts], dtype=bool)
    return np.array([number[text] for text in texts], dtype=np.float64), words  # None becomes NaN


def _number(text: str) -> float | None:
    word = text.lower()
    if word in _MISSING:
        return math.nan
    return float(text) if is_number(text) else _WORDS.get(word.lstrip("+-"))


@dataclass(frozen=True)
class NumericColumn:
    """Numbers; a missing one becomes the median, and an indicator is a column that marks them."""

    __pydantic_config__: ClassVar = _STRICT
    name: str
    median: float
    indicator: bool


@dataclass(frozen=True)
class CategoricalColumn:
    """Words; a word that is not among the categories of training is encoded as zeros."""

    __pydantic_config__: ClassVar = _STRICT
    name: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class TableEncoding:
    """How the cells of a table become numbers: learned on the training rows, kept with the model.

    The numeric columns come first. ``id_column`` names the rows and is not an input.
    """

    __pydantic_config__: ClassVar = _STRICT
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    id_column: str | None = None

    def __post_init__(self) -> None:
        if len(self.names) == 0:
            raise UserError("The table has no columns with values to learn from.")
        _check_unique(self.names)

    @classmethod
    def fit(cls, frame: "pd.DataFrame", rows: Indices, id_column: str | None = None) -> Self:
        """Learn from the training ``rows``; a column that is empty there is not used."""
        _check_unique(list(frame))
        numeric, categorical = [], []
        for name in frame:
            if name == id_column:
                continue
            column = frame[name].iloc[rows]
            values, words = numbers_of(column)
            missing = np.isnan(values)
            if words.any():
                categorical.append(CategoricalColumn(name, _categories(column, words)))
            elif not missing.all():
                median = float(np.nanmedian(values))
                numeric.append(NumericColumn(name, median, bool(missing.any())))
        return cls(tuple(numeric), tuple(categorical), id_column)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table that are inputs."""
        return tuple(column.name for column in self.numeric + self.categorical)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that :meth:`apply` returns."""
        names = []
        for number in self.numeric:
            names += [number.name, *([f"{number.name} missing"] if number.indicator else [])]
        return (*names, *(f"{c.name}={value}" for c in self.categorical for value in c.categories))

    def apply(self, frame: "pd.DataFrame", rows: Sequence[str] | None = None) -> Values:
        """Turn cells into numbers, (rows, columns); ``rows`` names them in an error."""
        _check_unique(list(frame))
        for name in self.names:
            if name not in frame:
                raise UserError(
                    f"The table has no column {name!r}, which the model was trained with. Its "
                    f"columns are {format_list(frame)}."
                )
        encoded: list[NDArray[Any]] = []
        for number in self.numeric:
            values, words = numbers_of(frame[number.name])
            wrong = words | (np.abs(values) > _LARGEST)
            if wrong.any():
                i = int(wrong.argmax())
                cell = text_of(frame[number.name].iloc[i])
                place = f" in {rows[i]}" if rows else ""
                raise UserError(
                    f"Column {number.name!r} must hold finite numbers, got {cell!r}{place}. "
                    "Correct it, or leave the cell empty."
                )
            missing = np.isnan(values)
            encoded += [np.where(missing, number.median, values)]
            encoded += [missing] if number.indicator else []
        for column in self.categorical:
            texts = np.array(texts_of(frame[column.name]), dtype=object)
            encoded += [texts == category for category in column.categories]
        return np.stack(encoded, axis=1).astype(np.float64)

    def encode_rows(self, frame: "pd.DataFrame", row_names: Sequence[str]) -> "Rows":
        """Encode rows; each is named by its id, or by its number where it has none."""
        names = list(row_names)
        if self.id_column in frame:
            ids = texts_of(frame[self.id_column])
            names = [own or row for own, row in zip(ids, row_names, strict=True)]
        return Rows(self.apply(frame, row_names), names, self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Build an encoding from untrusted plain data; a wrong type is a ``UserError``."""
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(cls).validate_json(json.dumps(data))
        except (ValueError, TypeError) as error:
            raise UserError("The table encoding of the model file is damaged.") from error


def _categories(column: "pd.Series[Any]", words: NDArray[np.bool_]) -> tuple[str, ...]:
    """List the different values, unless they are decimal commas or names of the rows."""
    texts = texts_of(column)
    first = texts[int(words.argmax())]
    if all(_COMMA.fullmatch(text) for text, word in zip(texts, words, strict=True) if word):
        raise UserError(
            f"Column {column.name!r} has numbers with commas, such as {first!r}. Write decimal "
            "points."
        )
    different = set(texts)
    if len(different) > _MANY and len(different) > len(texts) / 2:
        raise UserError(
            f"Column {column.name!r} has {len(different)} different texts in {len(texts)} training "
            "rows, too many for categories. Use it as id or group, or drop it."
        )
    return tuple(natural_order(different))


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Samples that are rows of a table: their encoded cells, (n, columns), and their names."""

    values: Values
    names: Sequence[str]
    encoding: TableEncoding

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, keep: Indices) -> Self:
        """Select rows, in the order given."""
        return replace(self, values=self.values[keep], names=[self.names[i] for i in keep])

    def digest(self) -> str:
        """Hash the rows in their order: the numbers that the network gets."""
        about = json.dumps(asdict(self.encoding), sort_keys=True)
        digest = hashlib.blake2b(f"{self.values.shape} {about}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.values, dtype="<f8").data)
        return digest.hexdigest()


@final
@dataclass(frozen=True, eq=False)
class UnencodedRows:
    """Rows of a table before its splits are drawn: the encoding is learned from training rows."""

    frame: "pd.DataFrame"  # the inputs, and the column that names the rows
    names: Sequence[str]  # of the rows in an error
    id_column: str | None

    def __len__(self) -> int:
        return len(self.names)

    def digest(self) -> str:
        """Hash the cells in their order."""
        text = self.frame.to_csv(index=False)
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()

    def encode(
        self, train: Indices, known: TableEncoding | None = None
    ) -> tuple[Rows, tuple[str, ...]]:
        """Learn the encoding from the training rows, or use one; returns notes as well."""
        if known is None:
            encoding = TableEncoding.fit(self.frame, train, self.id_column)
            why = "is empty in the training rows"
        else:
            encoding = replace(known, id_column=self.id_column or known.id_column)
            why = "is not one that the model was trained with"
        rows = encoding.encode_rows(self.frame, self.names)
        unused = [name for name in self.frame if name not in (*encoding.names, encoding.id_column)]
        notes = [f"Column {name!r} {why}. It is not used." for name in unused]
        for column in encoding.categorical:
            new = {*texts_of(self.frame[column.name])} - {*column.categories}
            if new:
                notes.append(
                    f"Column {column.name!r} has values that are not in the training rows: "
                    f"{format_list(map(repr, natural_order(new)))}."
                )
        return rows, tuple(notes)


def as_rows(samples: Any, encoding: TableEncoding) -> Rows:
    """Convert a data frame, a dict of columns, or a CSV or Excel file (path or bytes) to rows.

    Arrays also work if the model has numeric columns only, in the order of its columns.
    """
    pandas = require("pandas", extra="images", needed_by="predicting from a table")
    if isinstance(samples, str | Path | bytes):
        file = read_table_file(samples)
        return encoding.encode_rows(file.frame, file.row_names)
    try:
        if isinstance(samples, Mapping):  # columns of Series belong together by place, not by index
            columns = {name: c if isinstance(c, str) else list(c) for name, c in samples.items()}
            samples = pandas.DataFrame(columns)
        elif isinstance(samples, np.ndarray) and not encoding.categorical:
            samples = pandas.DataFrame(samples, columns=list(encoding.names))
        elif not isinstance(samples, pandas.DataFrame):
            raise TypeError(f"got {type(samples).__name__}")
    except (ValueError, TypeError) as error:
        raise UserError(
            "The samples must be a data frame or the path of a CSV file, with the columns "
            f"{format_list(encoding.names)}: {error}."
        ) from None
    return encoding.encode_rows(samples, [f"row {row}" for row in range(len(samples))])
