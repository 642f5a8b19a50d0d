"""``layline evaluate``: the numbers of a trained run, measured again."""

import json
from collections.abc import Sequence
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
_OF_RANKS = ("accuracy", "mae", "macro_mae", "within_one", "qwk")
_OF_PROBABILITIES = ("rps", "nll", "ece", "unimodality_rate")


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    root: Annotated[
        Path | None,
        typer.Option(
            help="Other labelled data: a folder, CSV or npz file, which is recognised; or where "
            "those of the run are now.",
            show_default=False,
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="train, validation, test, calibration or all.",
            show_default="test; all of other data without a split of their own",
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
        str | None, typer.Option(help="Column of what belongs together, such as a patient.")
    ] = None,
    decode: Decode = None,
    skip_unknown: Annotated[
        bool,
        typer.Option("--skip-unknown", help="Leave out classes that the model does not know."),
    ] = False,
    predictions: Annotated[
        Path | None, typer.Option(help="Write a line per sample to this CSV file, too.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html into the folder.")
    ] = True,
    plugins: Plugins = None,
    config: ConfigFile = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Measure the best model of a run, on a part of its data or on labelled data elsewhere."""
    from rich.console import Console

    from layline.model.model_file import load
    from layline.training import api

    def classes() -> Sequence[str]:
        return load(run, plugins=plugins or ()).classes

    found = api.evaluate(
        run,
        root=root,
        part=part,
        out=out,
        label=label,
        group=group,
        decode=None if decode is None else read_decode(decode, classes),
        skip_unknown=skip_unknown,
        predictions=predictions,
        report=report,
        plugins=plugins or (),
        settings=read_settings(config, set_),
    )
    if as_json:
        typer.echo(json.dumps(found.metrics, indent=2, ensure_ascii=False))
        return
    show_numbers(found.metrics, Console())
    for text in found.metrics.get("alarms", []):
        typer.echo(f"! {text}")


def show_numbers(numbers: dict[str, Any], console: "Console", folder: Path | None = None) -> None:
    """Print the metrics as a small table, a row for each decoding.

    Args:
        numbers: As in ``test.json``.
        console: Where to.
        folder: The run's folder, to say what is in it.
    """
    from rich.table import Table

    from layline.metrics import METRICS
    from layline.training.display import Reporter, amount

    table = Table(box=None, pad_edge=False)
    table.add_column(f"{numbers['part']}, {amount(numbers['samples'], 'sample')}")
    for name in _OF_RANKS:
        table.add_column(METRICS[name].label, justify="right")
    for decode, values in numbers["by_decoding"].items():
        mark = " (chosen)" if decode == numbers["decode"] else ""
        table.add_row(decode + mark, *(_number(values[name]) for name in _OF_RANKS))
    console.print(table)
    rest = "  ".join(
        f"{METRICS[name].label} {_number(numbers[name])}" for name in _OF_PROBABILITIES
    )
    if "cost" in numbers:
        rest += f"  mean cost {_number(numbers['cost'])}"
    console.print(rest, highlight=False)
    for line in certainty_lines(numbers):
        console.print(line, highlight=False)
    if folder is not None:
        Reporter(console)(
            f"Best epoch {numbers['epoch']}. Model, history and predictions are in {folder}"
        )


def certainty_lines(numbers: dict[str, Any]) -> list[str]:
    """Say what calibration did, and what the ranges are worth."""
    lines = []
    calibration = numbers["calibration"]
    if calibration["temperature"] != 1:
        before, after = calibration["before"], calibration["after"]
        lines.append(
            f"Temperature {calibration['temperature']:.2f}: ECE {_number(before['ece'])} → "
            f"{_number(after['ece'])}, NLL {_number(before['nll'])} → {_number(after['nll'])}"
        )
    for each in numbers["ranges"]:
        low = each["expected"][0]
        verdict = "" if each["measured"] >= low else f", less than the {low:.1%} that chance allows"
        lines.append(
            f"Ranges at {each['coverage']:.0%} have {each['width']:.2f} grades on average and hold "
            f"the truth in {each['measured']:.1%}{verdict}"
        )
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
