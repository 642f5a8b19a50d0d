"""Optional libraries."""

from importlib import import_module
from typing import Any

from layline.utils.errors import MissingDependencyError


def array_namespace(array: Any) -> Any:
    """Return the library of an array: NumPy or PyTorch, which is not imported for NumPy."""
    return import_module("torch" if hasattr(array, "requires_grad") else "numpy")


def require(library: str, extra: str, needed_by: str) -> Any:
    """Import a library, or raise an error that says how to install it.

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
