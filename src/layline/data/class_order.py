r"""The order that class names imply: numbers, ranges, Roman numerals, and known scales.

A wrong order trains without an error, so only clear cases are accepted:

1. names that are numbers, or that differ in one number only: "grade 3", "1930s", "Q1";
2. ranges of numbers that do not overlap: "0-2", "(10, 20]", "<20", "54-up", "60+ years";
3. names that begin with a number of their own: "1-poor", "2-fair";
4. Roman numerals: "stage I", "stage II";
5. names that all have a place of their own on one of :data:`SCALES`.

Case, separators, plurals and words that all names share ("low risk", "high risk") are ignored on a
scale. Two names with the same place on it ("medium" and "moderate") leave the order open.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

# Lowest first; synonyms are separated by |. Every pair of words has the same order in all scales
# that contain it, so it does not matter which scale is used.
_SCALES = """
none|no|non|normal|healthy|absent|clear < doubtful|questionable < minimal|very mild|trace
    < mild|slight < moderate < severe|serious
    < very severe|extreme|critical|proliferative|proliferative dr
none|no|negligible|insignificant < minor < moderate < major < severe|serious < critical
    < catastrophic|destroyed|fatal
none|no|zero < very low|extremely low|lowest|minimal < low|lower
    < medium|mid|middle|med|moderate|intermediate|average < high|higher < very high|highest
    < extreme|extremely high|critical
very low < low < normal < elevated < high < very high
terrible|awful|horrible|very poor|very bad < poor|bad < below average
    < fair|ok|okay|average|mediocre|acceptable|satisfactory|adequate|so so|medium < above average
    < good < very good|great < excellent|outstanding|superb|amazing < perfect|exceptional
unsatisfactory|inadequate|insufficient|unacceptable
    < needs improvement|requires improvement|marginal
    < satisfactory|adequate|sufficient|acceptable < good < very good < excellent|outstanding
unacceptable < flawed < ordinary < professional < exceptional
never|not at all < almost never|hardly ever|very rarely < rarely|seldom < sometimes|occasionally
    < often|frequently < usually|mostly|very often|almost always < always
strongly disagree|completely disagree|totally disagree|fully disagree < disagree
    < somewhat disagree|slightly disagree
    < neutral|neither|neither agree nor disagree|undecided|unsure < somewhat agree|slightly agree
    < agree < strongly agree|completely agree|totally agree|fully agree
very dissatisfied|very unsatisfied|very unhappy < dissatisfied|unsatisfied|unhappy
    < neutral|neither|neither satisfied nor dissatisfied < satisfied|happy
    < very satisfied|very happy
very negative < negative < neutral < positive < very positive
impossible < very unlikely < unlikely < possible|maybe < likely|probable < very likely
    < certain|definite
unimportant|not important < slightly important < somewhat important|moderately important
    < important < very important < extremely important|essential
not at all < slightly|a little|a bit < somewhat|moderately < very < extremely
tiny|very small|extra small < small|little < medium|mid|average < large|big
    < very large|extra large|huge|giant
xxs < xs < s < m < l < xl < xxl|2xl < xxxl|3xl
very light < light < medium|moderate < heavy < very heavy
very weak < weak < medium|moderate < strong < very strong
very slow < slow < medium|moderate|normal < fast < very fast
very short < short < medium|average < long|tall < very long|very tall
cheap|inexpensive < moderate|affordable < expensive < very expensive
very easy|trivial < easy < medium|moderate|normal|intermediate < hard|difficult
    < very hard|very difficult|expert
very cold|freezing < cold < cool < mild < warm < hot < very hot
dry < damp|moist|humid < wet
novice|beginner|basic|elementary < intermediate|competent < advanced|proficient < expert|master
junior < mid|middle|intermediate < senior < lead|principal
preschool|kindergarten < elementary|primary < middle < high|secondary
    < college|university|tertiary|undergraduate < graduate
high school < associate < bachelor < master < doctorate|doctoral|phd
fail|failed < pass|passed < merit|credit < distinction
bronze < silver < gold < platinum < diamond
worst < worse|much worse < same|unchanged < better|much better < best
decreased|decrease < same|unchanged|stable|no change < increased|increase
none|no|zero < few < some|several < many|most < all
none|no|empty < partial|partly|half|incomplete < full|complete|total
unripe|underripe < half ripe|partially ripe < ripe|fully ripe < overripe < rotten
no|false < maybe|perhaps|unsure|uncertain < yes|true
absent < present
off < on
bottom < middle|mid < top
newborn|neonate < infant|baby < toddler < child|children|kid < teenager|teen|adolescent
    < young adult < adult < middle aged|middle age < elderly|old|senior
young < middle aged|middle age|middle|adult < old|elderly|senior
morning < noon|midday < afternoon < evening < night
first|1st < second|2nd < third|3rd < fourth|4th < fifth|5th < sixth|6th < seventh|7th < eighth|8th
    < ninth|9th < tenth|10th
zero < one < two < three < four < five < six < seven < eight < nine < ten < eleven < twelve
monday|mon < tuesday|tue|tues < wednesday|wed < thursday|thu|thur|thurs < friday|fri
    < saturday|sat < sunday|sun
january|jan < february|feb < march|mar < april|apr < may < june|jun < july|jul < august|aug
    < september|sep|sept < october|oct < november|nov < december|dec
"""
SCALES = tuple(
    tuple(step.strip() for step in scale.split("<"))
    for scale in re.sub(r"\n +<", " <", _SCALES).strip().splitlines()
)
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
_ROMAN = re.compile(r"(?=[ivx])(x{0,3})(ix|iv|v?i{0,3})")
_SIGNS = str.maketrans({"\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{MINUS SIGN}": "-"})


def is_number(text: str) -> bool:
    """Tell whether a text is a decimal number as programs write it; "1,5" and "nan" are not."""
    return _NUMBER.fullmatch(text) is not None


def known_order(names: Collection[str]) -> tuple[list[str], str] | None:
    """Give the order that different names carry themselves, and what tells it.

    Returns:
        The names, lowest first, and the reason as in "in the order of …"; None if they have none.
    """
    names = sorted(names)
    if len(names) < 2:
        return names, "their values"
    for keys_of, reason in _RULES:
        keys = keys_of(names)
        if keys is not None and len(set(keys)) == len(names):
            place = dict(zip(names, keys, strict=True))
            ordered = sorted(names, key=place.__getitem__)
            return ordered, reason or f"the known scale {' < '.join(ordered)}"
    return None


def guess_order(names: Sequence[str]) -> list[str]:
    """Bring names of unknown order closer to a scale that knows some of them.

    Names that the scale does not know stay in their order, behind the others.
    """
    best: dict[str, int] = {}
    for scale in SCALES:
        place = _places(scale)
        found = {
            name: next(iter(ranks))
            for name in names
            if len(ranks := {place[w] for w in (_words(name), *_words(name).split()) if w in place})
            == 1
        }
        if len(found) > len(best):
            best = found
    if len(best) < 2:
        return list(names)
    return sorted(names, key=lambda name: best.get(name, len(names) + 100))


def _by_value(names: Sequence[str]) -> list[float] | None:
    return [float(name) for name in names] if all(map(is_number, names)) else None


def _by_one_number(names: Sequence[str]) -> list[float] | None:
    """Take the number in which names differ, if it is the only difference."""
    pieces = [_NUMBER_INSIDE.split(_plain(name)) for name in names]
    if len({tuple(piece[::2]) for piece in pieces}) > 1:
        return None
    columns = [[*map(float, numbers)] for numbers in list(zip(*pieces, strict=True))[1::2]]
    varying = [column for column in columns if len(set(column)) > 1]
    return varying[0] if len(varying) == 1 else None


def _by_range(names: Sequence[str]) -> list[tuple[float, float]] | None:
    """Take the bounds of ranges that do not overlap, with the same words around all of them."""
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
    ordered = sorted(ranges)
    apart = all(high <= low for (_, high), (low, _) in pairwise(ordered))
    right = all(low <= high for low, high in ranges)
    return ranges if apart and right and len(words - {("", "")}) <= 1 else None


def _by_leading_number(names: Sequence[str]) -> list[float] | None:
    matches = [_LEADING.fullmatch(_plain(name)) for name in names]
    return [float(match[1]) for match in matches if match] if all(matches) else None


def _by_roman_numeral(names: Sequence[str]) -> list[int] | None:
    """Take numerals up to 39; a single letter alone, such as X, may be anything."""
    numerals = _without_shared_words(names)
    if not all(word == "0" or _ROMAN.fullmatch(word) for word in numerals):
        return None
    if not any(len(word) > 1 for word in numerals):
        return None
    return [_roman_value(word) for word in numerals]


def _roman_value(word: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10}.get(letter, 0) for letter in word]
    return sum(
        -value if value < following else value
        for value, following in zip(values, [*values[1:], 0], strict=True)
    )


def _by_scale(names: Sequence[str]) -> list[int] | None:
    """Take the places on the first scale that has a place of its own for each of the names."""
    for texts in ([_words(name) for name in names], _without_shared_words(names)):
        for scale in SCALES:
            place = _places(scale)
            found = [_place_on(place, text) for text in texts]
            ranks = [rank for rank in found if rank is not None]
            if len(ranks) == len(names) == len(set(ranks)):
                return ranks
    return None


@cache
def _places(scale: tuple[str, ...]) -> dict[str, int]:
    return {word: rank for rank, words in enumerate(scale) for word in words.split("|")}


def _place_on(place: dict[str, int], text: str) -> int | None:
    """Find a name on a scale; "no damage" is "none"."""
    if text in place:
        return place[text]
    if text.endswith("s") and text[:-1] in place:
        return place[text[:-1]]
    return place.get("none") if re.fullmatch(r"no \w+( \w+)?", text) else None


def _plain(name: str) -> str:
    return name.casefold().translate(_SIGNS).replace("≤", "<=").replace("≥", ">=")


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
