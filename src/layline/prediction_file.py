"""Predictions as lines of a file: CSV for people and spreadsheets, JSON lines for programs."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TextIO


class Write(Protocol):
    """Writes a line."""

    def __call__(
        self, path: str, predicted: str, shares: Sequence[float], true: str | None = None
    ) -> None:
        """Write what is said of a sample."""


_DIGITS = 8


def open_for_lines(path: Path) -> TextIO:
    """Open a file for lines; the name of a sample may be a path that is not UTF-8."""
    return path.open("w", newline="", encoding="utf-8", errors="surrogateescape")


def csv_lines(file: TextIO, classes: Sequence[str], with_truth: bool = False) -> Write:
    """Start a CSV file: path, true class if it is known, predicted class, a column per class.

    Args:
        file: Opened for text.
        classes: Names of the classes, lowest first.
        with_truth: Whether the true class is known.

    Returns:
        What writes a line, of path, predicted class, probabilities and true class.
    """
    writer = csv.writer(file, lineterminator="\n")
    true = ["true"] if with_truth else []
    writer.writerow(["path", *true, "predicted", *(f"p_{name}" for name in classes)])

    def write(path: str, predicted: str, shares: Sequence[float], true: str | None = None) -> None:
        truth = [] if true is None else [true]
        writer.writerow([path, *truth, predicted, *(f"{share:.{_DIGITS}g}" for share in shares)])

    return write


def json_lines(file: TextIO, classes: Sequence[str], with_truth: bool = False) -> Write:
    """Start a file with one JSON object per line; see :func:`csv_lines`."""

    def write(path: str, predicted: str, shares: Sequence[float], true: str | None = None) -> None:
        record: dict[str, object] = {"path": path}
        if with_truth:
            record["true"] = true
        record["predicted"] = predicted
        record["probabilities"] = {
            name: float(f"{share:.{_DIGITS}g}") for name, share in zip(classes, shares, strict=True)
        }
        file.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write


# To add a format: a function as above, and its file ending here.
FORMATS: dict[str, Callable[..., Write]] = {".csv": csv_lines, ".jsonl": json_lines}
