"""``layline calibrate``: how sure a trained model may be, found out anew."""

from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Plugins

EXAMPLES = """
Examples:

  layline calibrate runs/photos-arc

  layline calibrate runs/photos-arc --root other-hospital
"""


def calibrate(
    run: Annotated[Path, typer.Argument(help="Folder of a run; its model is written anew.")],
    root: Annotated[
        Path | None,
        typer.Option(
            help="Labelled data that the model has not seen, of the kind that it will be used on; "
            "the run's own held-out parts if not given."
        ),
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Fit the temperature of the probabilities, and the scores that ranges are made from."""
    from rich.console import Console

    from layline.model.calibration import COVERAGES, samples_needed
    from layline.training.finished_run import calibrate_run
    from layline.training.run_folder import RunFolder

    found = calibrate_run(RunFolder(run), root, Console(stderr=True), plugins or ())
    typer.echo(f"Temperature {found.temperature:.3f}")
    count = len(found.scores)
    possible = [f"{coverage:.0%}" for coverage in COVERAGES if count >= samples_needed(coverage)]
    if possible:
        typer.echo(f"Ranges from {count} samples, such as at {', '.join(possible)}")
    typer.echo(f"Written to {run / 'best.safetensors'}; layline evaluate {run} measures it")
