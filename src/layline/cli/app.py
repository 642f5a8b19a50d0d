"""The command as a whole: its subcommands, and how it says that something is wrong."""

from typing import Annotated

import typer

from layline import __version__
from layline.cli import (
    bench,
    data,
    demo,
    evaluate,
    methods,
    predict,
    report,
    reproduce,
    train,
)

app = typer.Typer(
    help="Deep ordinal classification by controlling where the classes lie.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=bench.EXAMPLES)(bench.bench)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)
app.command(epilog=methods.EXAMPLES)(methods.methods)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.add_typer(data.app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"layline {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Deep ordinal classification by controlling where the classes lie."""


def main() -> None:
    """Run the command."""
    app()
