"""How every registry is asked: an unknown name is answered with the nearest known ones."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def check_known(argument: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among the known ones.

    Args:
        argument: What the caller calls the name, for the error.
        name: The name that is wanted.
        known: The names there are.
    """
    if not isinstance(name, str) or name not in known:
        near = get_close_matches(str(name), known, n=3, cutoff=0.5)
        cure = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise ValueError(f"{argument} must be a known name, got {name!r}: {cure}")


def find(argument: str, name: str, known: Mapping[str, T]) -> T:
    """Look a name up in a registry, with the same error."""
    check_known(argument, name, known)
    return known[name]
