"""Detect what a path contains: which source reads it, and which columns name images and labels."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from layline.data.dataset import format_list
from layline.data.splits import SPLIT_WORDS
from layline.data.table_encoding import texts_of
from layline.data.tables import EXCEL_SUFFIXES, TEXT_SUFFIXES, TableFile, read_table_file
from layline.utils.errors import UserError

_TABLES = (*TEXT_SUFFIXES, *EXCEL_SUFFIXES)
_KINDS = "a folder per class, a CSV or Excel file, or an npz file"
_HEAD = 50  # rows that are looked at
_IMAGE_COLUMNS = re.compile(
    r"(path|file|filename|filepath|images?|img|(image|img)(path|file|name)|photo|picture)"
)
# words in names of columns that may hold names of image files without their suffix
_ID_WORDS = frozenset({"id", "image", "img", "file", "filename", "name", "photo", "picture"})
# the second ones only where there is none of the first, since they may be inputs as well
LABEL_COLUMNS = ("label", "rank", "grade", "class", "target", "y"), ("rating", "score", "quality")


@dataclass(frozen=True)
class Detected:
    """What a path contains.

    Attributes:
        source: The name of the source that reads it.
        root: The path for the source.
        why: What it was detected by.
    """

    source: str
    root: Path
    why: str


def detect(path: Path, images: Path | None = None, sheet: str | None = None) -> Detected:
    """Find the source that reads a file or folder.

    Args:
        path: An existing path.
        images: The folder of the images of a list, if they are not near it.
        sheet: The sheet of a workbook, if not the first.
    """
    if path.is_dir():
        return _detect_folder(path, images, sheet)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return Detected("npz", path, "it is an npz file")
    if suffix in _TABLES:
        return _detect_table(path, images, sheet)
    cure = " Save it as CSV." if suffix in (".xls", ".ods", ".parquet") else ""
    raise UserError(f"The data must be {_KINDS}; {path} is none of them.{cure}")


def _detect_folder(path: Path, images: Path | None, sheet: str | None) -> Detected:
    if (path / "config.toml").is_file() and (path / "state").is_dir():
        raise UserError(f"{path} is the folder of a run, not of data. Resume the run instead.")
    filled = [name for name in user_folders(path) if _has_image(path / name)]
    splits = {SPLIT_WORDS.get(name.casefold(), ""): name for name in filled}
    place = path / splits["train"] if "train" in splits else path
    classes = [name for name in user_folders(place) if _has_image(place / name)]
    if len(classes) > 1:
        return Detected("folder", path, "it has a folder of images per class")
    files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "~$")))
    tables = [f for f in files if f.suffix.lower() in _TABLES and f.suffix.lower() != ".txt"]
    found = tables or [f for f in files if f.suffix.lower() == ".npz"]
    if len(found) > 1:
        raise UserError(
            f"{path} has several files: {format_list(f.name for f in found)}. Name one of them."
        )
    if found:
        return detect(found[0], images, sheet)
    if len([name for name in user_folders(path) if _has_image(path / name, readable=False)]) > 1:
        return Detected("folder", path, "it has a folder per class")  # which cannot be read
    if len(filled) == 1 and len(user_folders(path / filled[0])) > 1:
        why = f"it has one folder. Did you mean {path / filled[0]}?"
    elif len(filled) == 1:
        why = f"it has images of one class only, {filled[0]}."
    elif any(is_image(f.name, readable=True) for f in files):
        why = "it has images but no classes. Put them into a folder per class, or list them."
    else:
        why = "it has no images, no table and no npz file."
    raise UserError(f"The data must be {_KINDS}; in {path} there are none: {why}")


def _detect_table(path: Path, images: Path | None, sheet: str | None) -> Detected:
    file = read_table_file(path, sheet=sheet, rows=_HEAD)
    folder = path.parent if images is None else images
    column = image_column(file, folder)
    if column is None:
        return Detected("table", path, "no column names images")
    cells = texts_of(file.frame[column])
    if image_folder(cells, folder) is None:
        if _IMAGE_COLUMNS.fullmatch(column.casefold()) and not any(map(is_image, cells)):
            return Detected("table", path, f"column {column!r} does not name images")
        raise UserError(
            f"The images in column {column!r} of {path.name}, such as {cells[0]}, do not exist. "
            "Set the option images to their folder."
        )
    return Detected("csv", path, f"column {column!r} names images")


def find_source(
    argument: str,
    root: Path | None,
    sources: Collection[str],
    options: Mapping[str, object] | None = None,
) -> tuple[str, Path | None, str | None]:
    """Find the source that a user means by a name or by the path of the data.

    Args:
        argument: The name or path; names take precedence.
        root: Where the data are, if that was given as well.
        sources: The names of all sources.
        options: The options of the source, of which ``images`` and ``sheet`` help to detect it.

    Returns:
        The name of the source, the root, and a message for the user if a path was detected.
    """
    path = Path(argument).expanduser()
    if argument in sources:
        both = root is None and path.exists()
        note = f"{argument} is the source of that name. To use the path, write ./{argument}"
        return argument, root, note if both else None
    if path.exists():
        if root is not None:
            raise UserError(f"{argument} is a path already; leave out the root {root}.")
        options = options or {}
        images, sheet = options.get("images"), options.get("sheet")
        folder = None if images is None else Path(str(images)).expanduser()
        found = detect(path, folder, None if sheet is None else str(sheet))
        return found.source, found.root, f"Reading {argument} as {found.source}: {found.why}."
    near = get_close_matches(argument, sources, n=3, cutoff=0.5)
    cure = f"Did you mean {' or '.join(near)}?" if near else f"Sources: {', '.join(sources)}."
    raise UserError(f"{argument!r} is neither a file, a folder nor the name of a source. {cure}")


def image_column(file: TableFile, folder: Path) -> str | None:
    """Find the column that names images: by the suffixes of its cells, else by its name.

    Args:
        file: The table.
        folder: Where names without a suffix are searched, and in its subfolders.
    """
    columns = {str(name): texts_of(file.frame[name].head(_HEAD)) for name in file.frame}
    by_cells = [
        name for name, cells in columns.items() if sum(map(is_image, cells)) > len(cells) / 2
    ]
    by_name = [
        name for name in columns if _IMAGE_COLUMNS.fullmatch(re.sub(r"[\W_]", "", name.casefold()))
    ]
    found = next(iter([*(name for name in by_name if name in by_cells), *by_cells]), None)
    if found is not None:
        return found
    for name, cells in columns.items():
        words = {*re.split(r"[\W_]+", name.casefold())}
        some = [cell for cell in cells if cell]
        if (name in by_name or words & _ID_WORDS) and len({*some}) > len(some) / 2:
            place = image_folder(some, folder)
            if place and sum(map(ImageNames(place).exists, some)) > len(some) / 2:
                return name
    return next(iter(by_name), None)


def image_folder(paths: Sequence[str], folder: Path) -> Path | None:
    """Find the folder that paths of images start from: the one given, or a subfolder."""
    some = [path.replace("\\", "/") for path in paths[:_HEAD] if path]
    for place in (folder, *(folder / name for name in user_folders(folder))):
        if any(map(ImageNames(place).exists, some)):
            return place
    return None


class ImageNames:
    """Finds images by names without a suffix.

    Args:
        root: The folder that names start from.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stems = cache(self._list_stems)

    def exists(self, path: str) -> bool:
        """Check that a path is a file, or the name of an image without its suffix."""
        return (self._root / path).is_file() or bool(self.complete(path))

    def complete(self, path: str) -> list[str]:
        """Return the images that a path without a suffix may mean."""
        if is_image(path):
            return []
        folder, slash, name = path.rpartition("/")
        return [folder + slash + each for each in self._stems(folder).get(name, [])]

    def _list_stems(self, folder: str) -> dict[str, list[str]]:
        by_stem: dict[str, list[str]] = {}
        with suppress(OSError):
            for name in sorted(os.listdir(self._root / folder)):  # noqa: PTH208 – only names
                if is_image(name):
                    by_stem.setdefault(name.rpartition(".")[0], []).append(name)
        return by_stem


def label_column(
    file: TableFile, wanted: str, others: Collection[str | None] = ()
) -> tuple[str, tuple[str, ...]]:
    """Find the column of the labels, with a note if it is not the one named.

    Args:
        file: The table.
        wanted: The name; only the default, ``label``, may stand for a different one.
        others: Columns with another use, if the table has no inputs: what is left is the label.
    """
    names = [str(name) for name in file.frame]
    if wanted in names or wanted != "label":
        return wanted, ()
    first, second = ([n for n in names if n.lower() in usual] for usual in LABEL_COLUMNS)
    left = [name for name in names if name not in others] if others else []
    usual = first or second or (left if len(left) == 1 else [])
    if len(usual) == 1:
        return usual[0], (f"The labels are in column {usual[0]!r}.",)
    which = f"It may be {' or '.join(usual)}. " if usual else ""
    raise UserError(
        f"{file.path.name} has no column 'label'. {which}Set the option label; the columns are "
        f"{format_list(names)}."
    )


def user_folders(folder: Path) -> list[str]:
    """List the subfolders, without hidden ones and those of archivers."""
    from layline.data.images import CLUTTER
    from layline.data.labels import natural_order

    names = [f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith(".")]
    return natural_order(name for name in names if name.lower() not in CLUTTER)


def is_image(name: str, readable: bool = False) -> bool:
    """Check by its suffix that a file is an image, or one that can be read."""
    from layline.data import images

    known = images.readable_suffixes() if readable else images.KNOWN_SUFFIXES
    return images.suffix_of(name) in known


def _has_image(folder: Path, readable: bool = True) -> bool:
    return any(is_image(file, readable) for _, _, files in os.walk(folder) for file in files)
