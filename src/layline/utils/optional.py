"""Libraries that only some parts need."""

import warnings
from importlib import import_module
from typing import Any

from layline.utils.errors import MissingDependencyError


def require(library: str, extra: str, needed_by: str) -> Any:
    """Import a library when it is needed, and say what to install if it is not there.

    Args:
        library: Its import name.
        extra: The extra of this package that brings it.
        needed_by: Who needs it.
    """
    with warnings.catch_warnings():
        # gpytorch's own use of torch.jit is nothing that a user of ours could change
        warnings.filterwarnings("ignore", r"`torch\.jit\.script` is deprecated", DeprecationWarning)
        try:
            return import_module(library)
        except ImportError as error:
            name = library.partition(".")[0]
            raise MissingDependencyError(
                f"{needed_by} needs {name}: pip install layline[{extra}]"
            ) from error
