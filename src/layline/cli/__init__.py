"""The ``layline`` command, one file per subcommand."""

from layline.cli.app import app, main

__all__ = ["app", "main"]
