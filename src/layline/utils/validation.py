"""Errors that a user can fix, and the checks of arguments that raise them."""

import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from importlib import import_module
from numbers import Integral, Real
from typing import Any, TypeVar

_T = TypeVar("_T")


class UserError(ValueError):
    """A mistake in the data, settings, files or arguments that the user gave.

    The command line shows its message in one line. Every other exception is a bug of ours and keeps
    its traceback.
    """


class MissingDependencyError(UserError, ImportError):
    """An optional library is needed and not installed."""


def require(library: str, extra: str, needed_by: str) -> Any:
    """Import an optional library, or raise an error with the extra that installs it."""
    try:
        return import_module(library)
    except ImportError as error:
        message = f"{needed_by} needs {library.partition('.')[0]}: pip install layline[{extra}]"
        raise MissingDependencyError(message) from error


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
    """Raise an error that suggests similar names unless the value of an argument is known."""
    if not isinstance(name, str) or name not in known:
        near = get_close_matches(str(name), known, n=3, cutoff=0.5)
        names = ", ".join(list(known)[:50]) + (", …" if len(known) > 50 else "")
        cure = f"did you mean {' or '.join(near)}?" if near else f"known are {names}"
        raise UserError(f"{argument} must be a known name, got {name!r}: {cure}")


def find_known(argument: str, name: str, known: Mapping[str, _T]) -> _T:
    """Look up a name in a mapping, with the same error."""
    check_known(argument, name, known)
    return known[name]


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _check(good: bool, name: str, rule: str, value: Any, why: str) -> None:
    if not good:
        raise UserError(f"{name} must be {rule}, got {value!r}" + (why and f": {why}"))
