"""``layline compare``: compare runs on the same test samples."""

import json
from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Json

EXAMPLES = """
layline compare runs/photos runs/photos-coral
layline compare runs/a/evaluations/new runs/b/evaluations/new --out comparison.html
"""


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs or evaluations, the reference first.")
    ],
    out: Annotated[Path | None, typer.Option(help="HTML file for a page with the results.")] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Number of bootstrap resamplings and of permutations.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare runs on the same test samples: paired differences, with intervals and tests."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from layline.reports.comparison import compare as compare_runs
    from layline.reports.comparison import format_row

    comparison, console = compare_runs(runs, out=out, draws=draws, seed=seed), Console()
    numbers = comparison.numbers
    if as_json:
        typer.echo(json.dumps(numbers, indent=2, ensure_ascii=False))
        return
    for pair in numbers["pairs"]:
        first, second, right = pair["first"], pair["second"], pair["right"]
        table = Table(box=None, pad_edge=False)
        table.add_column(f"{numbers['samples']} samples")
        for name in (first, second):
            table.add_column(Text(name), justify="right", overflow="fold")
        for title in ("difference", f"{numbers['level']:.0%} interval", "p", ""):
            table.add_column(title, justify="right", no_wrap=True)
        for metric, row in pair["metrics"].items():
            table.add_row(*format_row(metric, row).values())
        console.print(table)
        line = (
            f"Correct: both {right['both']}, only {first} {right['first_only']}, only {second} "
            f"{right['second_only']}, neither {right['neither']}"
        )
        console.print(Text(line), soft_wrap=True)
    units = "" if numbers["over"] == "samples" else f" of {numbers['units']} groups"
    console.print(f"Intervals and tests from {numbers['draws']} resamplings{units}")
    for note in numbers["notes"]:
        console.print(Text(note), soft_wrap=True)
    if comparison.report is not None:
        typer.echo(comparison.report)
