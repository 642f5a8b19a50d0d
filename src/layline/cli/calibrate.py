"""``layline calibrate``: calibrate a trained model again."""

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
    run: Annotated[Path, typer.Argument(help="Folder of a run; its model is replaced.")],
    root: Annotated[
        Path | None,
        typer.Option(
            help="Labelled data that the model has not seen, like those it will be used on; by "
            "default the validation and calibration splits of the run.",
            show_default=False,
        ),
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Fit the temperature of the probabilities and the conformal ranges of a trained model."""
    from rich.console import Console

    from layline.model.calibration import COVERAGES, samples_needed
    from layline.training.evaluate import calibrate_run
    from layline.training.run_folder import RunFolder

    calibration = calibrate_run(RunFolder(run), root, Console(stderr=True), plugins or ())
    typer.echo(f"Temperature {calibration.temperature:.3f}")
    count = len(calibration.scores)
    possible = [f"{share:.0%}" for share in COVERAGES if count >= samples_needed(share)]
    if possible:
        typer.echo(f"Ranges from {count} samples, for example at {', '.join(possible)}")
    else:
        typer.echo("No ranges: train with --calibration 0.1, or give labelled data with --root")
    typer.echo(f"The model is in {run / 'best.safetensors'}")
