"""Encoding of tables: how cells become the numbers that a network takes.

A column is numeric if all its training cells are numbers, booleans or missing, and categorical
otherwise. A missing number becomes the median; where training had missing numbers, a second column
of zeros and ones marks them. A categorical column becomes a column of zeros and ones for each
category; a value that training did not have is none of them.

In a numeric column an empty cell, NA, N/A, NaN, null, None and ? are missing, in upper or lower
case; in a categorical column they are categories. A data frame and the CSV file that it would be
written to are encoded alike.
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
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_NUMERIC_KINDS = "biuf"  # dtypes of booleans, integers and floats
_WORDS = {"true": 1.0, "false": 0.0, "inf": math.inf, "infinity": math.inf}
_COMMA = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)
_MANY = 50  # categories; more must repeat


def check_unique(names: Sequence[str]) -> None:
    """Refuse two columns of the same name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"There are two columns {twice[0]!r}. Rename one.")


def texts_of(column: "pd.Series[Any]") -> list[str]:
    """Convert cells to texts as in a CSV file; empty if missing."""
    cells = column.to_numpy(dtype=object)
    return [cell.strip() if isinstance(cell, str) else text_of(cell) for cell in cells]


def text_of(cell: Any) -> str:
    """Convert a cell that is not a text; empty if missing."""
    if isinstance(cell, Integral):
        return str(cell)
    if isinstance(cell, Real):
        number = float(cell)
        if math.isnan(number):
            return ""
        return repr(int(number)) if number.is_integer() else repr(number)
    text = str(cell).removesuffix(" 00:00:00")  # a date without a time
    return "" if text in ("None", "NaT", "<NA>") else text


def numbers_of(column: "pd.Series[Any]") -> tuple[Values, NDArray[np.bool_]]:
    """Return the numbers of a column, NaN where missing, and which cells are words instead."""
    if column.dtype.kind in _NUMERIC_KINDS:
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
    """Return the numbers of a numeric column; ``rows`` names them in an error."""
    values, words = numbers_of(column)
    wrong = words | np.isinf(values)
    if wrong.any():
        i = int(wrong.argmax())
        place = f" in {rows[i]}" if rows else ""
        raise UserError(
            f"Column {column.name!r} must hold finite numbers, got "
            f"{texts_of(column.iloc[[i]])[0]!r}{place}. Correct it, or leave the cell empty."
        )
    return values


def check_float32(values: Values, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Refuse numbers that do not fit into float32, with the place of the first."""
    wrong = np.abs(values) > np.finfo(np.float32).max
    if wrong.any():
        row, column = map(int, np.unravel_index(wrong.argmax(), wrong.shape))
        raise UserError(
            f"Column {columns[column]!r} must hold numbers up to 3.4e38, got "
            f"{values[row, column]:g} in {rows[row]}."
        )


@dataclass(frozen=True)
class NumericColumn:
    """Numbers or booleans.

    Attributes:
        name: The column in the table.
        median: What a missing value becomes.
        indicator: Whether a second column marks missing values.
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
        """The names of the encoded columns."""
        return [self.name, f"{self.name} missing"] if self.indicator else [self.name]

    def encode(self, column: "pd.Series[Any]", rows: Sequence[str] | None) -> Values:
        """Return the encoded columns; ``rows`` names them in an error."""
        values = _finite_numbers(column, rows)
        missing = np.isnan(values)
        filled = np.where(missing, self.median, values)
        return np.stack([filled, missing] if self.indicator else [filled], axis=1)


@dataclass(frozen=True)
class CategoricalColumn:
    """Words; a word that is not among the categories of training is encoded as zeros."""

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("name", self.name, isinstance(self.name, str), "a string")
        words = self.categories if isinstance(self.categories, list | tuple) else ()
        good = all(isinstance(word, str) for word in words) and 0 < len(words) == len({*words})
        _check("categories", self.categories, good, "one or more different strings")
        object.__setattr__(self, "categories", tuple(words))  # JSON has a list

    @property
    def outputs(self) -> list[str]:
        """The names of the encoded columns."""
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, column: "pd.Series[Any]", rows: Sequence[str] | None) -> Values:
        """Return the encoded columns."""
        place = {category: i for i, category in enumerate(self.categories)}
        places = np.array([place.get(text, -1) for text in texts_of(column)])
        encoded: Values = (places[:, None] == np.arange(len(place))).astype(np.float64)
        return encoded


def _check(name: str, value: Any, good: bool, rule: str) -> None:
    if not good:
        raise UserError(f"{name} of a column must be {rule}, got {value!r}.")


@dataclass(frozen=True)
class TableEncoding:
    """How the cells of a table become numbers: learned on the training rows, kept with the model.

    Attributes:
        numeric: The columns of numbers.
        categorical: The columns of words.
        id_column: The column that names the rows and is not an input, if there is one.
    """

    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    id_column: str | None = None

    def __post_init__(self) -> None:
        if len(self.names) == 0:
            raise UserError("The table has no columns with values to learn from.")
        check_unique(self.names)
        id_column = self.id_column
        _check("id_column", id_column, isinstance(id_column, str | None), "a string")

    @classmethod
    def fit(cls, frame: "pd.DataFrame", rows: Indices, id_column: str | None = None) -> Self:
        """Learn from the training rows; a column that is empty there is not used.

        Args:
            frame: The columns.
            rows: The places of the training rows.
            id_column: A column that names the rows, if there is one.
        """
        check_unique(list(frame))
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
        """The columns of the table that are inputs."""
        return tuple(column.name for column in self.inputs)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that :meth:`apply` returns."""
        return tuple(name for column in self.inputs for name in column.outputs)

    def apply(self, frame: "pd.DataFrame", rows: Sequence[str] | None = None) -> Values:
        """Turn cells into numbers, (rows, columns).

        Args:
            frame: The cells; columns that training did not have are ignored.
            rows: The name of each row in an error.
        """
        check_unique(list(frame))
        return np.hstack([each.encode(_column(frame, each.name), rows) for each in self.inputs])

    def unseen(self, frame: "pd.DataFrame") -> tuple[str, ...]:
        """Describe categories that training did not have, one sentence for each column."""
        notes = []
        for column in self.categorical:
            new = {*texts_of(_column(frame, column.name))} - {*column.categories}
            if new:
                notes.append(
                    f"Column {column.name!r} has values that are not in the training rows: "
                    f"{format_list(map(repr, natural_order(new)))}."
                )
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a model file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Build an encoding from untrusted plain data; a wrong type is a ``UserError``."""
        try:
            numeric = tuple(NumericColumn(**column) for column in data["numeric"])
            categorical = tuple(CategoricalColumn(**column) for column in data["categorical"])
            id_column = data.get("id_column")
        except (TypeError, KeyError) as error:
            raise UserError(f"The table encoding of the file is damaged: {error}") from error
        return cls(numeric, categorical, id_column)


def _column(frame: "pd.DataFrame", name: str) -> "pd.Series[Any]":
    if name not in frame:
        raise UserError(
            f"The table has no column {name!r}, which the model was trained with. Its columns are "
            f"{format_list(frame)}."
        )
    return frame[name]


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
    """Samples that are rows of a table.

    Attributes:
        values: The encoded cells, (n, columns).
        names: The name of each row in a list of predictions.
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
        row_names: The name of each row in an error.
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
        names = [self.row_names[i] for i in keep]
        return replace(self, frame=self.frame.iloc[keep], row_names=names)

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
        unused = [name for name in self.frame if name not in (*encoding.names, encoding.id_column)]
        notes = tuple(f"Column {name!r} {why}. It is not used." for name in unused)
        rows = encode_rows(self.frame, self.row_names, encoding)
        return rows, notes + encoding.unseen(self.frame)


def encode_rows(frame: "pd.DataFrame", row_names: Sequence[str], encoding: TableEncoding) -> Rows:
    """Apply an encoding; numbers that do not fit into float32 are refused."""
    values = encoding.apply(frame, row_names)
    check_float32(values, encoding.columns, row_names)
    return Rows(values, name_rows(frame, encoding.id_column, row_names), encoding)


def name_rows(frame: "pd.DataFrame", id_column: str | None, row_names: Sequence[str]) -> list[str]:
    """Return the id of each row, or its number where it has none."""
    if id_column is None or id_column not in frame:
        return list(row_names)
    ids = texts_of(frame[id_column])
    return [own or number for own, number in zip(ids, row_names, strict=True)]
