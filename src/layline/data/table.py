"""Tables: reading a file, cells, and how they become the numbers that a network takes."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from layline.data.base import Indices, listed, only_file
from layline.data.labels import is_number, natural_order

_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Delimited:
    """The cells of a file.

    Attributes:
        path: The file.
        columns: The cells below each name of the header, without blanks around them.
        rows: Which row of the file each cell stands in, 1 for the header.
        unnamed: How many columns were left out because the header has no name for them.
    """

    path: Path
    columns: dict[str, list[str]]
    rows: list[int]
    unnamed: int = 0

    def column(self, argument: str, name: str) -> list[str]:
        """Give a column that has to be there."""
        if name not in self.columns:
            near = get_close_matches(str(name), self.columns, n=1, cutoff=0.5)
            near = near or [column for column in self.columns if column.lower() == name.lower()]
            cure = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"{argument} must be a column of {self.path.name}, got {name!r}: "
                f"{cure}it has {', '.join(self.columns)}"
            )
        return self.columns[name]

    def filled(self, argument: str, name: str) -> list[str]:
        """Give a column that has to be there, without an empty cell."""
        cells = self.column(argument, name)
        empty = [row for row, cell in zip(self.rows, cells, strict=True) if not cell]
        if empty:
            raise ValueError(
                f"column {name!r} must be filled, got nothing in row {listed(empty)}: "
                "fill the cells or delete the rows"
            )
        return cells

    def optional(self, argument: str, name: str | None, usual: str) -> list[str] | None:
        """Give a column that may be absent under its usual name, but not under another."""
        if name is None or (name == usual and name not in self.columns):
            return None
        return self.filled(argument, name)


def read_delimited(root: str | Path) -> Delimited:
    """Read a file with commas, semicolons or tabs, whichever divide its first line."""
    path = only_file(root, (".csv", ".tsv"))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"root must be text in UTF-8, got {path}: save it as CSV with that encoding"
        ) from error
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    delimiter = max(
        _DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), []))
    )
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True, skipinitialspace=True)
    records: list[tuple[int, list[str]]] = []
    try:
        for row, record in enumerate(reader, start=1):
            if any(cells := [cell.strip() for cell in record]):
                records.append((row, cells))
    except csv.Error as error:
        raise ValueError(
            f"root must be a table, got {path.name} with {error} in line {reader.line_num}: "
            "check the quotes"
        ) from error
    if len(records) < 2:
        raise ValueError(f"root must have a header and rows, got {path} with {len(records)} lines")
    return _by_column(path, records[0][1], records[1:])


def _by_column(
    path: Path, header: Sequence[str], records: list[tuple[int, list[str]]]
) -> Delimited:
    named = [name for name in header if name]
    twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
    if twice:
        raise ValueError(f"columns must have different names, got {twice[0]!r} twice: rename one")
    for row, cells in records:
        if len(cells) != len(header):
            raise ValueError(
                f"every row must have {len(header)} cells like the header, got {len(cells)} in "
                f"row {row} of {path.name}: put quotes around a cell that holds the delimiter"
            )
    columns = zip(*(cells for _, cells in records), strict=True)
    return Delimited(
        path,
        {name: list(cells) for name, cells in zip(header, columns, strict=True) if name},
        [row for row, _ in records],
        unnamed=len(header) - len(named),
    )


Values = NDArray[np.float64]

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_WORDS = {"true": 1.0, "false": 0.0, "inf": math.inf, "infinity": math.inf}
_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)


def texts_of(cells: Iterable[Any]) -> list[str]:
    """Write every cell as a text; empty where there is nothing."""
    return [_text(cell) for cell in cells]


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, Real) and not isinstance(cell, bool):
        number = float(cell)  # a float32 with all its digits
        if math.isnan(number):
            return ""
        return repr(int(number)) if number.is_integer() else repr(number)
    text = str(cell)
    return "" if text in ("None", "NaT", "<NA>") else text


def numbers_if_all(column: str, cells: Sequence[str]) -> Values | None:
    """Give the numbers of a column, NaN for what is missing; None if some cell is a word."""
    values = [_number(cell) for cell in cells]
    words = [cell for cell, value in zip(cells, values, strict=True) if value is None]
    if not words:
        return _finite(column, cells, values, None)
    if all(_COMMA.fullmatch(word) for word in words):
        raise ValueError(
            f"column {column!r} must have decimal points, got {words[0]!r}: replace the commas"
        )
    return None


def numbers_of(column: str, cells: Sequence[str], rows: Sequence[str] | None = None) -> Values:
    """Give the numbers of a column that has to be numeric.

    Args:
        column: Its name.
        cells: Its cells.
        rows: What each row is called in an error.
    """
    return _finite(column, cells, [_number(cell) for cell in cells], rows)


def _number(cell: str) -> float | None:
    word = cell.lower()
    if word in _MISSING:
        return math.nan
    return float(cell) if is_number(cell) else _WORDS.get(word.lstrip("+-"))


def _finite(
    column: str, cells: Sequence[str], values: Sequence[float | None], rows: Sequence[str] | None
) -> Values:
    for i, value in enumerate(values):
        if value is None or math.isinf(value):
            place = f" in {rows[i]}" if rows else ""
            raise ValueError(
                f"column {column!r} must hold finite numbers, got {cells[i]!r}{place}: "
                "correct it, or leave the cell empty"
            )
    return np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class NumericColumn:
    """Numbers or booleans.

    Attributes:
        name: Its name in the table.
        median: What a missing value becomes.
        indicator: Whether a second column tells which values are missing.
    """

    name: str
    median: float
    indicator: bool

    def __post_init__(self) -> None:
        _check("name", self.name, lambda value: isinstance(value, str), "a string")
        _check("median", self.median, _is_finite, "a finite number")
        _check("indicator", self.indicator, lambda value: isinstance(value, bool), "true or false")

    @property
    def outputs(self) -> list[str]:
        """Name the encoded columns."""
        return [self.name, f"{self.name} missing"] if self.indicator else [self.name]

    def encode(self, cells: Sequence[str], rows: Sequence[str] | None) -> list[Values]:
        """Give the encoded columns; ``rows`` is what each row is called in an error."""
        values = numbers_of(self.name, cells, rows)
        missing = np.isnan(values)
        filled = np.where(missing, self.median, values)
        return [filled, missing.astype(np.float64)] if self.indicator else [filled]


@dataclass(frozen=True)
class CategoricalColumn:
    """Words; one that is not among the categories counts as none of them.

    Attributes:
        name: Its name in the table.
        categories: The words that training had.
    """

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("name", self.name, lambda value: isinstance(value, str), "a string")
        _check("categories", self.categories, _are_names, "different strings, not none")
        object.__setattr__(self, "categories", tuple(self.categories))  # JSON has a list

    @property
    def outputs(self) -> list[str]:
        """Name the encoded columns."""
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, cells: Sequence[str], rows: Sequence[str] | None) -> list[Values]:
        """Give the encoded columns."""
        words = np.array(cells, dtype=object)
        return [(words == category).astype(np.float64) for category in self.categories]


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _are_names(value: Any) -> bool:
    right = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    return right and 0 < len(value) == len(set(value))


def _check(name: str, value: Any, good: Callable[[Any], bool], rule: str) -> None:
    if not good(value):
        raise ValueError(f"{name} of a column must be {rule}, got {value!r}: it was not fitted so")


Frame = Mapping[str, Any]  # cells by the name of their column: a dict of lists, or a DataFrame


@dataclass(frozen=True)
class TableEncoding:
    """The columns that a model was trained with."""

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.names) == len(set(self.names)):
            raise ValueError(
                f"columns must have values and different names, got {list(self.names)}: "
                "there is nothing to learn from"
            )

    @classmethod
    def fit(cls, frame: Frame, rows: Indices) -> Self:
        """Learn from the training rows. A column that is empty there is left out."""
        numeric, categorical = [], []
        for name in frame:
            texts = texts_of(frame[name])
            cells = [texts[row] for row in rows]
            values = numbers_if_all(name, cells)
            if values is None:
                categorical.append(CategoricalColumn(name, _categories(name, cells)))
            elif not np.isnan(values).all():
                missing = bool(np.isnan(values).any())
                numeric.append(NumericColumn(name, float(np.nanmedian(values)), missing))
        return cls(tuple(numeric), tuple(categorical))

    @property
    def names(self) -> tuple[str, ...]:
        """Name the columns of the table that are used."""
        return (*(c.name for c in self.numeric), *(c.name for c in self.categorical))

    @property
    def columns(self) -> tuple[str, ...]:
        """Name the columns of what :meth:`apply` gives."""
        numbers = [name for column in self.numeric for name in column.outputs]
        return (*numbers, *(name for column in self.categorical for name in column.outputs))

    def apply(self, frame: Frame, rows: Sequence[str] | None = None) -> Values:
        """Turn cells into numbers, (rows, columns).

        Args:
            frame: The cells; columns that training did not have are ignored.
            rows: What each row is called in an error.
        """
        encoded: list[Values] = []
        for number in self.numeric:
            encoded += number.encode(_texts(frame, number.name), rows)
        for column in self.categorical:
            encoded += column.encode(_texts(frame, column.name), rows)
        return np.stack(encoded, axis=1)

    def unseen(self, frame: Frame) -> tuple[str, ...]:
        """Say which categories training never saw, one sentence for each column that has some."""
        notes = []
        for column in self.categorical:
            new = sorted(set(_texts(frame, column.name)) - set(column.categories))
            if new:
                notes.append(
                    f"Column {column.name!r} has values that training never saw, "
                    f"{listed(map(repr, natural_order(new)))}: they count as none of the known"
                )
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Give plain data for a model file."""
        words = [{"name": c.name, "categories": list(c.categories)} for c in self.categorical]
        return {"numeric": [asdict(column) for column in self.numeric], "categorical": words}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Rebuild it from plain data, which may come from anyone: a wrong type is a ValueError."""
        try:
            numeric = tuple(NumericColumn(**column) for column in data["numeric"])
            categorical = tuple(CategoricalColumn(**column) for column in data["categorical"])
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"a table encoding must have numeric and categorical columns, got {error}: "
                "the file is damaged"
            ) from error
        return cls(numeric, categorical)


def _texts(frame: Frame, name: str) -> list[str]:
    if name not in frame:
        raise ValueError(
            f"the table must have the column {name!r}, got only {', '.join(map(str, frame))}: "
            "the model was trained with it"
        )
    return texts_of(frame[name])


def _categories(name: str, cells: Sequence[str]) -> tuple[str, ...]:
    """List the different values, unless they are names of the rows."""
    different = sorted(set(cells))
    if len(different) > 50 and len(different) > len(cells) / 2:
        raise ValueError(
            f"column {name!r} must repeat its values to be a category, got {len(different)} in "
            f"{len(cells)} training rows: name it in drop"
        )
    return tuple(natural_order(different))


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Samples that are rows of a table.

    Attributes:
        values: The encoded cells, (n, columns).
        names: What each row is called in a list of predictions.
        encoding: How the cells became numbers.
    """

    values: Values
    names: Sequence[str]
    encoding: TableEncoding

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.encoding.columns))
        if self.values.shape != shape:
            raise ValueError(f"values must have the shape {shape}, got {self.values.shape}")

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, keep: Indices) -> Self:
        """Keep some rows only, in the order given."""
        return replace(self, values=self.values[keep], names=[self.names[i] for i in keep])
