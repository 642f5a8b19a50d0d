"""Detect what a path contains: images, the source that reads it, columns of labels and groups.

Results are too good if a patient is in training and in test. Therefore Layline warns if no groups
are given and a column or the file names look like patients, subjects or cases.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from layline.data.dataset import find_file, format_list
from layline.data.labels import natural_key, natural_order
from layline.data.splits import SPLIT_WORDS, find_groups
from layline.data.tables import EXCEL_SUFFIXES, TEXT_SUFFIXES, TableFile, read_table_file
from layline.utils.validation import UserError

# fmt: off
_IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
_HEIC_SUFFIXES = frozenset({".heic", ".heif"})
# users want to know that these are not read
_UNREAD_SUFFIXES = frozenset({
    ".avif", ".dcm", ".dicom", ".nii", ".svg", ".psd", ".jp2", ".jxl", ".exr", ".raw",
    ".cr2", ".cr3", ".nef", ".arw", ".dng",
})
# fmt: on
_KNOWN_SUFFIXES = _IMAGE_SUFFIXES | _HEIC_SUFFIXES | _UNREAD_SUFFIXES
_CLUTTER = frozenset({"__macosx", "@eadir", "thumbs.db", "desktop.ini"})  # archivers and servers
_TABLES = (*TEXT_SUFFIXES, *EXCEL_SUFFIXES)
_KINDS = "a folder per class, a CSV or Excel file, or an npz file"
_HEAD = 50  # rows that are looked at
_IMAGE_COLUMNS = re.compile(
    r"(path|file|filename|filepath|images?|img|(image|img)(path|file|name)|photo|picture)"
)
# words in names of columns that may hold names of image files without their suffix
_ID_WORDS = frozenset({"id", "image", "img", "file", "filename", "name", "photo", "picture"})
# the second ones only where there is none of the first, since they may be inputs as well
_LABEL_COLUMNS = ("label", "rank", "grade", "class", "target", "y"), ("rating", "score", "quality")
_GROUPS = r"patient|subject|user|person|case|study|participant|individual"
_GROUP_COLUMN = re.compile(rf"(?i:{_GROUPS}|[\W_]id$)|[a-z]I[Dd]$")
_NUMBERED = re.compile(rf"({_GROUPS}|pat|subj|sub|p|s|id)([-_ ]?)\d+(?![a-z0-9])", re.IGNORECASE)
_FEWEST = 3  # groups, one for each split


class Detected(NamedTuple):
    """The source that reads a path, the path for it, and what it was detected by."""

    source: str
    root: Path
    why: str


def find_source(
    argument: str,
    root: Path | None,
    sources: Collection[str],
    options: Mapping[str, object] | None = None,
) -> tuple[str, Path | None, str | None]:
    """Find the source that a user means by its name or by the path of the data.

    Names take precedence. The options ``images`` and ``sheet`` help to detect a source. The result
    is its name, the root, and a message for the user.
    """
    path = Path(argument).expanduser()
    if argument in sources:
        both = root is None and path.exists()
        note = f"{argument} is the source of that name. To use the path, write ./{argument}"
        return argument, root, note if both else None
    if path.exists():
        if root is not None:
            raise UserError(f"{argument} is a path already; leave out the root {root}.")
        texts = {name: str(value) for name, value in (options or {}).items() if value is not None}
        images = Path(texts["images"]).expanduser() if "images" in texts else None
        found = detect(path, images, texts.get("sheet"))
        return found.source, found.root, f"Reading {argument} as {found.source}: {found.why}."
    near = get_close_matches(argument, sources, n=3, cutoff=0.5)
    cure = f"Did you mean {' or '.join(near)}?" if near else f"Sources: {', '.join(sources)}."
    raise UserError(f"{argument!r} is neither a file, a folder nor the name of a source. {cure}")


def detect(path: Path, images: Path | None = None, sheet: str | None = None) -> Detected:
    """Find the source that reads a path; ``images`` is the folder that a list starts from."""
    if path.is_dir():
        return _detect_folder(path, images, sheet)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return Detected("npz", path, "it is an npz file")
    if suffix not in _TABLES:
        raise UserError(f"The data must be {_KINDS}; {path} is none of them.")
    file = read_table_file(path, sheet=sheet, rows=_HEAD)
    folder = path.parent if images is None else images
    column = image_column(file, folder)
    if column is None:
        return Detected("table", path, "no column names images")
    cells = file.frame[column].tolist()
    if image_folder(cells, folder) is not None:
        return Detected("csv", path, f"column {column!r} names images")
    raise UserError(
        f"The images in column {column!r} of {path.name}, such as {cells[0]}, do not exist. "
        "Set the option images to their folder."
    )


def _detect_folder(path: Path, images: Path | None, sheet: str | None) -> Detected:
    if (path / "config.toml").is_file() and (path / "state").is_dir():
        raise UserError(f"{path} is the folder of a run, not of data. Resume the run instead.")
    filled = _folders_with_images(path)
    train = [name for name in filled if SPLIT_WORDS.get(name.casefold()) == "train"]
    if len(_folders_with_images(path / train[0]) if train else filled) > 1:
        return Detected("folder", path, "it has a folder of images per class")
    files = [f.name for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "~$"))]
    for kinds in ((".csv", ".tsv", *EXCEL_SUFFIXES), (".npz",)):
        if any(file.lower().endswith(kinds) for file in files):
            return detect(find_file(path, kinds), images, sheet)
    nested = len(filled) == 1 and len(user_folders(path / filled[0])) > 1
    hint = f" Did you mean {path / filled[0]}?" if nested else ""
    raise UserError(f"The data must be {_KINDS}; {path} has none of them.{hint}")


def _folders_with_images(folder: Path) -> list[str]:
    return [
        name
        for name in user_folders(folder)
        if any(is_image(file) for _, _, files in os.walk(folder / name) for file in files)
    ]


def user_folders(folder: Path) -> list[str]:
    """List the subfolders, without hidden ones and those of archivers."""
    return natural_order(f.name for f in folder.iterdir() if f.is_dir() and _is_shown(f.name))


def list_images(folder: Path) -> tuple[list[str], list[str]]:
    """List the images of a folder and its subfolders in natural order, and the other files.

    Names are paths from the folder. Hidden files and those of archivers are ignored. Links are
    followed, except one that leads back to a folder that contains it.
    """
    images: list[str] = []
    others: list[str] = []
    readable = _readable_suffixes()
    for name in _walk(str(folder), "", frozenset()):
        (images if _suffix(name) in readable else others).append(name)
    return images, others


def _walk(folder: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    status = os.stat(folder)  # noqa: PTH116 – pathlib is slow for many files
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    with os.scandir(folder) as entries:
        shown = [(natural_key(e.name), e.name, e.is_dir()) for e in entries if _is_shown(e.name)]
    for _, name, is_folder in sorted(shown):
        if is_folder:
            place = os.path.join(folder, name)  # noqa: PTH118
            yield from _walk(place, f"{prefix}{name}/", above | {identity})
        else:
            yield prefix + name


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in _CLUTTER


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122


def _readable_suffixes() -> frozenset[str]:
    return _IMAGE_SUFFIXES | (_HEIC_SUFFIXES if find_spec("pillow_heif") else set())


def is_image(name: str) -> bool:
    """Check by its suffix that a file is an image, even if it cannot be read."""
    return _suffix(name) in _KNOWN_SUFFIXES


def describe_skipped(files: Iterable[str | Path]) -> str:
    """Describe files that are not read: how many of each suffix, and how they can be read."""
    counts = Counter(_suffix(str(file)) or "without suffix" for file in files)
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common())
    unread = counts.keys() - _readable_suffixes()
    sentences = [f"Files that are not read: {listed}."] if counts else []
    if unread & _HEIC_SUFFIXES:
        sentences.append("To read HEIC: pip install layline[heic].")
    if others := unread & _UNREAD_SUFFIXES:
        sentences.append(f"Save {' and '.join(sorted(others))} as PNG or TIFF.")
    return " ".join(sentences)


def image_column(file: TableFile, folder: Path) -> str | None:
    """Find the column that names images: by the suffixes of its cells, else by its name."""
    columns = {str(name): file.frame[name].head(_HEAD).tolist() for name in file.frame}
    named = {n for n in columns if _IMAGE_COLUMNS.fullmatch(re.sub(r"[\W_]", "", n.casefold()))}
    for name in sorted(columns, key=lambda name: name not in named):
        if sum(map(is_image, columns[name])) > len(columns[name]) / 2:
            return name
    for name, cells in columns.items():
        some = [cell for cell in cells if cell]
        usual = name in named or {*re.split(r"[\W_]+", name.casefold())} & _ID_WORDS
        place = image_folder(some, folder) if usual and len({*some}) > len(some) / 2 else None
        if place and sum(map(bool, find_images(place, some))) > len(some) / 2:
            return name
    return None


def image_folder(paths: Sequence[str], folder: Path) -> Path | None:
    """Find the folder that paths of images start from: the one given, or a subfolder."""
    some = [path.replace("\\", "/") for path in paths[:_HEAD] if 0 < len(path) < 256]
    for place in (folder, *(folder / name for name in user_folders(folder))):
        if any((place / path).is_file() for path in some) or any(find_images(place, some)):
            return place
    return None


def find_images(root: Path, names: Sequence[str]) -> list[list[str]]:
    """Return the images that each name without a suffix may mean; none for a name with one."""
    stems: dict[str, dict[str, list[str]]] = {}
    found = []
    for path in names:
        folder, slash, name = path.rpartition("/")
        if folder not in stems and not is_image(path):
            stems[folder] = defaultdict(list)
            with suppress(OSError):
                for file in sorted(os.listdir(root / folder)):  # noqa: PTH208 – only names
                    if is_image(file):
                        stems[folder][file.rpartition(".")[0]].append(folder + slash + file)
        found.append([] if is_image(path) else stems[folder].get(name, []))
    return found


def label_column(
    file: TableFile, wanted: str, others: Collection[str | None] = ()
) -> tuple[str, tuple[str, ...]]:
    """Find the column of the labels, with a note if it is not the one named.

    Only the default is replaced: by a column with a usual name, or the only one not in ``others``.
    """
    names = list(file.frame)
    if wanted in names or wanted != "label":
        return wanted, ()
    first, second = ([n for n in names if n.lower() in usual] for usual in _LABEL_COLUMNS)
    left = [name for name in names if name not in others] if others else []
    usual = first or second or (left if len(left) == 1 else [])
    if len(usual) == 1:
        return usual[0], (f"The labels are in column {usual[0]!r}.",)
    which = f"It may be {' or '.join(usual)}. " if usual else ""
    raise UserError(
        f"{file.path.name} has no column 'label'. {which}Set the option label; the columns are "
        f"{format_list(names)}."
    )


def suggest_group_columns(
    file: TableFile, used: Collection[str | None], labels: list[str]
) -> list[str]:
    """Return notes about columns that look like groups, and that have no other use."""
    notes = []
    for name in file.frame:
        if name in used or not _GROUP_COLUMN.search(name):
            continue
        cells = file.frame[name].tolist()
        different = len({*cells})
        repeats_labels = different == len({*labels}) == len({*zip(cells, labels, strict=True)})
        if not repeats_labels and _FEWEST <= different < len(cells):
            notes.append(
                f"Column {name!r} looks like a group ({different:,} values in {len(cells):,} "
                f"rows). Set group to {name!r} to keep its samples in one split."
            )
    return notes


def suggest_group_pattern(paths: Sequence[str]) -> list[str]:
    """Return a note if all paths have a name like ``patient_12`` or ``p012_left.jpg``."""
    matches = [filter(None, map(_NUMBERED.match, path.split("/"))) for path in paths]
    spelled = {match and match[1] + match[2] for match in (next(each, None) for each in matches)}
    if len(spelled) != 1 or None in spelled:
        return []
    pattern = rf"\b{spelled.pop()}\d+"
    groups = find_groups(pattern, paths)
    if not _FEWEST <= len({*groups}) < len(groups):
        return []
    return [
        f"The file names look like groups ({len({*groups}):,}, such as {groups[0]!r}). Set "
        f"group_by to '{pattern}' to keep the images of each in one split."
    ]
