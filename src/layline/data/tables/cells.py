"""Cells of a table as text and as numbers, the same from a file and from a data frame."""

import math
import re
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layline.data.natural import is_number

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
