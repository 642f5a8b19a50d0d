"""Predictions as lines of a file: CSV for people and spreadsheets, JSON lines for programs."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TextIO

from layline.arguments import find_known
from layline.files import atomic_write

_DIGITS = 8


class WriteLine(Protocol):
    """Writes the prediction for a sample."""

    def __call__(
        self, path: str, predicted: str, shares: Sequence[float], true: str | None = None
    ) -> None:
        """Write the predicted class, the probabilities and, where it is known, the true class."""


@contextmanager
def prediction_lines(
    path: Path | None, classes: Sequence[str], with_truth: bool = False
) -> Iterator[WriteLine]:
    """Open a file for predictions, which is whole in the end or not there, and give what writes.

    Args:
        path: Its ending says the format; None for CSV on stdout.
        classes: Names of the classes, lowest first.
        with_truth: Whether the true class is known.
    """
    if path is None:
        yield csv_lines(sys.stdout, classes, with_truth)
        return
    start = find_known("the ending of predictions", path.suffix, FORMATS)
    with (
        atomic_write(path) as part,
        # the name of a sample may be a path that is not UTF-8
        part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        yield start(file, classes, with_truth)


def csv_lines(file: TextIO, classes: Sequence[str], with_truth: bool = False) -> WriteLine:
    """Start a CSV file: path, true class if it is known, predicted class, a column per class."""
    writer = csv.writer(file, lineterminator="\n")
    true = ["true"] if with_truth else []
    writer.writerow(["path", *true, "predicted", *(f"p_{name}" for name in classes)])

    def write(path: str, predicted: str, shares: Sequence[float], true: str | None = None) -> None:
        truth = [] if true is None else [true]
        writer.writerow([path, *truth, predicted, *(f"{share:.{_DIGITS}g}" for share in shares)])

    return write


def json_lines(file: TextIO, classes: Sequence[str], with_truth: bool = False) -> WriteLine:
    """Start a file with one JSON object per line, with the same contents."""

    def write(path: str, predicted: str, shares: Sequence[float], true: str | None = None) -> None:
        rounded = (float(f"{share:.{_DIGITS}g}") for share in shares)
        record: dict[str, object] = {"path": path} | ({"true": true} if with_truth else {})
        record |= {
            "predicted": predicted,
            "probabilities": dict(zip(classes, rounded, strict=True)),
        }
        file.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write


# To add a format: a function as above, and its file ending here.
FORMATS: dict[str, Callable[..., WriteLine]] = {".csv": csv_lines, ".jsonl": json_lines}
