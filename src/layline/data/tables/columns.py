"""Columns of a table as they were in training, each with its way into numbers.

A numeric column stays as it is and a missing value becomes the median; where training had missing
values, a second column of zeros and ones tells which. A categorical column becomes a column of
zeros and ones for each category.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layline.data.tables.cells import Values, numbers_of


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
