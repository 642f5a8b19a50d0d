"""``layline compare``: runs on the same test samples, side by side."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layline.cli.options import Json

if TYPE_CHECKING:
    from rich.console import Console

    from layline.reports.comparison import Comparison

EXAMPLES = """
Examples:

  layline compare runs/photos-arc runs/photos-coral

  layline compare runs/a/evaluations/new runs/b/evaluations/new --out comparison.html
"""


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs or of evaluations; the others are compared with the first."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write a page that shows it to this HTML file.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Resamplings of an interval, and exchanges of a test.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of both.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare runs on the same test samples: paired differences, with intervals and tests."""
    from rich.console import Console

    from layline.training import api

    found = api.compare(runs, out=out, draws=draws, seed=seed)
    if as_json:
        typer.echo(json.dumps(found.numbers, indent=2, ensure_ascii=False))
        return
    _show(found, Console())
    if found.report is not None:
        typer.echo(found.report)


def _show(found: "Comparison", console: "Console") -> None:
    """Print a table for each run that is compared with the first."""
    from rich.table import Table
    from rich.text import Text

    from layline.reports.comparison import format_row
    from layline.training.display import amount

    numbers = found.numbers
    for pair in numbers["pairs"]:
        table = Table(box=None, pad_edge=False)
        table.add_column(amount(numbers["samples"], "sample"))
        for name in (pair["first"], pair["second"]):
            table.add_column(Text(name), justify="right", overflow="fold")
        for title in ("differs", f"{numbers['level']:.0%} interval", "p"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for metric, row in pair["metrics"].items():
            table.add_row(*format_row(metric, row).values())
        console.print(table)
        right = pair["right"]
        console.print(
            Text(
                f"Right: both {right['both']}, only {pair['first']} {right['first_only']}, only "
                f"{pair['second']} {right['second_only']}, neither {right['neither']}"
            ),
            soft_wrap=True,
        )
    over = "" if numbers["over"] == "samples" else f", by {numbers['units']} groups"
    console.print(f"Paired, {numbers['draws']} draws{over}", highlight=False)
    for note in numbers["notes"]:
        console.print(Text(note), soft_wrap=True)
