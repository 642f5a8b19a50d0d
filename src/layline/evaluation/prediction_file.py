"""Predictions as lines of a file: CSV for people and spreadsheets, JSON lines for programs.

What a spreadsheet would take for a formula is written so that it does not: a path ``=a.jpg`` as
``./=a.jpg``, which is the same file, and any other text ``=a`` as ``'=a``. :func:`plain_name`
undoes it.
"""

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TextIO

import numpy as np
from jaxtyping import Float, Int

from layline.utils.files import atomic_write, json_text
from layline.utils.validation import find_known

Cell = str | float | bool
WHY_NO_PROBABILITIES = "a value is too large for float32, or far from all that training saw"
_DIGITS = 8
_NOTHING: Mapping[str, Cell] = MappingProxyType({})
# what formulas begin with; or what would then be taken for a formula that was written as a text
_FORMULA = re.compile(r"'*(\./'*)?[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-](\d+[.,]?\d*|[.,]\d+)?(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


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
    paths: bool = True,
) -> Iterator[WriteLine]:
    """Open a file for predictions, which is whole in the end or not there, and give what writes.

    Args:
        path: Its ending says the format; None for CSV on stdout.
        classes: Names of the classes, lowest first.
        with_truth: Whether the true class is known.
        more: Further columns, between the predicted class and the probabilities.
        paths: Whether the samples are called by their paths.
    """
    if path is None:
        with _names_as_bytes(sys.stdout):
            yield csv_lines(sys.stdout, classes, with_truth, more, paths)
        return
    start = find_known("the ending of predictions", path.suffix, FORMATS)
    with (
        atomic_write(path) as part,
        # the name of a sample may be a path that is not UTF-8
        part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        yield start(file, classes, with_truth, more, paths)


@contextmanager
def _names_as_bytes(stream: TextIO) -> Iterator[None]:
    """Write a name that is no Unicode as its bytes, or with escapes where a person reads it."""
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="backslashreplace" if stream.isatty() else "surrogateescape")
    try:
        yield
        stream.flush()
    finally:
        stream.reconfigure(errors=before)


def safe_cell(text: str, is_path: bool = False) -> str:
    """Write a text so that no spreadsheet takes it for a formula; a number or a sign stays one."""
    if not _FORMULA.match(text) or (not is_path and (text == "=" or _NUMBER.fullmatch(text))):
        return text
    return f"./{text}" if is_path else f"'{text}"


def plain_name(cell: str) -> str:
    """Give what :func:`safe_cell` was given."""
    for mark in ("./", "'"):
        if cell.startswith(mark) and _FORMULA.match(cell.removeprefix(mark)):
            return cell.removeprefix(mark)
    return cell


def csv_lines(
    file: TextIO,
    classes: Sequence[str],
    with_truth: bool = False,
    more: Sequence[str] = (),
    paths: bool = True,
) -> WriteLine:
    """Start a CSV file: path, true class if it is known, predicted class, a column per class."""
    columns = tuple(more)
    writer = csv.writer(file, lineterminator="\n")
    quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    true = ["true"] if with_truth else []
    writer.writerow(["path", *true, "predicted", *columns, *(f"p_{name}" for name in classes)])

    def write(
        path: str,
        predicted: str,
        shares: Sequence[float],
        true: str | None = None,
        more: Mapping[str, Cell] = _NOTHING,
    ) -> None:
        names = [safe_cell(path, paths), *([] if true is None else [safe_cell(true)])]
        names += [safe_cell(predicted), *(_text(more[name]) for name in columns)]
        # the writer would leave a carriage return as it is, and readers end the line there
        rows = quoting if any("\r" in name for name in names) else writer
        rows.writerow([*names, *map(_text, shares)])

    return write


def json_lines(
    file: TextIO,
    classes: Sequence[str],
    with_truth: bool = False,
    more: Sequence[str] = (),
    paths: bool = True,
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
        file.write(json_text(record) + "\n")

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
        names=[plain_name(line[name]) for line in lines],
        ranks=np.array([rank_of[plain_name(line[true])] for line in lines]),
        predicted=np.array([rank_of[plain_name(line[predicted])] for line in lines]),
        proba=np.array([[line[place] for place in shares] for line in lines], dtype=np.float64),
        groups=None if group is None else [plain_name(line[group]) for line in lines],
    )


def _text(value: Cell) -> str:
    """Write a cell of a CSV file; spreadsheets and pandas read true and false."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return str(value).lower() if isinstance(value, bool) else safe_cell(value)


# To add a format: a function as above, and its file ending here.
FORMATS: dict[str, Callable[..., WriteLine]] = {".csv": csv_lines, ".jsonl": json_lines}
