"""Files of predictions: CSV for people and spreadsheets, JSON lines for programs.

Text that a spreadsheet would run as a formula is escaped in CSV files: a path ``=a.jpg`` becomes
``./=a.jpg``, which is the same file, and other text ``=a`` becomes ``'=a``. :func:`plain_cell`
undoes it. No other place of the package guards against formulas.
"""

import csv
import io
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float, Int

from layline.evaluation.diagnostics import certainty
from layline.model.calibration import Range
from layline.utils.files import atomic_write, json_text
from layline.utils.validation import UserError

Columns = Mapping[str, Sequence[Any]]  # cells of text, numbers and truth values by column
Proba = Float[np.ndarray, "n K"]
REVIEW_SHARE = 0.2  # the share of samples that are marked for review by default
# the start of a formula, or of an escaped one
_FORMULA = re.compile(r"'*(\./'*)?[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-](\d+[.,]?\d*|[.,]\d+)?(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def check_format(path: Path) -> None:
    """Raise an error if predictions cannot be written to a file of this name."""
    if path.suffix not in (".csv", ".jsonl"):
        raise UserError(f"Predictions are written to .csv or .jsonl files, got {path}.")


def write_predictions(
    path: Path | None, columns: Columns, classes: Sequence[str], proba: Proba, paths: bool
) -> None:
    """Write predictions to a ``.csv`` or ``.jsonl`` file atomically; None is CSV on stdout.

    ``columns`` come before the probabilities; the first is ``path``, with ``paths`` of files or
    other names.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):  # file names need not be valid Unicode
            sys.stdout.reconfigure(errors="surrogateescape")
        write_csv(sys.stdout, columns, classes, proba, paths)
        return
    with (
        atomic_write(path) as part,
        part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        if path.suffix == ".csv":
            write_csv(file, columns, classes, proba, paths)
            return
        for *cells, shares in zip(*columns.values(), proba.tolist(), strict=True):
            record = dict(zip(columns, cells, strict=True))
            rounded = (float(_format_cell(share)) for share in shares)
            record["probabilities"] = dict(zip(classes, rounded, strict=True))
            file.write(json_text(record) + "\n")


def write_csv(
    file: TextIO, columns: Columns, classes: Sequence[str], proba: Proba, paths: bool = True
) -> None:
    """Write predictions as CSV, see :func:`write_predictions`."""
    writer = csv.writer(file, lineterminator="\n")
    quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow([*columns, *(f"p_{name}" for name in classes)])
    cells = [
        [_format_cell(cell, paths and title == "path") for cell in column]
        for title, column in columns.items()
    ]
    for *line, shares in zip(*cells, proba.tolist(), strict=True):
        # the writer does not quote a carriage return, at which readers end the line
        out = quoting if any("\r" in cell for cell in line) else writer
        out.writerow([*line, *map(_format_cell, shares)])


def _format_cell(value: str | float | bool, is_path: bool = False) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
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
    proba: Proba,
    predicted: Int[np.ndarray, " n"],
    classes: Sequence[str],
    ranges: Range | None,
    review: float = REVIEW_SHARE,
) -> dict[str, list[Any]]:
    """Make columns of ranges, confidence, and whether a sample is in the least certain share."""
    sure = certainty(proba, predicted)
    marked = np.zeros(len(sure), dtype=bool)
    marked[np.argsort(sure, kind="stable")[: round(review * len(sure))]] = True
    ends = {} if ranges is None else dict(zip(("low", "high"), ranges, strict=True))
    return {
        **{name: [classes[rank] for rank in ranks.tolist()] for name, ranks in ends.items()},
        "confidence": sure.tolist(),
        "review": marked.tolist(),
    }


@dataclass(frozen=True)
class PredictedSamples:
    """The content of a prediction file: see the attributes of ``Evaluation``."""

    classes: list[str]
    names: list[str]
    ranks: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    proba: Proba
    groups: list[str] | None = None


def read_predictions(path: Path) -> PredictedSamples:
    """Read a CSV file of predictions with true classes."""
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        reader = csv.DictReader(file)
        rows, titles = list(reader), reader.fieldnames or ()
    classes = [title.removeprefix("p_") for title in titles if title.startswith("p_")]
    rank_of = {name: rank for rank, name in enumerate(classes)}

    def column(title: str) -> list[str]:
        return [plain_cell(row[title]) for row in rows]

    return PredictedSamples(
        classes=classes,
        names=column("path"),
        ranks=np.array([rank_of[name] for name in column("true")]),
        predicted=np.array([rank_of[name] for name in column("predicted")]),
        proba=np.array([[row[f"p_{name}"] for name in classes] for row in rows], np.float64),
        groups=column("group") if "group" in titles else None,
    )
