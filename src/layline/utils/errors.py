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
    """Import an optional library, or raise an error that says how to install it.

    Args:
        library: Its import name.
        extra: The extra of this package that installs it.
        needed_by: What needs it, for the message.
    """
    try:
        return import_module(library)
    except ImportError as error:
        name = library.partition(".")[0]
        raise MissingDependencyError(
            f"{needed_by} needs {name}: pip install layline[{extra}]"
        ) from error
