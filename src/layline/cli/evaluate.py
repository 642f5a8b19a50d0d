"""``layline evaluate``: evaluate a trained run on its own or on other data."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
)

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """
Examples:

  layline evaluate runs/photos-arc

  layline evaluate runs/photos-arc --part validation --decode median

  layline evaluate runs/photos-arc --root other-hospital --part all
"""
_HIDDEN = ("maximum_mae", "spearman", "kendall")  # only in test.json


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    root: Annotated[
        Path | None,
        typer.Option(
            help="Other labelled data (a folder, CSV or npz file), or the new path of the run's "
            "own data.",
            show_default=False,
        ),
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
        typer.Option(
            help="New folder for numbers, predictions and report.",
            show_default="RUN/evaluations/NAME with --root",
        ),
    ] = None,
    label: Label = None,
    group: Annotated[
        str | None, typer.Option(help="Column of groups in other data, such as a patient ID.")
    ] = None,
    decode: Decode = None,
    skip_unknown: Annotated[
        bool,
        typer.Option("--skip-unknown", help="Leave out classes that the model does not know."),
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

    from layline.model.model_file import load
    from layline.training.evaluate import evaluate as evaluate_run

    result = evaluate_run(
        run,
        root=root,
        part=part,
        out=out,
        label=label,
        group=group,
        decode=decode and read_decode(decode, lambda: load(run, plugins=plugins or ()).classes),
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


def show_numbers(numbers: dict[str, Any], console: "Console", folder: Path | None = None) -> None:
    """Print the metrics, with a row for each decoding.

    Args:
        numbers: The numbers of ``test.json``.
        console: Where to print.
        folder: The folder of the run, if it is to be named.
    """
    from rich.table import Table

    from layline.metrics import METRICS

    shown = [name for name in METRICS if name not in _HIDDEN]
    of_ranks = [name for name in shown if METRICS[name].kind == "ranks"]
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{numbers['part']}, {numbers['samples']} samples")
    for name in of_ranks:
        table.add_column(METRICS[name].label, justify="right")
    for decode, values in numbers["by_decoding"].items():
        mark = " (chosen)" if decode == numbers["decode"] else ""
        table.add_row(decode + mark, *(_format(values[name]) for name in of_ranks))
    console.print(table)
    others = {METRICS[name].label: numbers[name] for name in shown if name not in of_ranks}
    if "cost" in numbers:
        others["mean cost"] = numbers["cost"]
    lines = ["  ".join(f"{label} {_format(value)}" for label, value in others.items())]
    calibration = numbers["calibration"]
    if calibration["temperature"] != 1:
        before, after = calibration["before"], calibration["after"]
        changes = (f"{METRICS[k].label} {_format(before[k])} → {_format(after[k])}" for k in after)
        lines.append(f"Temperature {calibration['temperature']:.2f}: {', '.join(changes)}")
    for each in numbers["ranges"]:
        low = each["expected"][0]
        verdict = "" if each["measured"] >= low else f", below the {low:.1%} that chance allows"
        lines.append(
            f"Ranges at {each['coverage']:.0%}: {each['width']:.2f} classes on average, contain "
            f"the true class in {each['measured']:.1%}{verdict}"
        )
    if folder is not None:
        lines.append(f"Best epoch {numbers['epoch']}. The results are in {folder}")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
