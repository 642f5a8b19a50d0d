"""How the cells of a table become numbers: learned on the training rows, kept with the model.

A column is numeric if all its training cells are numbers or booleans, and categorical otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from layline.data.base import Indices
from layline.data.natural import natural_order
from layline.data.roots import listed
from layline.data.tables.cells import Values, numbers_if_all, texts_of
from layline.data.tables.columns import CategoricalColumn, NumericColumn

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
