"""How a command says that something is wrong: one sentence, no traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from layline.cli.options import INTERRUPTED


@contextmanager
def explained() -> Iterator[None]:
    """Turn the mistakes that a user can make into a sentence on stderr and an exit code.

    ``LAYLINE_DEBUG=1`` in the environment shows the traceback instead.
    """
    try:
        yield
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        if os.environ.get("LAYLINE_DEBUG"):
            raise
        sys.stderr.write(f"layline: {_text(error)}\n")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write("layline: stopped\n")
        raise typer.Exit(INTERRUPTED) from None


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("layline"):
        return f"this command needs {error.name}: pip install layline[images]"
    return str(error)
