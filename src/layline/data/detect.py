"""What a path holds: which source reads it, and which columns name images and labels."""

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from layline.data.dataset import format_list
from layline.data.splits import PART_WORDS
from layline.data.tables import EXCEL_SUFFIXES, TEXT_SUFFIXES, read_head
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.data.tables import TableFile

_TABLES = (*TEXT_SUFFIXES, *EXCEL_SUFFIXES)
_KINDS = "a folder per class, a CSV file of images, a table or an npz file"
_HEAD = 20  # cells that are looked for on the disk
# in lower case, without separators
# fmt: off
_IMAGE_COLUMNS = frozenset({
    "path", "file", "filename", "filepath", "image", "images", "img", "imagepath", "imagefile",
    "imagename", "imgpath", "imgfile", "imgname", "photo", "picture",
})
# fmt: on
# words of which one is in the name of a column of image files without their endings
_ID_WORDS = frozenset({"id", "image", "img", "file", "filename", "name", "photo", "picture"})
# the second ones only where there is none of the first: they may be inputs as well
LABEL_COLUMNS = ("label", "rank", "grade", "class", "target", "y"), ("rating", "score", "quality")


@dataclass(frozen=True)
class Recognised:
    """What a path was found to be.

    Attributes:
        source: The name of the source that reads it.
        root: What the source is to be given.
        why: What it was recognised by.
    """

    source: str
    root: Path
    why: str


def recognise(path: Path, images: Path | None = None, sheet: str | None = None) -> Recognised:
    """Tell which source reads a file or folder.

    Args:
        path: It has to exist.
        images: Where the images of a list are, if not near it.
        sheet: Of a workbook, if not the first.
    """
    if path.is_dir():
        return _recognise_folder(path, images, sheet)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return Recognised("npz", path, "it is an .npz file")
    if suffix in _TABLES:
        return _recognise_table(path, images, sheet)
    cure = "save it as CSV" if suffix in (".xls", ".ods", ".parquet") else "name another"
    raise UserError(f"source must be {_KINDS}, got the file {path}: {cure}")


def _recognise_folder(path: Path, images: Path | None, sheet: str | None) -> Recognised:
    if (path / "config.toml").is_file() and (path / "state").is_dir():
        raise UserError(
            f"source must be {_KINDS}, got the folder of a run, {path}: "
            f"layline train --resume {path} goes on with it"
        )
    files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "~$")))
    filled = [name for name in user_folders(path) if _has_image(path / name)]
    parts = {PART_WORDS[name.casefold()]: name for name in filled if name.casefold() in PART_WORDS}
    classes = filled
    if "train" in parts:
        train = path / parts["train"]
        classes = [name for name in user_folders(train) if _has_image(train / name)]
    if len(classes) > 1:
        where = f" in {', '.join(parts.values())}" if "train" in parts else ""
        return Recognised("folder", path, f"there is a folder of images per class{where}")
    tables = [f for f in files if f.suffix.lower() in _TABLES and f.suffix.lower() != ".txt"]
    arrays = [f for f in files if f.suffix.lower() == ".npz"]
    several = tables if len(tables) > 1 else arrays if not tables else []
    if len(several) > 1:
        names = format_list(f.name for f in several)
        raise UserError(f"source must be one file, got {path} with {names}: name one of them")
    if tables or arrays:
        found = recognise((tables or arrays)[0], images, sheet)
        return Recognised(found.source, found.root, f"of {found.root.name} there {found.why}")
    unread = [name for name in user_folders(path) if _has_image(path / name, readable=False)]
    if len(unread) > 1 and len(filled) < 2:
        return Recognised(
            "folder", path, "there is a folder per class"
        )  # which says what is unread
    if len(filled) == 1 and len(user_folders(path / filled[0])) > 1:
        what, cure = f"one folder, {filled[0]}", f"did you mean {path / filled[0]}?"
    elif len(filled) == 1:
        what, cure = f"the images of one class, {filled[0]}", "there must be two or more"
    elif any(_is_image(f.name, readable=True) for f in files):
        what, cure = "images but no classes", "put them into a folder per class, or list them"
    else:
        what, cure = "no images, no CSV and no npz file", "check the path"
    raise UserError(f"source must be {_KINDS}, got {path} with {what}: {cure}")


def _recognise_table(path: Path, images: Path | None, sheet: str | None) -> Recognised:
    names, rows = read_head(path, sheet=sheet)
    place = path.parent if images is None else images
    column = image_column(names, rows, place)
    if column is None:
        return Recognised("table", path, "no column names images")
    values = [row[names.index(column)] for row in rows if len(row) == len(names)]
    if image_folder(values, place) is None:
        if column.casefold() in _IMAGE_COLUMNS and not any(map(_is_image, values)):
            return Recognised("table", path, f"the column {column!r} has no names of image files")
        raise UserError(
            f"the images that {path.name} lists in the column {column!r} must be there, got none "
            f"for {format_list(values[:1])}: say where they are with --set data.options.images=FOLDER"
        )
    return Recognised("csv", path, f"its column {column!r} names images")


def find_source(
    argument: str,
    root: Path | None,
    sources: Collection[str],
    images: Path | None = None,
    sheet: str | None = None,
) -> tuple[str, Path | None, str | None]:
    """Understand what a user gives as the source: a name, or the path of the data.

    Args:
        argument: What was given.
        root: Where the data are, if that was given as well.
        sources: The names that there are; they win over paths of the same name.
        images: Where the images of a list are, if not near it.
        sheet: Of a workbook, if not the first.

    Returns:
        The name of the source, the root, and a sentence for the user where a path was recognised.
    """
    path = Path(argument).expanduser()
    if argument in sources:
        # another spelling of the path says that it is meant
        other = f"{argument} is the source of that name; the path is ./{argument}"
        return argument, root, other if root is None and path.exists() else None
    if path.exists():
        if root is not None:
            raise UserError(
                f"root must be left out after a path, got {root} after {argument}: one is enough"
            )
        found = recognise(path, images, sheet)
        return found.source, found.root, f"{argument} is taken as {found.source}: {found.why}"
    near = get_close_matches(argument, sources, n=3, cutoff=0.5)
    if near and not re.search(r"[/\\.]", argument):
        raise UserError(
            f"source must be a known name or a path, got {argument!r}: "
            f"did you mean {' or '.join(near)}?"
        )
    raise UserError(
        f"source must be a known name or a path, got {argument!r}: there is no such file or "
        f"folder, and the names are {', '.join(sources)}"
    )


def image_column(
    names: Sequence[str], rows: Sequence[Sequence[str]], folder: Path | None = None
) -> str | None:
    """Find the column that names images: by the endings of its cells, or else by its own name.

    Args:
        names: Of the columns.
        rows: Their cells, the first rows of the file.
        folder: Where names without an ending are looked for, and in the folders in it.
    """
    columns = {
        name: [row[i] for row in rows if len(row) == len(names)] for i, name in enumerate(names)
    }
    by_cells = [
        name
        for name, cells in columns.items()
        if cells and sum(map(_is_image, cells)) > len(cells) / 2
    ]
    by_name = [name for name in names if re.sub(r"[\W_]", "", name.casefold()) in _IMAGE_COLUMNS]
    both = [name for name in by_name if name in by_cells]
    found = next(iter([*both, *by_cells]), None)
    if found is not None or folder is None:
        return found or next(iter(by_name), None)
    for name, cells in columns.items():
        words = {*re.split(r"[\W_]+", name.casefold())}
        wanted = [cell for cell in cells[:_HEAD] if cell]
        if (name in by_name or words & _ID_WORDS) and len({*wanted}) > len(wanted) / 2:
            place = image_folder(wanted, folder)
            if place is not None and sum(_are_there(place, wanted)) > len(wanted) / 2:
                return name
    return next(iter(by_name), None)


def image_folder(paths: Sequence[str], folder: Path) -> Path | None:
    """Find the folder that paths of images start from: the one given, or one inside it."""
    some = [path.replace("\\", "/") for path in paths[:_HEAD] if path]
    for place in (folder, *(folder / name for name in user_folders(folder))):
        if any(_are_there(place, some)):
            return place
    return None


def _are_there(folder: Path, paths: Sequence[str]) -> list[bool]:
    """Tell which paths are files, or those of images whose ending is left out."""
    images = ImageNames(folder)
    return [(folder / path).is_file() or bool(images.without_ending(path)) for path in paths]


class ImageNames:
    """Finds images by names without an ending; a folder is format_list when it is first asked for.

    Args:
        root: Where the names start.
    """

    def __init__(self, root: Path) -> None:
        from layline.data.images import readable_suffixes

        self._root, self._readable = root, readable_suffixes()
        self._folders: dict[str, dict[str, list[str]]] = {}

    def without_ending(self, path: str) -> list[str]:
        """Give the images that a path may mean; none where it ends like an image itself.

        If one of several can be read here, it is meant.
        """
        from layline.data.images import suffix_of

        if _is_image(path):
            return []
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._listed(folder)
        found = self._folders[folder].get(name, [])
        readable = [each for each in found if suffix_of(each) in self._readable]
        start = f"{folder}/" if folder else ""
        return [start + each for each in (readable or found)]

    def _listed(self, folder: str) -> dict[str, list[str]]:
        by_stem: dict[str, list[str]] = {}
        with suppress(OSError), os.scandir(self._root / folder) as entries:
            for entry in entries:
                if _is_image(entry.name):
                    stem = entry.name.rpartition(".")[0].removesuffix(".nii")
                    by_stem.setdefault(stem, []).append(entry.name)
        return {stem: sorted(names) for stem, names in by_stem.items()}


def label_column(
    file: "TableFile", argument: str, wanted: str, others: Collection[str | None] = ()
) -> tuple[str, tuple[str, ...]]:
    """Find the column of the labels, and say so where it is not the one named.

    Args:
        file: The table.
        argument: What a caller calls the name, for the error.
        wanted: The name; only the usual one, ``label``, may stand for another.
        others: Columns with another use, where a table has no inputs: what is left is the label.
    """
    names = list(file.frame)
    if wanted in names or wanted != LABEL_COLUMNS[0][0]:
        return wanted, ()  # a name that the user chose is not replaced by another
    first, second = ([n for n in names if n.lower() in usual] for usual in LABEL_COLUMNS)
    left = [name for name in names if name not in others] if others else []
    usual = first or second or (left if len(left) == 1 else [])
    if len(usual) == 1:
        return usual[0], (f"The labels are taken from the column {usual[0]!r}",)
    cure = f"say which of {', '.join(usual)} it is" if usual else "say which it is"
    raise UserError(
        f"{argument} must be a column of {file.path.name}, got {wanted!r}: {cure} with --label, "
        f"the columns are {', '.join(names)}"
    )


def user_folders(folder: Path) -> list[str]:
    """Name the folders inside a folder that a user made."""
    from layline.data.images import CLUTTER
    from layline.data.labels import natural_order

    names = [f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith(".")]
    return natural_order(sorted(name for name in names if name.lower() not in CLUTTER))


def _is_image(name: str, readable: bool = False) -> bool:
    """Tell an image by the end of its name, whether or not it can be read here."""
    from layline.data import images

    suffix = images.suffix_of(name)
    return suffix in (images.readable_suffixes() if readable else images.KNOWN_SUFFIXES)


def _has_image(folder: Path, readable: bool = True) -> bool:
    return any(_is_image(file, readable) for _, _, files in os.walk(folder) for file in files)
