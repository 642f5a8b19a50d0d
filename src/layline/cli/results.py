"""The numbers of an evaluation as a small table."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from layline.amounts import amount
from layline.training.reporter import Reporter

_SHOWN = {
    "accuracy": "accuracy",
    "mae": "MAE",
    "macro_mae": "macro MAE",
    "within_one": "within one",
    "qwk": "QWK",
}
_OF_DISTRIBUTION = {"rps": "RPS", "ece": "ECE", "unimodality_rate": "unimodal"}


def show(numbers: dict[str, Any], console: Console, folder: Path | None = None) -> None:
    """Print the metrics by decoding.

    Args:
        numbers: As in ``test.json``.
        console: Where to.
        folder: The run's folder, to say what is in it.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{numbers['part']}, {amount(numbers['samples'], 'sample')}")
    for title in _SHOWN.values():
        table.add_column(title, justify="right")
    for decode, values in numbers["by_decoding"].items():
        mark = " (chosen)" if decode == numbers["decode"] else ""
        table.add_row(decode + mark, *(_text(values[name]) for name in _SHOWN))
    console.print(table)
    rest = "  ".join(f"{title} {_text(numbers[key])}" for key, title in _OF_DISTRIBUTION.items())
    console.print(rest, highlight=False)
    if folder is not None:
        Reporter(console)(
            f"Best epoch {numbers['epoch']}. Model, history and predictions are in {folder}"
        )


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
