"""Image Aesthetics: Flickr photographs scored by people (Schifanella, Redi and Aiello, 2015).

The rank of a photograph is the integer part of the median of its scores, minus one. Each of the
four categories is a data set of its own: 5 % of it, rounded up, are drawn for validation, 20 %,
rounded up, for test. Five drawings make the five partitions; their number is the seed. Photographs
that are no longer to be had are left out before drawing.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from layline.data.dataset import Dataset, Indices, Splits
from layline.utils.errors import UserError
from layline.utils.validation import check_known

_CLASSES = ("unacceptable", "flawed", "ordinary", "professional", "exceptional")
_CATEGORIES = ("nature", "animals", "people", "urban")
_TABLE, _IMAGES = "beauty-icwsm15-dataset.tsv", "img_files"
_COLUMNS = ("#flickr_photo_id", "category", "beauty_scores")


@dataclass(frozen=True, order=True)
class _Photograph:
    number: int
    category: str
    rank: int

    @property
    def file(self) -> str:
        return f"{self.number}.jpg"


def read_image_aesthetics(root: Path, *, partition: int = 0, category: str = "nature") -> Dataset:
    """Read one category and draw one of the five partitions.

    Args:
        root: The folder that holds the table and the folder of images, or the table itself.
        partition: Which drawing.
        category: Which photographs: nature, animals, people or urban.
    """
    from layline.data.images import ImageFiles

    check_known("category", category, _CATEGORIES)
    table = _find_table(Path(root))
    images = _find_images(table, Path(root))
    lines = list(_rows(table))
    listed = sorted({(line.category, line.number): line for line in lines}.values())
    files = {path.name for path in images.iterdir()}
    available = [photograph for photograph in listed if photograph.file in files]
    chosen = [photograph for photograph in available if photograph.category == category]
    if not chosen:
        raise FileNotFoundError(
            f"root must have images of {category}, got none of the table's in {images}: "
            "they are named by photograph, such as 123.jpg"
        )
    ranks = np.array([photograph.rank for photograph in chosen], dtype=np.int64)
    drawn = _draw(len(chosen), np.random.default_rng(partition))
    return Dataset(
        inputs=ImageFiles(images, [photograph.file for photograph in chosen]),
        ranks=ranks,
        classes=_CLASSES,
        splits=drawn,
        notes=tuple(_notes(len(lines), listed, available, ranks[drawn.train])),
        fixed_classes=True,
    )


def _find_table(root: Path) -> Path:
    for path in [root] if root.is_file() else [root / _TABLE, *sorted(root.glob(f"*/{_TABLE}"))]:
        if path.is_file():
            return path
    raise FileNotFoundError(f"root must hold {_TABLE}, got {root}: the public table of the scores")


def _find_images(table: Path, root: Path) -> Path:
    for path in (table.parent / _IMAGES, root / _IMAGES):
        if path.is_dir():
            return path
    raise FileNotFoundError(
        f"root must hold the folder {_IMAGES}, got {root}: download the photographs into it"
    )


def _rows(table: Path) -> Iterator[_Photograph]:
    with table.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        absent = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if absent:
            raise UserError(f"{table} must have the column {absent[0]}, got {reader.fieldnames}")
        for row in reader:
            try:
                yield _photograph(*(row[name] or "" for name in _COLUMNS))
            except ValueError as error:
                raise UserError(f"line {reader.line_num} of {table}: {error}") from error


def _photograph(number: str, category: str, scores: str) -> _Photograph:
    if not (number.isascii() and number.isdigit()):
        raise UserError(f"{_COLUMNS[0]} must be a whole number, got {number!r}")
    check_known("category", category, _CATEGORIES)
    values = [score.strip() for score in scores.split(",")]
    if not all(value in {"1", "2", "3", "4", "5"} for value in values):
        raise UserError(f"{_COLUMNS[2]} must be numbers in 1…5 with commas between, got {scores!r}")
    return _Photograph(int(number), category, int(median(map(int, values))) - 1)


def _draw(count: int, rng: np.random.Generator) -> Splits:
    order = rng.permutation(count)
    validation, test = -(-count // 20), -(-count // 5)  # 5 % and 20 %, rounded up exactly
    held_out = validation + test
    return Splits(
        train=np.sort(order[held_out:]),
        validation=np.sort(order[:validation]),
        test=np.sort(order[validation:held_out]),
    )


def _notes(
    lines: int, listed: list[_Photograph], available: list[_Photograph], train: Indices
) -> Iterator[str]:
    """Say what the table repeats, which files are missing and which classes training lacks."""
    if lines > len(listed):
        yield f"{lines - len(listed)} lines repeat a photograph; the last counts."
    if len(available) < len(listed):
        every = Counter(photograph.category for photograph in listed)
        left = Counter(photograph.category for photograph in available)
        shown = (f"{every[name] - left[name]} of {every[name]} {name}" for name in _CATEGORIES)
        yield f"Photographs whose file is missing were left out: {', '.join(shown)}."
    if lacking := [name for rank, name in enumerate(_CLASSES) if rank not in train]:
        yield f"Training has no photograph that is {' or '.join(lacking)}."
