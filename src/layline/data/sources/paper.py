"""The three data sets of the paper, with their official or drawn partitions.

**Historical Color** (Palermo, Hays and Efros, 2012): photographs of five decades, 265 of each. In
each decade 210 are drawn for training, 5 for validation and 50 for test; the number of the
partition, 0 to 9, is the seed.

**Adience** (Eidinger, Enbar and Hassner, 2014): faces in eight age groups, with the official five
folds (Levi and Hassner, 2015): for each fold three text files with ``folder/file label`` per line.
No folder, and so no person, is both in test and elsewhere. Validation is drawn at random from the
training folds, so it shares people, and a few images, with training.

**Image Aesthetics** (Schifanella, Redi and Aiello, 2015): Flickr photographs scored by people. The
rank is the integer part of the median score, minus one. The four categories are separate data sets.
In each, 5 % are drawn for validation and 20 % for test, both rounded up; the number of the
partition, 0 to 4, is the seed. Photographs that are no longer available are dropped before the
draw.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from layline.data.dataset import Dataset, Splits, require_path
from layline.data.detect import list_images
from layline.data.image_cache import find_bad, index_images
from layline.data.images import ImageFiles
from layline.utils.validation import UserError, check_boolean, check_known

DECADES = ("1930s", "1940s", "1950s", "1960s", "1970s")
_PER_DECADE = np.array([210, 5, 50])  # train, validation, test
AGES = ("0-2", "4-6", "8-13", "15-20", "25-32", "38-43", "48-53", "60+")
_LISTS = ("train", "val", "test")
BEAUTY = ("unacceptable", "flawed", "ordinary", "professional", "exceptional")
CATEGORIES = ("nature", "animals", "people", "urban")
_TABLE = "beauty-icwsm15-dataset.tsv"
_COLUMNS = ("#flickr_photo_id", "category", "beauty_scores")


def read_historical_color(root: Path, *, partition: int = 0, proportional: bool = False) -> Dataset:
    """Read the decades from a folder above them.

    With ``proportional`` the splits are the same shares of however many images there are.
    """
    check_boolean("proportional", proportional)
    first = DECADES[0]
    # in the unpacked archive the folder decade_database is three levels down
    patterns = (first, *(f"{'*/' * depth}decade_database/{first}" for depth in range(5)))
    place = _find(root, patterns, f"folder {first}").parent
    rng, each = np.random.default_rng(partition), int(_PER_DECADE.sum())
    names: list[str] = []
    notes: list[str] = []
    counts, drawn = [], []
    for decade in DECADES:
        files = sorted(f"{decade}/{name}" for name in list_images(place / decade)[0])
        # a decade with more files than expected may contain some that are not images
        bad = find_bad(index_images(ImageFiles(place, files))) if len(files) > each else {}
        notes += [f"{files[i]} cannot be decoded and is not used." for i in bad]
        files = [name for i, name in enumerate(files) if i not in bad]
        sizes = _PER_DECADE.copy()
        if proportional:
            sizes = np.maximum(np.rint(len(files) * sizes / each).astype(int), 1)
            sizes[0] = len(files) - sizes[1] - sizes[2]
        order = len(names) + rng.permutation(len(files))[: sizes.sum()]
        drawn.append(np.split(order, np.cumsum(sizes[:2])))
        names += files
        counts.append(len(files))
    shown = ", ".join(f"{decade} {count}" for decade, count in zip(DECADES, counts, strict=True))
    fewest = 3 if proportional else each
    if min(counts) < fewest:
        raise UserError(
            f"Each decade needs {fewest} images, got {shown}. Get the whole archive, or set "
            "proportional=true to use the same shares of what there is."
        )
    if proportional:
        notes.append(f"These are shares of {shown}: not the published protocol.")
    elif max(counts) > each:
        notes.append(f"There are {shown} images; {each} of each are used.")
    return Dataset(
        inputs=ImageFiles(place, names),
        ranks=np.repeat(np.arange(len(DECADES)), counts),
        classes=DECADES,
        splits=Splits(*(np.sort(np.concatenate(split)) for split in zip(*drawn, strict=True))),
        notes=tuple(notes),
    )


def read_adience(root: Path, *, partition: int = 0, lists: str | Path | None = None) -> Dataset:
    """Read one fold of the official lists, and the images in ``aligned/`` in the root.

    Without ``lists``, the lists are at most two folders below the root.
    """
    fold = f"test_fold_is_{partition}"
    folder = _find(root if lists is None else lists, (fold, f"*/{fold}", f"*/*/{fold}"), fold)
    parts = [list(_read_list(folder / f"age_{name}.txt")) for name in _LISTS]
    lines = [line for part in parts for line in part]
    folders = [{path.rpartition("/")[0] for path, _ in part} for part in parts]
    shared = (folders[0] | folders[1]) & folders[2]
    if shared:
        raise UserError(f"{min(shared)} is both in test and elsewhere. Use the official lists.")
    ends = np.cumsum([len(part) for part in parts[:2]])
    aligned = _find(root, ("aligned", "../aligned", "*/aligned"), "folder 'aligned'")
    return Dataset(
        inputs=ImageFiles(aligned, [path for path, _ in lines]),
        ranks=np.array([rank for _, rank in lines], dtype=np.int64),
        classes=AGES,
        splits=Splits(*np.split(np.arange(len(lines)), ends)),
        groups=tuple(path.rpartition("/")[0] for path, _ in lines),
    )


def _read_list(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the path below ``aligned`` and the rank of each line."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        path, label = ["", *line.rsplit(maxsplit=1)][-2:]
        if "/" not in path or label not in map(str, range(len(AGES))):
            raise UserError(
                f"Line {number} of {file} must be folder/file and a label in 0…{len(AGES) - 1}, "
                f"got {line!r}."
            )
        yield path.strip(), int(label)


def read_image_aesthetics(root: Path, *, partition: int = 0, category: str = "nature") -> Dataset:
    """Read one category; the root is the table, or the folder with it and that of the images."""
    check_known("category", category, CATEGORIES)
    table = root if root.is_file() else _find(root, (_TABLE, f"*/{_TABLE}"), _TABLE)
    images = _find(table.parent, ("img_files", "../img_files"), "folder 'img_files'")
    rank_of = {number: rank for number, own, rank in _read_scores(table) if own == category}
    files = {path.name for path in images.iterdir()}
    names = [f"{number}.jpg" for number in sorted(rank_of) if f"{number}.jpg" in files]
    if not names:
        raise FileNotFoundError(f"{images} has no images of {category}, such as 123.jpg.")
    ranks = np.array([rank_of[int(name[:-4])] for name in names], dtype=np.int64)
    order = np.random.default_rng(partition).permutation(len(names))
    validation, test = -(-len(names) // 20), -(-len(names) // 5)  # rounded up
    parts = [np.sort(part) for part in np.split(order, [validation, validation + test])]
    splits = Splits(validation=parts[0], test=parts[1], train=parts[2])
    notes = []
    if absent := len(rank_of) - len(names):
        notes.append(f"The files of {absent} of {len(rank_of)} photographs are missing.")
    if lacking := [n for rank, n in enumerate(BEAUTY) if rank not in ranks[splits.train]]:
        notes.append(f"Training has no photographs that are {' or '.join(lacking)}.")
    return Dataset(
        inputs=ImageFiles(images, names),
        ranks=ranks,
        classes=BEAUTY,
        splits=splits,
        notes=tuple(notes),
        fixed_classes=True,
    )


def _read_scores(table: Path) -> Iterator[tuple[int, str, int]]:
    """Yield the number, the category and the rank of each photograph."""
    with table.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        absent = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if absent:
            raise UserError(f"{table} has no column {absent[0]}; it has {reader.fieldnames}.")
        for row in reader:
            number, category, scores = (row[name] or "" for name in _COLUMNS)
            values = [score.strip() for score in scores.split(",")]
            good = number.isascii() and number.isdigit() and category in CATEGORIES
            if not good or not {*values} <= {"1", "2", "3", "4", "5"}:
                raise UserError(
                    f"Line {reader.line_num} of {table} is not a number, a category and scores in "
                    f"1…5: {number!r}, {category!r}, {scores!r}."
                )
            yield int(number), category, int(median(map(int, values))) - 1


def _find(root: str | Path, patterns: Iterable[str], what: str) -> Path:
    """Return the first path that a pattern finds below the root."""
    root = require_path(root)
    for pattern in patterns:
        for path in sorted(root.glob(pattern)) if "*" in pattern else [root / pattern]:
            if path.exists():
                return path
    raise FileNotFoundError(
        f"{root} does not contain the {what} of the data set. Unpack its archives, and give the "
        "path of the folder."
    )
