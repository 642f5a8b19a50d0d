"""Tables: how cells become the numbers that a network takes.

A column is numeric if all its training cells are numbers, booleans or missing, and categorical
otherwise. A numeric column stays as it is and a missing value becomes the median; where training
had missing values, a second column of zeros and ones tells which. A categorical column becomes a
column of zeros and ones for each category, and a value that training never saw is none of them.

In a numeric column an empty cell, NA, N/A, NaN, null, None and ? are missing, in upper or lower
case; in a categorical column they are categories like any other. A data frame and the file that it
would be written to are encoded alike.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import NDArray

from layline.data.class_order import is_number
from layline.data.dataset import Indices, format_list
from layline.data.labels import natural_order
from layline.utils.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float64]
NUMERIC_KINDS = "biuf"  # the kinds of dtypes that are booleans, integers or floats

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_WORDS = {"true": 1.0, "false": 0.0, "inf": math.inf, "infinity": math.inf}
_COMMA = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)


def check_different(names: Sequence[str]) -> None:
    """Refuse two columns of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"columns must have different names, got {twice[0]!r} twice: rename one")


def texts_of(column: "pd.Series[Any]") -> list[str]:
    """Write every cell as a text, as it would be in a file; empty where there is nothing."""
    cells = column.to_numpy(dtype=object)
    return [cell.strip() if isinstance(cell, str) else text_of(cell) for cell in cells]


def text_of(cell: Any) -> str:
    """Write a cell that is no text; empty where there is nothing."""
    if isinstance(cell, Integral):
        return str(cell)
    if isinstance(cell, Real):
        number = float(cell)  # a float32 with all its digits
        if math.isnan(number):
            return ""
        return repr(int(number)) if number.is_integer() else repr(number)
    text = str(cell).removesuffix(" 00:00:00")  # a date, which a file has without its time
    return "" if text in ("None", "NaT", "<NA>") else text


def numbers_of(column: "pd.Series[Any]") -> tuple[Values, NDArray[np.bool_]]:
    """Give the numbers of a column, NaN for what is missing, and which cells are words instead."""
    if column.dtype.kind in NUMERIC_KINDS:
        values: Values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.zeros(len(column), dtype=bool)
    texts = texts_of(column)
    number = {text: _number(text) for text in set(texts)}
    words = np.array([number[text] is None for text in texts], dtype=bool)
    return np.array([number[text] for text in texts], dtype=np.float64), words  # None becomes NaN


def _number(text: str) -> float | None:
    word = text.lower()
    if word in MISSING:
        return math.nan
    return float(text) if is_number(text) else _WORDS.get(word.lstrip("+-"))


def _finite_numbers(column: "pd.Series[Any]", rows: Sequence[str] | None = None) -> Values:
    """Give the numbers of a column that has to be numeric; ``rows`` names them in an error."""
    values, words = numbers_of(column)
    wrong = words | np.isinf(values)
    if wrong.any():
        i = int(wrong.argmax())
        place = f" in {rows[i]}" if rows else ""
        raise UserError(
            f"column {column.name!r} must hold finite numbers, got "
            f"{texts_of(column.iloc[[i]])[0]!r}{place}: correct it, or leave the cell empty"
        )
    return values


def check_float32(values: Values, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Refuse numbers that a network cannot hold, with the place of the first.

    Args:
        values: Encoded cells, (n, columns).
        columns: Their names.
        rows: What each row is called.
    """
    wrong = np.abs(values) > np.finfo(np.float32).max
    if wrong.any():
        row, column = map(int, np.unravel_index(wrong.argmax(), wrong.shape))
        raise UserError(
            f"column {columns[column]!r} must hold numbers up to 3.4e38, got "
            f"{values[row, column]:g} in {rows[row]}: correct it, or leave the cell empty"
        )


@dataclass(frozen=True)
class NumericColumn:
    """Numbers or booleans.

    Attributes:
        name: Of the column in the table.
        median: What a missing value becomes.
        indicator: Whether a second column tells which values are missing.
    """

    name: str
    median: float
    indicator: bool

    def __post_init__(self) -> None:
        _check("name", self.name, isinstance(self.name, str), "a string")
        finite = type(self.median) in (int, float) and math.isfinite(self.median)
        _check("median", self.median, finite, "a finite number")
        _check("indicator", self.indicator, isinstance(self.indicator, bool), "true or false")

    @property
    def outputs(self) -> list[str]:
        """Name the encoded columns."""
        return [self.name, f"{self.name} missing"] if self.indicator else [self.name]

    def encode(self, column: "pd.Series[Any]", rows: Sequence[str] | None) -> Values:
        """Give the encoded columns; ``rows`` is what each row is called in an error."""
        values = _finite_numbers(column, rows)
        missing = np.isnan(values)
        filled = np.where(missing, self.median, values)
        return np.stack([filled, missing] if self.indicator else [filled], axis=1)


@dataclass(frozen=True)
class CategoricalColumn:
    """Words; one that is not among the categories that training had counts as none of them."""

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("name", self.name, isinstance(self.name, str), "a string")
        words = self.categories if isinstance(self.categories, list | tuple) else ()
        good = all(isinstance(word, str) for word in words) and 0 < len(words) == len({*words})
        _check("categories", self.categories, good, "different strings, not none")
        object.__setattr__(self, "categories", tuple(words))  # JSON has a list

    @property
    def outputs(self) -> list[str]:
        """Name the encoded columns."""
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, column: "pd.Series[Any]", rows: Sequence[str] | None) -> Values:
        """Give the encoded columns."""
        place = {category: i for i, category in enumerate(self.categories)}
        places = np.array([place.get(text, -1) for text in texts_of(column)])
        encoded: Values = (places[:, None] == np.arange(len(place))).astype(np.float64)
        return encoded


def _check(name: str, value: Any, good: bool, rule: str) -> None:
    if not good:
        raise UserError(f"{name} of a column must be {rule}, got {value!r}: it was not fitted so")


@dataclass(frozen=True)
class TableEncoding:
    """How the cells of a table become numbers: learned on the training rows, kept with the model.

    Attributes:
        numeric: The columns of numbers.
        categorical: The columns of words.
        id_column: The column that names the rows, which is not an input; None if there is none.
    """

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    id_column: str | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.names) == len(set(self.names)):
            raise UserError(
                f"columns must have values and different names, got {list(self.names)}: "
                "there is nothing to learn from"
            )
        id_column = self.id_column
        _check("id_column", id_column, isinstance(id_column, str | None), "a string")

    @classmethod
    def fit(cls, frame: "pd.DataFrame", rows: Indices, id_column: str | None = None) -> Self:
        """Learn from the training rows. A column that is empty there is left out.

        Args:
            frame: The columns.
            rows: The places of the training rows.
            id_column: A column that names the rows, if there is one.
        """
        check_different(list(frame))
        numeric, categorical = [], []
        for name in frame:
            if name == id_column:
                continue
            column = frame[name].iloc[rows]
            words = numbers_of(column)[1]
            if words.any():
                categorical.append(CategoricalColumn(name, _categories(column, words)))
                continue
            values = _finite_numbers(column)
            if not np.isnan(values).all():
                missing = bool(np.isnan(values).any())
                numeric.append(NumericColumn(name, float(np.nanmedian(values)), missing))
        return cls(tuple(numeric), tuple(categorical), id_column)

    @property
    def inputs(self) -> tuple[NumericColumn | CategoricalColumn, ...]:
        """The columns in the order in which they are encoded."""
        return self.numeric + self.categorical

    @property
    def names(self) -> tuple[str, ...]:
        """Name the columns of the table that are inputs."""
        return tuple(column.name for column in self.inputs)

    @property
    def columns(self) -> tuple[str, ...]:
        """Name the columns of what :meth:`apply` gives."""
        return tuple(name for column in self.inputs for name in column.outputs)

    def is_text(self, name: str) -> bool:
        """Tell whether a column has to be read as it is written."""
        return all(name != column.name for column in self.numeric)

    def apply(self, frame: "pd.DataFrame", rows: Sequence[str] | None = None) -> Values:
        """Turn cells into numbers, (rows, columns).

        Args:
            frame: The cells; columns that training did not have are ignored.
            rows: What each row is called in an error.
        """
        check_different(list(frame))
        return np.hstack([each.encode(_column(frame, each.name), rows) for each in self.inputs])

    def unseen(self, frame: "pd.DataFrame") -> tuple[str, ...]:
        """Say which categories training never saw, one sentence for each column that has some."""
        notes = []
        for column in self.categorical:
            new = {*texts_of(_column(frame, column.name))} - {*column.categories}
            if new:
                notes.append(
                    f"Column {column.name!r} has values that training never saw, "
                    f"{format_list(map(repr, natural_order(sorted(new))))}: "
                    "they count as none of the known"
                )
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Give plain data for a model file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Rebuild it from plain data, which may come from anyone: a wrong type is a ValueError."""
        try:
            numeric = tuple(NumericColumn(**column) for column in data["numeric"])
            categorical = tuple(CategoricalColumn(**column) for column in data["categorical"])
            id_column = data.get("id_column")
        except (TypeError, KeyError) as error:
            raise UserError(
                f"a table encoding must have numeric and categorical columns, got {error}: "
                "the file is damaged"
            ) from error
        return cls(numeric, categorical, id_column)


def _column(frame: "pd.DataFrame", name: str) -> "pd.Series[Any]":
    if name not in frame:
        raise UserError(
            f"the table must have the column {name!r}, got only {', '.join(map(str, frame))}: "
            "the model was trained with it"
        )
    return frame[name]


def _categories(column: "pd.Series[Any]", words: NDArray[np.bool_]) -> tuple[str, ...]:
    """List the different values, unless they are decimal commas or names of the rows."""
    texts = texts_of(column)
    first = texts[int(words.argmax())]
    if all(_COMMA.fullmatch(text) for text, word in zip(texts, words, strict=True) if word):
        raise UserError(
            f"column {column.name!r} must have decimal points, got {first!r}: replace the commas"
        )
    different = sorted(set(texts))
    if len(different) > 50 and len(different) > len(texts) / 2:
        raise UserError(
            f"column {column.name!r} must repeat its values to be a category, got "
            f"{len(different)} in {len(texts)} training rows: name it in drop, id or group, or "
            "leave it out"
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
            raise UserError(f"values must have the shape {shape}, got {self.values.shape}.")

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, keep: Indices) -> Self:
        """Select rows, in the order given."""
        return replace(self, values=self.values[keep], names=[self.names[i] for i in keep])

    def digest(self) -> str:
        """Hash the rows in their order: the numbers that the network gets."""
        about = json.dumps(self.encoding.to_json(), sort_keys=True)
        digest = hashlib.blake2b(f"{self.values.shape} {about}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.values, dtype="<f8").data)
        return digest.hexdigest()


@final
@dataclass(frozen=True, eq=False)
class UnencodedRows:
    """Rows of a table before its splits are drawn: the encoding is learned from training rows.

    Attributes:
        frame: The columns that are inputs, and the one that names the rows.
        row_names: What each row is called in an error.
        id_column: The column that names the rows, if there is one.
    """

    frame: "pd.DataFrame"
    row_names: Sequence[str]
    id_column: str | None

    @property
    def names(self) -> Sequence[str]:
        """The name of each row in a list of predictions."""
        return name_rows(self.frame, self.id_column, self.row_names)

    def __len__(self) -> int:
        return len(self.row_names)

    def subset(self, keep: Indices) -> Self:
        """Select rows, in the order given."""
        return replace(
            self, frame=self.frame.iloc[keep], row_names=[self.row_names[i] for i in keep]
        )

    def digest(self) -> str:
        """Hash the cells in their order."""
        text = self.frame.to_csv(index=False)
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()

    def encode(self, train: Indices) -> tuple[Rows, tuple[str, ...]]:
        """Learn the encoding from the training rows and apply it to all; returns notes as well."""
        encoding = TableEncoding.fit(self.frame, train, self.id_column)
        empty = [name for name in self.frame if name not in (*encoding.names, self.id_column)]
        notes = tuple(
            f"Column {name!r} is empty in the training rows and is not used." for name in empty
        )
        return encode_rows(self.frame, self.row_names, encoding), notes + encoding.unseen(
            self.frame
        )


def encode_rows(
    frame: "pd.DataFrame", row_names: Sequence[str], encoding: TableEncoding
) -> Rows:
    """Apply an encoding; numbers that float32 cannot hold are refused."""
    values = encoding.apply(frame, row_names)
    check_float32(values, encoding.columns, row_names)
    return Rows(values, name_rows(frame, encoding.id_column, row_names), encoding)


def name_rows(
    frame: "pd.DataFrame", id_column: str | None, row_names: Sequence[str]
) -> list[str]:
    """Return the id of each row, or its number where it has none."""
    if id_column is None or id_column not in frame:
        return list(row_names)
    ids = texts_of(frame[id_column])
    return [own or number for own, number in zip(ids, row_names, strict=True)]
