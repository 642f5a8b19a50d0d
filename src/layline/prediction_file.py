"""Predictions as lines of a file: CSV for people and spreadsheets, JSON lines for programs."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TextIO

from layline.arguments import find_known
from layline.files import atomic_write

Cell = str | float | bool
_DIGITS = 8
_NOTHING: Mapping[str, Cell] = MappingProxyType({})


class WriteLine(Protocol):
    """Writes the prediction for a sample."""

    def __call__(
        self,
        path: str,
        predicted: str,
        shares: Sequence[float],
        true: str | None = None,
        more: Mapping[str, Cell] = _NOTHING,
    ) -> None:
        """Write the predicted class, the probabilities and, where it is known, the true class.

        ``more`` has the values of the further columns.
        """


@contextmanager
def prediction_lines(
    path: Path | None,
    classes: Sequence[str],
    with_truth: bool = False,
    more: Sequence[str] = (),
) -> Iterator[WriteLine]:
    """Open a file for predictions, which is whole in the end or not there, and give what writes.

    Args:
        path: Its ending says the format; None for CSV on stdout.
        classes: Names of the classes, lowest first.
        with_truth: Whether the true class is known.
        more: Further columns, between the predicted class and the probabilities.
    """
    if path is None:
        yield csv_lines(sys.stdout, classes, with_truth, more)
        return
    start = find_known("the ending of predictions", path.suffix, FORMATS)
    with (
        atomic_write(path) as part,
        # the name of a sample may be a path that is not UTF-8
        part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        yield start(file, classes, with_truth, more)


def csv_lines(
    file: TextIO, classes: Sequence[str], with_truth: bool = False, more: Sequence[str] = ()
) -> WriteLine:
    """Start a CSV file: path, true class if it is known, predicted class, a column per class."""
    columns = tuple(more)
    writer = csv.writer(file, lineterminator="\n")
    true = ["true"] if with_truth else []
    writer.writerow(["path", *true, "predicted", *columns, *(f"p_{name}" for name in classes)])

    def write(
        path: str,
        predicted: str,
        shares: Sequence[float],
        true: str | None = None,
        more: Mapping[str, Cell] = _NOTHING,
    ) -> None:
        truth = [] if true is None else [true]
        cells = [_text(more[name]) for name in columns]
        writer.writerow([path, *truth, predicted, *cells, *map(_text, shares)])

    return write


def json_lines(
    file: TextIO, classes: Sequence[str], with_truth: bool = False, more: Sequence[str] = ()
) -> WriteLine:
    """Start a file with one JSON object per line, with the same contents."""
    columns = tuple(more)

    def write(
        path: str,
        predicted: str,
        shares: Sequence[float],
        true: str | None = None,
        more: Mapping[str, Cell] = _NOTHING,
    ) -> None:
        rounded = (float(_text(share)) for share in shares)
        record: dict[str, object] = {"path": path} | ({"true": true} if with_truth else {})
        record |= {
            "predicted": predicted,
            **{name: more[name] for name in columns},
            "probabilities": dict(zip(classes, rounded, strict=True)),
        }
        file.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write


def _text(value: Cell) -> str:
    """Write a cell of a CSV file; spreadsheets and pandas read true and false."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


# To add a format: a function as above, and its file ending here.
FORMATS: dict[str, Callable[..., WriteLine]] = {".csv": csv_lines, ".jsonl": json_lines}
