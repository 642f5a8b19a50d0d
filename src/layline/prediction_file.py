"""Predictions as lines of a file: CSV for people and spreadsheets, JSON lines for programs."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TextIO

import numpy as np
from jaxtyping import Float, Int

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


@dataclass(frozen=True)
class PredictedSamples:
    """What a file of predictions says.

    Attributes:
        classes: Names of the classes, lowest first.
        names: What the samples are called.
        ranks: Their classes.
        predicted: What they are taken for.
        proba: Probabilities of the classes.
        groups: What each belongs to, if that is known.
    """

    classes: list[str]
    names: list[str]
    ranks: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    proba: Float[np.ndarray, "n K"]
    groups: list[str] | None = None


def read_predictions(path: Path) -> PredictedSamples:
    """Read a CSV file of predictions with the truth beside them.

    Columns are found by their names: runs of different versions have different ones between.
    """
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        header, *lines = csv.reader(file)
    name, true, predicted = (header.index(title) for title in ("path", "true", "predicted"))
    shares = [place for place, title in enumerate(header) if title.startswith("p_")]
    classes = [header[place].removeprefix("p_") for place in shares]
    rank_of = {name: rank for rank, name in enumerate(classes)}
    group = header.index("group") if "group" in header[: shares[0]] else None
    return PredictedSamples(
        classes=classes,
        names=[line[name] for line in lines],
        ranks=np.array([rank_of[line[true]] for line in lines]),
        predicted=np.array([rank_of[line[predicted]] for line in lines]),
        proba=np.array([[line[place] for place in shares] for line in lines], dtype=np.float64),
        groups=None if group is None else [line[group] for line in lines],
    )


def _text(value: Cell) -> str:
    """Write a cell of a CSV file; spreadsheets and pandas read true and false."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


# To add a format: a function as above, and its file ending here.
FORMATS: dict[str, Callable[..., WriteLine]] = {".csv": csv_lines, ".jsonl": json_lines}
