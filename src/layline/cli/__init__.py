"""The ``layline`` command: its subcommands, one file each, and how it says what is wrong."""

import atexit
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from typer.core import TyperCommand

from layline import __version__
from layline.cli import (
    bench,
    cache,
    calibrate,
    card,
    compare,
    data,
    demo,
    evaluate,
    export,
    methods,
    predict,
    report,
    reproduce,
    serve,
    train,
)
from layline.cli.options import INTERRUPTED
from layline.utils.allocator import keep_freed_memory

__all__ = ["app", "main"]

app = typer.Typer(
    help="Deep ordinal classification by controlling where the classes lie.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="The sources of data.", no_args_is_help=True)
cache_app = typer.Typer(help="What is kept of images: list it, or clear it.")


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Turn the mistakes that a user can make into a sentence on stderr and an exit code.

    ``LAYLINE_DEBUG=1`` in the environment shows the traceback instead. File names that are no
    Unicode are shown with escapes, as stderr has them anyway.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        if os.environ.get("LAYLINE_DEBUG"):
            raise
        sys.stderr.write(f"layline: {_sentence(error)}\n")
        raise typer.Exit(1) from None
    except (MemoryError, OverflowError, RuntimeError, TypeError) as error:
        from layline.data.loaders import explain_killed
        from layline.utils.memory import memory_sentence

        sentence = memory_sentence(error) or explain_killed(error)
        if sentence is None or os.environ.get("LAYLINE_DEBUG"):
            raise
        sys.stderr.write(f"layline: {sentence}\n")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write("layline: stopped\n")
        raise typer.Exit(INTERRUPTED) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("layline"):
        return f"this command needs {error.name}: pip install layline[images]"
    return str(error)


def _add(
    command: Callable[..., None],
    examples: str,
    group: typer.Typer = app,
    name: str | None = None,
    kind: type[TyperCommand] | None = None,
) -> None:
    group.command(name, cls=kind, epilog=examples)(_errors_as_sentences()(command))


_add(train.train, train.EXAMPLES, kind=train.TrainCommand)
_add(evaluate.evaluate, evaluate.EXAMPLES)
_add(predict.predict, predict.EXAMPLES)
_add(serve.serve, serve.EXAMPLES)
_add(calibrate.calibrate, calibrate.EXAMPLES)
_add(export.export, export.EXAMPLES)
_add(card.card, card.EXAMPLES)
_add(compare.compare, compare.EXAMPLES)
_add(report.report, report.EXAMPLES)
_add(bench.bench, bench.EXAMPLES)
_add(reproduce.reproduce, reproduce.EXAMPLES)
_add(methods.methods, methods.EXAMPLES)
_add(demo.demo, demo.EXAMPLES)
_add(data.list_sources, data.LIST_EXAMPLES, data_app, "list")
_add(data.check, data.CHECK_EXAMPLES, data_app)
app.add_typer(data_app, name="data")
cache_app.callback(invoke_without_command=True, epilog=cache.EXAMPLES)(
    _errors_as_sentences()(cache.list_caches)
)
_add(cache.clear, cache.CLEAR_EXAMPLES, cache_app)
app.add_typer(cache_app, name="cache")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"layline {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Deep ordinal classification by controlling where the classes lie."""


def main() -> None:
    """Run the command."""
    keep_freed_memory()
    try:
        app()
    except KeyboardInterrupt:  # before any subcommand was begun
        sys.stderr.write("layline: stopped\n")
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if end.code in (0, None) and os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
            _leave()
        raise


def _leave() -> None:
    """End one of several processes that is done.

    PyTorch's threads of a process group may abort while Python is taken down, now and then, and a
    launcher then calls a finished training a failure.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
