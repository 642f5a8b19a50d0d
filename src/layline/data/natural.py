"""The order in which people read names: "grade 9" before "grade 10"."""

import re
from collections.abc import Iterable

_DIGITS = re.compile(r"(\d+)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_number(text: str) -> bool:
    """Tell whether a text is a decimal number as programs write it; "1,5" and "nan" are not."""
    return _NUMBER.fullmatch(text) is not None


def natural_key(name: str) -> tuple[str | int, ...]:
    """Give what to sort a name by: digits count as numbers, upper and lower case are alike."""
    pieces = _DIGITS.split(name.casefold())  # text, digits, text, … and always a text first
    return tuple(int(piece) if i % 2 else piece for i, piece in enumerate(pieces))


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names; where all of them are numbers, by value. Ties stay in the order they came in."""
    names = list(names)
    if all(map(is_number, names)):
        return sorted(names, key=float)
    return sorted(names, key=natural_key)
