"""The errors that are the user's to fix."""

from importlib import import_module
from typing import Any


class UserError(ValueError):
    """A mistake in what the user gave: data, settings, files or arguments.

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
