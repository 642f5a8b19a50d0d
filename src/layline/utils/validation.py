"""Checks of arguments. A message has the argument, the rule, the value and a reason."""

import math
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from layline.utils.errors import UserError

if TYPE_CHECKING:  # the help of the command does not wait for NumPy
    from numpy.typing import NDArray

    Costs = Sequence[Sequence[float | int]] | NDArray[Any]
else:
    Costs = Any

_T = TypeVar("_T")
_LARGEST = 3.4e38  # in float32
Decode = str | Costs  # a name, or the cost of each decision
COST = "cost"  # the name of decoding with a matrix
_DECODINGS = ("mode", "median", "mean")  # see geometry.decoding
_OTHER_NAMES = {"quadratic": "mean"}


def check_integer(
    name: str, value: Any, least: int, why: str = "", most: int | None = None
) -> None:
    """Raise an error unless the value is an integer from ``least`` to ``most``."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    rule = f"an integer, at least {least}" if most is None else f"an integer from {least} to {most}"
    _check(good and (most is None or int(value) <= most), name, rule, value, why)


def check_above(name: str, value: Any, bound: float, why: str = "") -> None:
    """Raise an error unless the value is a finite number above ``bound``."""
    good = _is_finite(value) and value > bound
    _check(good, name, f"a finite number above {bound}", value, why)


def check_at_least(name: str, value: Any, bound: float, why: str = "") -> None:
    """Raise an error unless the value is a finite number of at least ``bound``."""
    good = _is_finite(value) and value >= bound
    _check(good, name, f"a finite number, at least {bound}", value, why)


def check_boolean(name: str, value: Any) -> None:
    """Raise an error unless the value is a boolean."""
    _check(isinstance(value, bool), name, "true or false", value, "")


def check_known(argument: str, name: str, known: Collection[str]) -> None:
    """Raise an error that suggests similar names unless a name is known.

    Args:
        argument: The name of the argument, for the message.
        name: The value.
        known: The valid names.
    """
    if not isinstance(name, str) or name not in known:
        near = get_close_matches(str(name), known, n=3, cutoff=0.5)
        names = ", ".join(list(known)[:50]) + (", …" if len(known) > 50 else "")
        cure = f"did you mean {' or '.join(near)}?" if near else f"known are {names}"
        raise UserError(f"{argument} must be a known name, got {name!r}: {cure}")


def find_known(argument: str, name: str, known: Mapping[str, _T]) -> _T:
    """Look up a name in a mapping, with the same error."""
    check_known(argument, name, known)
    return known[name]


def check_decode(decode: Any, num_classes: int | None = None) -> Decode:
    """Return a decoding by its canonical name, or its costs as tuples, or raise an error.

    Args:
        decode: A name, or a matrix of costs.
        num_classes: K, if it is known.
    """
    if isinstance(decode, str):
        check_known("decode", decode, (*_DECODINGS, *_OTHER_NAMES))
        return _OTHER_NAMES.get(decode, decode)
    try:
        costs = tuple(tuple(float(cost) for cost in row) for row in decode)
    except (TypeError, ValueError):
        raise UserError(f"decode must be a name or a matrix of costs, got {decode!r}") from None
    sides = max(num_classes or len(costs), 2)
    if len(costs) != sides or any(len(row) != sides for row in costs):
        raise UserError(
            f"decode must be a matrix with a row for each true class and a column for each "
            f"decision, {sides} of both"
        )
    if not all(abs(cost) <= _LARGEST for row in costs for cost in row):
        raise UserError(
            "decode must have finite costs; use a large number for a forbidden decision"
        )
    return costs


def decode_name(decode: Decode) -> str:
    """Return the name of a decoding, ``"cost"`` for a matrix."""
    return decode if isinstance(decode, str) else COST


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _check(good: bool, name: str, rule: str, value: Any, why: str) -> None:
    if not good:
        raise UserError(f"{name} must be {rule}, got {value!r}" + (why and f": {why}"))
