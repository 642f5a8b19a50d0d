"""Files of predictions: CSV for people and spreadsheets, JSON lines for programs.

Text that a spreadsheet would run as a formula is escaped in CSV files: a path ``=a.jpg`` becomes
``./=a.jpg``, which is the same file, and other text ``=a`` becomes ``'=a``. :func:`plain_cell`
undoes it. No other place of the package guards against formulas.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float, Int

from layline.evaluation.diagnostics import certainty
from layline.model.calibration import Range
from layline.utils.errors import UserError
from layline.utils.files import atomic_write, json_text

Cell = str | float | bool
Rows = Iterable[tuple[Sequence[Cell], Sequence[float]]]
FORMATS = (".csv", ".jsonl")
REVIEW_SHARE = 0.2  # the share of samples that are marked for review by default
_DIGITS = 8
# the start of a formula, or of an escaped one
_FORMULA = re.compile(r"'*(\./'*)?[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-](\d+[.,]?\d*|[.,]\d+)?(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def check_format(path: Path) -> None:
    """Raise an error if predictions cannot be written to a file of this name."""
    if path.suffix not in FORMATS:
        raise UserError(f"Predictions are written to .csv or .jsonl files, got {path}.")


def write_predictions(
    path: Path | None, columns: Sequence[str], classes: Sequence[str], rows: Rows, paths: bool
) -> None:
    """Write predictions, to a file atomically.

    Args:
        path: A ``.csv`` or ``.jsonl`` file; None for CSV on standard output.
        columns: Names of the columns before the probabilities, beginning with ``path``.
        classes: Names of the classes, lowest first.
        rows: The cells of these columns and the probabilities, for each sample.
        paths: Whether the names of the samples are paths of files.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):  # file names need not be valid Unicode
            sys.stdout.reconfigure(errors="surrogateescape")
        write_csv(sys.stdout, columns, classes, rows, paths)
        return
    check_format(path)
    with (
        atomic_write(path) as part,
        part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        if path.suffix == ".csv":
            write_csv(file, columns, classes, rows, paths)
            return
        for cells, shares in rows:
            record: dict[str, object] = dict(zip(columns, cells, strict=True))
            rounded = (float(_format_cell(share)) for share in shares)
            record["probabilities"] = dict(zip(classes, rounded, strict=True))
            file.write(json_text(record) + "\n")


def write_csv(
    file: TextIO, columns: Sequence[str], classes: Sequence[str], rows: Rows, paths: bool = True
) -> None:
    """Write predictions as CSV, see :func:`write_predictions`."""
    writer = csv.writer(file, lineterminator="\n")
    quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow([*columns, *(f"p_{name}" for name in classes)])
    for cells, shares in rows:
        named = zip(columns, cells, strict=True)
        line = [_format_cell(cell, paths and column == "path") for column, cell in named]
        # the writer does not quote a carriage return, at which readers end the line
        out = quoting if any("\r" in cell for cell in line) else writer
        out.writerow([*line, *map(_format_cell, shares)])


def _format_cell(value: Cell, is_path: bool = False) -> str:
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return str(value).lower() if isinstance(value, bool) else safe_cell(value, is_path)


def safe_cell(text: str, is_path: bool = False) -> str:
    """Escape text that a spreadsheet would run as a formula; numbers and signs stay as they are."""
    if not _FORMULA.match(text) or (not is_path and (text == "=" or _NUMBER.fullmatch(text))):
        return text
    return f"./{text}" if is_path else f"'{text}"


def plain_cell(cell: str) -> str:
    """Return the text that :func:`safe_cell` escaped."""
    for mark in ("./", "'"):
        if cell.startswith(mark) and _FORMULA.match(cell.removeprefix(mark)):
            return cell.removeprefix(mark)
    return cell


def certainty_columns(
    proba: Float[np.ndarray, "n K"],
    predicted: Int[np.ndarray, " n"],
    classes: Sequence[str],
    ranges: Range | None,
    review: float = REVIEW_SHARE,
) -> dict[str, list[Any]]:
    """Make the columns ``low`` and ``high`` (if there are ranges), ``confidence`` and ``review``.

    Args:
        proba: Calibrated probabilities.
        predicted: The predicted ranks.
        classes: Names of the classes.
        ranges: Lowest and highest rank of each conformal range, if there are ranges.
        review: Share of the samples to mark for review, the least certain ones.
    """
    sure = certainty(proba, predicted)
    marked = np.zeros(len(sure), dtype=bool)
    marked[np.argsort(sure, kind="stable")[: round(review * len(sure))]] = True
    columns = {} if ranges is None else dict(zip(("low", "high"), ranges, strict=True))
    return {
        **{name: [classes[rank] for rank in ranks.tolist()] for name, ranks in columns.items()},
        "confidence": sure.tolist(),
        "review": marked.tolist(),
    }


@dataclass(frozen=True)
class PredictedSamples:
    """The content of a prediction file.

    Attributes:
        classes: Names of the classes, lowest first.
        names: Names of the samples.
        ranks: The true ranks.
        predicted: The predicted ranks.
        proba: The probabilities.
        groups: The group of each sample, if known.
    """

    classes: list[str]
    names: list[str]
    ranks: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    proba: Float[np.ndarray, "n K"]
    groups: list[str] | None = None


def read_predictions(path: Path) -> PredictedSamples:
    """Read a CSV file of predictions with true classes."""
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        header, *lines = csv.reader(file)
    shares = [place for place, title in enumerate(header) if title.startswith("p_")]
    classes = [header[place].removeprefix("p_") for place in shares]
    rank_of = {name: rank for rank, name in enumerate(classes)}

    def column(title: str) -> list[str]:
        place = header.index(title, 0, shares[0])
        return [plain_cell(line[place]) for line in lines]

    return PredictedSamples(
        classes=classes,
        names=column("path"),
        ranks=np.array([rank_of[name] for name in column("true")]),
        predicted=np.array([rank_of[name] for name in column("predicted")]),
        proba=np.array([[line[place] for place in shares] for line in lines], dtype=np.float64),
        groups=column("group") if "group" in header[: shares[0]] else None,
    )
