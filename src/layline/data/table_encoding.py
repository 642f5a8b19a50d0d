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
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

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
_WORDS = {"true": 1.0, "false": 0.0, "inf": math.inf, "infinity": math.inf}
_COMMA = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)
_MANY = 50  # categories; more must repeat
_LARGEST = float(np.finfo(np.float32).max)  # networks compute in float32
_STRICT = {"strict": True, "extra": "forbid", "allow_inf_nan": False}  # for pydantic


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
    if column.dtype.kind in "biuf":  # booleans, integers and floats
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
    wrong = words | (np.abs(values) > _LARGEST)
    if wrong.any():
        i = int(wrong.argmax())
        place = f" in {rows[i]}" if rows else ""
        raise UserError(
            f"Column {column.name!r} must hold finite numbers, got "
            f"{texts_of(column.iloc[[i]])[0]!r}{place}. Correct it, or leave the cell empty."
        )
    return values


@dataclass(frozen=True)
class NumericColumn:
    """Numbers; a missing one becomes the median, and an indicator is a column that marks them."""

    __pydantic_config__: ClassVar = _STRICT
    name: str
    median: float
    indicator: bool

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

    __pydantic_config__: ClassVar = _STRICT
    name: str
    categories: tuple[str, ...]

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


@dataclass(frozen=True)
class TableEncoding:
    """How the cells of a table become numbers: learned on the training rows, kept with the model.

    Attributes:
        numeric: The columns of numbers.
        categorical: The columns of words.
        id_column: The column that names the rows and is not an input, if there is one.
    """

    __pydantic_config__: ClassVar = _STRICT
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    id_column: str | None = None

    def __post_init__(self) -> None:
        if len(self.names) == 0:
            raise UserError("The table has no columns with values to learn from.")
        check_unique(self.names)
        for column in self.categorical:
            if not 0 < len(column.categories) == len({*column.categories}):
                raise UserError(f"The categories of column {column.name!r} must be different.")

    @classmethod
    def fit(cls, frame: "pd.DataFrame", rows: Indices, id_column: str | None = None) -> Self:
        """Learn from the training ``rows``; a column that is empty there is not used."""
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
        """Turn cells into numbers, (rows, columns); ``rows`` names them in an error."""
        check_unique(list(frame))
        for name in self.names:
            if name not in frame:
                raise UserError(
                    f"The table has no column {name!r}, which the model was trained with. Its "
                    f"columns are {format_list(frame)}."
                )
        return np.hstack([column.encode(frame[column.name], rows) for column in self.inputs])

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
    """Samples that are rows of a table.

    Attributes:
        values: The encoded cells, (n, columns).
        names: The name of each row in a list of predictions.
        encoding: How the cells became numbers.
    """

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
    """Rows of a table before its splits are drawn: the encoding is learned from training rows.

    Attributes:
        frame: The columns that are inputs, and the one that names the rows.
        names: The name of each row in an error, such as its number.
        id_column: The column that names the rows, if there is one.
    """

    frame: "pd.DataFrame"
    names: Sequence[str]
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
