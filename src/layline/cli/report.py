"""``layline report``: one HTML page of what a run, or a grid of runs, did."""

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
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or of a grid of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; report.html in the folder if not given.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write the report of a run or a grid: one HTML file that needs nothing else, no network."""
    place = out or run / "report.html"
    write_report(run, place)
    typer.echo(place)
    if open_:
        import webbrowser

        webbrowser.open(place.resolve().as_uri())


def write_report(folder: Path, out: Path) -> None:
    """Write the report of whatever the folder holds.

    Args:
        folder: Of a run, or of a grid of runs.
        out: The HTML file.
    """
    if (folder / "results.csv").exists():
        from layline.reports.grid import write_grid_report

        write_grid_report(folder, out)
    else:
        from layline.reports.run import write_run_report

        write_run_report(folder, out)
