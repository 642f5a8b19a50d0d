"""How a user's numbers and switches are checked: an error has the argument, the rule, the value."""

import math
from numbers import Integral, Real
from typing import Any


def check_integer(name: str, value: Any, least: int, why: str = "") -> None:
    """Refuse anything but an integer of at least ``least``."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    _check(good, name, f"an integer, at least {least}", value, why)


def check_above(name: str, value: Any, bound: float, why: str = "") -> None:
    """Refuse anything but a finite number above ``bound``."""
    good = _is_finite(value) and value > bound
    _check(good, name, f"a finite number above {bound}", value, why)


def check_at_least(name: str, value: Any, bound: float, why: str = "") -> None:
    """Refuse anything but a finite number of at least ``bound``."""
    good = _is_finite(value) and value >= bound
    _check(good, name, f"a finite number, at least {bound}", value, why)


def check_boolean(name: str, value: Any, why: str = "") -> None:
    """Refuse anything but true and false."""
    _check(isinstance(value, bool), name, "true or false", value, why)


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _check(good: bool, name: str, rule: str, value: Any, why: str) -> None:
    if not good:
        raise ValueError(f"{name} must be {rule}, got {value!r}" + (why and f": {why}"))
