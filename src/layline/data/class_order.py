r"""The order that class names imply: numbers, ranges, Roman numerals, and known scales.

A wrong order trains without an error, so only clear cases are accepted:

1. names that are numbers, or that differ in one number only: "grade 3", "1930s", "Q1";
2. ranges of numbers that do not overlap: "0-2", "(10, 20]", "<20", "54-up", "60+ years";
3. names that begin with different numbers: "1-poor", "2-fair";
4. Roman numerals: "stage I", "stage II";
5. names that have different places on one of the scales of ``scales.txt``.

Case, separators, plurals and words that all names share ("low risk", "high risk") are ignored on a
scale. Two names with the same place on it ("medium" and "moderate") leave the order open.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

_NEGATIONS = {"no", "not", "non", "without", "less", "least", "never"}  # they reverse a scale
_N = r"(?:(?<![^\s(\[,])-)?\d+(?:\.\d+)?"
_ABOVE, _BELOW = r"(?:up|more|over|above|older|higher|plus)", r"(?:less|under|below|younger|fewer)"
_RANGE = re.compile(
    rf"""(?P<before>\D*?)(?:
        [(\[]\s*(?P<from1>{_N}|-inf)\s*[,;]\s*(?P<to1>{_N}|\+?inf)\s*[)\]]
      | (?P<from2>{_N})\s*(?:-|_|\.\.+|\bto\b|\bthrough\b)\s*(?P<to2>{_N})
      | (?:>=?|\b(?:over|above|from|older\ than|more\ than|at\ least)\b)\s*(?P<from3>{_N})
      | (?P<from4>{_N})\s*(?:\+|[-_ ]*(?:(?:and|or)[-_ ]+)?{_ABOVE}\b)
      | (?:<=?|\b(?:under|below|up\ to|younger\ than|less\ than|at\ most)\b)\s*(?P<to3>{_N})
      | (?P<to4>{_N})[-_ ]*(?:and|or)[-_ ]+{_BELOW}\b
      | (?P<point>{_N})
    )(?P<after>\D*)""",
    re.VERBOSE | re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NUMBER_INSIDE = re.compile(rf"({_N})", re.ASCII)
_LEADING = re.compile(r"(\d+(?:\.\d+)?)[\W_]+[^\W\d_]\D*", re.ASCII)
_ONES = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_ROMAN = ["0", *(ten + one for ten in ("", "x", "xx", "xxx") for one in _ONES if ten + one)]
_SIGNS = str.maketrans({"–": "-", "—": "-", "−": "-", "≤": "<=", "≥": ">="})


def is_number(text: str) -> bool:
    """Check that a text is a decimal number as programs write it; "1,5" and "nan" are not."""
    return _NUMBER.fullmatch(text) is not None


@cache
def scales() -> tuple[dict[str, int], ...]:
    """Return the scales of ``scales.txt``: the place of each word."""
    lines = Path(__file__).with_name("scales.txt").read_text(encoding="utf-8").splitlines()
    return tuple(
        {
            word.strip(): place
            for place, words in enumerate(line.split("<"))
            for word in words.split("|")
        }
        for line in lines
        if not line.startswith("#")
    )


def known_order(names: Collection[str]) -> tuple[list[str], str] | None:
    """Return the order that different names imply, lowest first, and where it comes from."""
    names = sorted(names)
    if len(names) < 2:
        return names, "their values"
    for find_keys, reason in _RULES:
        keys = find_keys(names)
        if keys is not None and len(set(keys)) == len(names):
            ordered = [name for _, name in sorted(zip(keys, names, strict=True))]
            return ordered, reason or f"the known scale {' < '.join(ordered)}"
    return None


def _by_value(names: Sequence[str]) -> list[float] | None:
    return [float(name) for name in names] if all(map(is_number, names)) else None


def _by_one_number(names: Sequence[str]) -> list[float] | None:
    """Return the number in which names differ, if it is the only difference."""
    pieces = [_NUMBER_INSIDE.split(_plain(name)) for name in names]
    if len({tuple(piece[::2]) for piece in pieces}) > 1:
        return None
    columns = [[*map(float, numbers)] for numbers in list(zip(*pieces, strict=True))[1::2]]
    varying = [column for column in columns if len(set(column)) > 1]
    return varying[0] if len(varying) == 1 else None


def _by_range(names: Sequence[str]) -> list[tuple[float, float]] | None:
    """Return the bounds of ranges that do not overlap, with the same words around all of them."""
    ranges, words = [], set()
    for name in names:
        match = _RANGE.fullmatch(_plain(name).strip())
        if match is None:
            return None
        point = match["point"]
        low = point or next(filter(None, (match[f"from{i}"] for i in "1234")), "-inf")
        high = point or next(filter(None, (match[f"to{i}"] for i in "1234")), "inf")
        ranges.append((float(low), float(high)))
        words.add((_words(match["before"]), _words(match["after"])))
    apart = all(high <= low for (_, high), (low, _) in pairwise(sorted(ranges)))
    right = all(low <= high for low, high in ranges)
    return ranges if apart and right and len(words - {("", "")}) <= 1 else None


def _by_leading_number(names: Sequence[str]) -> list[float] | None:
    matches = [_LEADING.fullmatch(_plain(name)) for name in names]
    return [float(match[1]) for match in matches if match] if all(matches) else None


def _by_roman_numeral(names: Sequence[str]) -> list[int] | None:
    """Return numerals up to 39; single letters alone, such as X, may be anything."""
    words = _without_shared_words(names)
    if max(map(len, words)) == 1 or not {*words} <= {*_ROMAN}:
        return None
    return [_ROMAN.index(word) for word in words]


def _by_scale(names: Sequence[str]) -> list[int] | None:
    """Return the places on the first scale on which all names have different places."""
    for texts in ([_words(name) for name in names], _without_shared_words(names)):
        for scale in scales():
            found = [_place_on(scale, text) for text in texts]
            places = [place for place in found if place is not None]
            if len(places) == len(names) == len(set(places)):
                return places
    return None


def _place_on(scale: dict[str, int], text: str) -> int | None:
    """Find a name on a scale; "no damage" is "none"."""
    none = scale.get("none") if re.fullmatch(r"no \w+( \w+)?", text) else None
    return scale.get(text, scale.get(text.removesuffix("s"), none))


def _plain(name: str) -> str:
    return name.casefold().translate(_SIGNS)


def _words(name: str) -> str:
    """Write a name in small letters with single blanks: "VeryPoor" and "very_poor" alike."""
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return " ".join(re.sub(r"[\W_]+", " ", parted.casefold()).split())


def _without_shared_words(names: Sequence[str]) -> list[str]:
    """Leave out the words that all names have, unless one of the names has no others."""
    words = [_words(name).split() for name in names]
    shared = set(words[0]).intersection(*words[1:]) - _NEGATIONS
    left = [" ".join(word for word in each if word not in shared) for each in words]
    return left if all(left) else [" ".join(each) for each in words]


_Rule = tuple[Callable[[Sequence[str]], Sequence[Any] | None], str]
_RULES: tuple[_Rule, ...] = (
    (_by_value, "their values"),
    (_by_one_number, "the numbers in them"),
    (_by_range, "the ranges that they name"),
    (_by_leading_number, "the numbers that they begin with"),
    (_by_roman_numeral, "the Roman numerals in them"),
    (_by_scale, ""),
)
