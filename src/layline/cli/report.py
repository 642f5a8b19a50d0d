"""``layline report`` and ``layline card``: the HTML report and the model card of a run."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
layline report runs/photos
layline report runs/photos --out page.html --open
layline report bench
"""
CARD_EXAMPLES = """
layline card runs/photos
layline card runs/photos --out model/README.md
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


def card(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Markdown file to write; by default README.md in the folder."),
    ] = None,
) -> None:
    """Write a model card in Hugging Face's format: what it was trained on, and how good it is.

    It has the test metrics with their intervals, the counts of the data, and the alarms of the
    report. The license is yours to add.
    """
    from layline.reports.card import create_card
    from layline.training.run_folder import RunFolder
    from layline.utils.files import check_output, write_text

    place = out or run / "README.md"
    check_output(place, [each for each in RunFolder(run).inputs() if each.name != "README.md"])
    write_text(place, create_card(run))
    typer.echo(place)
