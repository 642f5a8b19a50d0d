"""Image Aesthetics: Flickr photographs scored by people (Schifanella, Redi and Aiello, 2015).

The rank of a photograph is the integer part of the median of its scores, minus one. Each of the
four categories is a data set of its own: 5 % of it, rounded up, are drawn for validation and 20 %,
rounded up, for test. Five draws make the five partitions; their number is the seed. Photographs
that are no longer available are dropped before the draw.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from layline.data.dataset import Dataset, Splits
from layline.utils.errors import UserError
from layline.utils.validation import check_known

_CLASSES = ("unacceptable", "flawed", "ordinary", "professional", "exceptional")
_CATEGORIES = ("nature", "animals", "people", "urban")
_TABLE, _IMAGES = "beauty-icwsm15-dataset.tsv", "img_files"
_COLUMNS = ("#flickr_photo_id", "category", "beauty_scores")


class _Photograph(NamedTuple):
    number: int
    category: str
    rank: int

    @property
    def file(self) -> str:
        return f"{self.number}.jpg"


def read_image_aesthetics(root: Path, *, partition: int = 0, category: str = "nature") -> Dataset:
    """Read one category and draw one of the five partitions.

    Args:
        root: The folder that contains the table and the folder of images, or the table itself.
        partition: The number of the draw.
        category: The photographs: nature, animals, people or urban.
    """
    from layline.data.images import ImageFiles

    check_known("category", category, _CATEGORIES)
    root = Path(root)
    tables = [root] if root.is_file() else [root / _TABLE, *sorted(root.glob(f"*/{_TABLE}"))]
    table = _find(tables, f"{root} does not contain the table of the scores, {_TABLE}.")
    folders = [table.parent / _IMAGES, root / _IMAGES]
    images = _find(folders, f"{root} does not contain the folder of the photographs, {_IMAGES}.")
    lines = list(_read_rows(table))
    listed = sorted({(line.category, line.number): line for line in lines}.values())
    files = {path.name for path in images.iterdir()}
    available = [photograph for photograph in listed if photograph.file in files]
    chosen = [photograph for photograph in available if photograph.category == category]
    if not chosen:
        raise FileNotFoundError(f"{images} has no images of {category}, such as 123.jpg.")
    ranks = np.array([photograph.rank for photograph in chosen], dtype=np.int64)
    order = np.random.default_rng(partition).permutation(len(chosen))
    validation, test = -(-len(chosen) // 20), -(-len(chosen) // 5)  # rounded up
    parts = np.split(order, [validation, validation + test])
    splits = Splits(validation=np.sort(parts[0]), test=np.sort(parts[1]), train=np.sort(parts[2]))
    notes = []
    if len(lines) > len(listed):
        notes.append(f"{len(lines) - len(listed)} lines repeat a photograph; the last is used.")
    if len(available) < len(listed):
        every, left = (Counter(each.category for each in some) for some in (listed, available))
        shown = (f"{every[name] - left[name]} of {every[name]} {name}" for name in _CATEGORIES)
        notes.append(f"Photographs whose file is missing are not used: {', '.join(shown)}.")
    if lacking := [n for rank, n in enumerate(_CLASSES) if rank not in ranks[splits.train]]:
        notes.append(f"Training has no photographs that are {' or '.join(lacking)}.")
    return Dataset(
        inputs=ImageFiles(images, [photograph.file for photograph in chosen]),
        ranks=ranks,
        classes=_CLASSES,
        splits=splits,
        notes=tuple(notes),
        fixed_classes=True,
    )


def _find(paths: list[Path], message: str) -> Path:
    for path in paths:
        if path.exists():
            return path
    raise FileNotFoundError(message)


def _read_rows(table: Path) -> Iterator[_Photograph]:
    with table.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        absent = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if absent:
            raise UserError(f"{table} has no column {absent[0]}; it has {reader.fieldnames}.")
        for row in reader:
            number, category, scores = (row[name] or "" for name in _COLUMNS)
            values = [score.strip() for score in scores.split(",")]
            good = number.isascii() and number.isdigit() and category in _CATEGORIES
            if not good or not {*values} <= {"1", "2", "3", "4", "5"}:
                raise UserError(
                    f"Line {reader.line_num} of {table} is not a number, a category and scores in "
                    f"1…5: {number!r}, {category!r}, {scores!r}."
                )
            yield _Photograph(int(number), category, int(median(map(int, values))) - 1)
