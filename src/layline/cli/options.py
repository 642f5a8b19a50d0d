"""What several commands share: options, their parsers, exit codes, and the table of metrics."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130  # the exit code of shells after Ctrl-C
SOME_FAILED = 3  # some of several runs failed
_HIDDEN = ("maximum_mae", "spearman", "kendall")  # only in test.json

Root = Annotated[Path | None, typer.Option("--root", help="Folder or file with the data.")]
Classes = Annotated[str | None, typer.Option(help="Class names, lowest first: low,mid,high.")]
Label = Annotated[str | None, typer.Option(help="Column that contains the labels.")]
Group = Annotated[
    str | None,
    typer.Option(help="Column of groups, such as patients, that must stay in one split."),
]
GroupBy = Annotated[
    str | None, typer.Option(help="Regular expression that finds the group in an image's path.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with settings, like config.toml of a run."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Any setting, such as training.epochs=10."
    ),
]
Decode = Annotated[
    str | None,
    typer.Option(
        "--decode",
        help="Decoding: mode (highest accuracy), median (lowest MAE), mean, quadratic, or a CSV "
        "file of costs, with a row for each true class and a column for each decision.",
    ),
]
Verify = Annotated[
    bool | None,
    typer.Option("--verify", help="Read all files again instead of trusting the index."),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE|MODULE",
        help="Python file or module with your own methods, backbones or data sources; repeatable.",
    ),
]
Device = Annotated[
    str, typer.Option("--device", help="Device: auto (a GPU if there is one), cpu, cuda:1, mps.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def read_settings(config: Path | None, set_: list[str] | None) -> dict[str, Any]:
    """Read a file of settings and single settings, which take precedence."""
    from layline.training.config import combine, parse_settings, read_toml

    written = read_toml(config) if config else {}
    return combine(written, parse_settings(set_ or []))


def read_decode(text: str) -> Any:
    """Return the name of a decoding, or the cells of a CSV file of costs, not yet checked."""
    if not text.endswith(".csv"):
        return text
    with Path(text).expanduser().open(newline="", encoding="utf-8-sig") as file:
        return [row for row in csv.reader(file) if row]


def show_numbers(numbers: dict[str, Any], console: "Console", folder: Path | None = None) -> None:
    """Print the numbers of ``test.json``, with a row for each decoding."""
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
        used = "" if numbers.get("closed_form") else f"Epoch {numbers['epoch']} is used. "
        lines.append(f"{used}The results are in {folder}")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
