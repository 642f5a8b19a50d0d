"""The errors that are the user's to fix."""


class UserError(ValueError):
    """A mistake in what the user gave: data, settings, files or arguments.

    The command line shows its message in one line. Every other exception is a bug of ours and keeps
    its traceback.
    """


class MissingDependencyError(UserError, ImportError):
    """An optional library is needed and not installed."""
