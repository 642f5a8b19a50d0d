"""``layline evaluate`` and ``layline calibrate``: a trained run on its own or on other data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import (
    ConfigFile,
    Decode,
    Json,
    Label,
    Plugins,
    Set,
    read_decode,
    read_settings,
    show_numbers,
)

EXAMPLES = """
layline evaluate runs/photos
layline evaluate runs/photos --part train --decode median
layline evaluate runs/photos --root other-hospital --part all
"""
CALIBRATE_EXAMPLES = """
layline calibrate runs/photos
layline calibrate runs/photos --root other-hospital
"""


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    root: Annotated[
        Path | None,
        typer.Option(help="Other labelled data, or the new path of the run's own data."),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="Split to evaluate: train, validation, test, calibration or all.",
            show_default="test; all samples of other data without a test split",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for results; with --root by default in RUN/evaluations."),
    ] = None,
    label: Label = None,
    group: Annotated[
        str | None, typer.Option(help="Column of groups in other data, such as a patient ID.")
    ] = None,
    decode: Decode = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out classes unknown to the model.")
    ] = False,
    predictions: Annotated[
        Path | None, typer.Option(help="Also write predictions to this .csv or .jsonl file.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html into the folder.")
    ] = True,
    plugins: Plugins = None,
    config: ConfigFile = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Evaluate the best model of a run, on a split of its data or on other labelled data."""
    from rich.console import Console

    from layline.training.evaluate import evaluate as evaluate_run

    result = evaluate_run(
        run,
        root=root,
        part=part,
        out=out,
        label=label,
        group=group,
        decode=decode and read_decode(decode),
        skip_unknown=skip_unknown,
        predictions=predictions,
        report=report,
        plugins=plugins or (),
        settings=read_settings(config, set_),
    )
    if as_json:
        typer.echo(json.dumps(result.metrics, indent=2, ensure_ascii=False))
        return
    show_numbers(result.metrics, Console())
    for alarm in result.metrics["alarms"]:
        typer.echo(f"! {alarm}")


def calibrate(
    run: Annotated[Path, typer.Argument(help="Folder of a run; its model is replaced.")],
    root: Annotated[
        Path | None,
        typer.Option(help="Labelled data to use instead of the splits of the run."),
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Fit the temperature of the probabilities and the conformal ranges of a trained model.

    By default the validation split gives the temperature and the calibration split the ranges. Data
    at --root must be new to the model, and like those it will be used on.
    """
    from rich.console import Console

    from layline.training.evaluate import calibrate_run
    from layline.training.run_folder import RunFolder

    calibration = calibrate_run(RunFolder(run), root, Console(stderr=True), plugins or ())
    typer.echo(f"Temperature {calibration.temperature:.3f}")
    if possible := [f"{coverage:.0%}" for coverage in calibration.usual_coverages]:
        count = len(calibration.scores)
        typer.echo(f"Ranges from {count} samples, for example at {', '.join(possible)}")
    else:
        typer.echo("No ranges: train with --calibration 0.1, or give labelled data with --root")
    typer.echo(f"The model is in {run / 'best.safetensors'}")
