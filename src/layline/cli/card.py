"""``layline card``: the model card of a run, as model hubs show it."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
Examples:

  layline card runs/photos-arc

  layline card runs/photos-arc --out model/README.md
"""


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
