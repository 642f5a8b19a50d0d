"""``layline report``: the HTML report of a run or a benchmark."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
Examples:

  layline report runs/photos-arc

  layline report runs/photos-arc --out page.html --open

  layline report bench
"""


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run or of a benchmark.")],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; by default report.html in the folder.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Write the report of a run or a benchmark: one HTML file that works without a network."""
    place = out or run / "report.html"
    if (run / "results.csv").exists():
        from layline.reports.bench import write_bench_report

        write_bench_report(run, place)
    else:
        from layline.reports.run import write_run_report

        write_run_report(run, place)
    typer.echo(place)
    if open_:
        import webbrowser

        webbrowser.open(place.resolve().as_uri())
