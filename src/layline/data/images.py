"""Images as inputs: files that are decoded when asked for, or arrays in memory.

What ``load`` gives is a copy that the caller may write to and hand to ``torch.from_numpy``.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layline.data.dataset import Indices, Names, Pixels
from layline.data.decoding import READS_AVIF, check_size, decode
from layline.data.labels import natural_key
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.data.index import FileIndex

# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
HEIC_SUFFIXES = frozenset({".heic", ".heif"})
# images all the same, so that whoever has them wants to know that they are not read
UNREAD_SUFFIXES = frozenset({
    ".avif", ".dcm", ".dicom", ".nii", ".nii.gz", ".svg", ".psd", ".jp2", ".jxl", ".exr",
    ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2", ".svs", ".ndpi",
})
KNOWN_SUFFIXES = IMAGE_SUFFIXES | HEIC_SUFFIXES | UNREAD_SUFFIXES
# what archivers, editors and file servers put between the images, in lower case
CLUTTER = frozenset({"__macosx", "@eadir", "thumbs.db", "desktop.ini"})
# fmt: on


@dataclass(frozen=True)
class ImageFiles:
    """Images in files; names are their paths from the root, with forward slashes.

    Attributes:
        root: The folder that names start from.
        names: Of the files.
        index: What is known of the files, once that was asked for; it is not sent to workers.
    """

    root: Path
    names: Sequence[str]
    index: "FileIndex | None" = field(default=None, compare=False, repr=False)

    decoded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))
        object.__setattr__(self, "names", Names(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """Give the path of an image."""
        return self.root / self.names[index]

    def subset(self, keep: Indices) -> "ImageFiles":
        """Keep some images only, in the order given."""
        index = None if self.index is None else self.index.subset(keep)
        return replace(self, names=Names(self.names).take(keep), index=index)

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image, see :func:`decode`."""
        return decode(self.path(index), at_least)

    def digest(self) -> str:
        """Name the content of the files in their order, by the index."""
        from layline.data.index import index_images

        return (index_images(self) if self.index is None else self.index).digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "index": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class ImageArrays:
    """Images of one size in an array, in memory or memory-mapped.

    A memory-mapped array is sent to other processes by its path, as long as it is a whole one:
    numpy sends a slice of it as a copy.

    Args:
        array: (n, height, width, 3), or (n, height, width) if they are grey.
        names: What the images are called; their places in the array if not given.
        keep: Which of them are meant, in this order; all if not given.
    """

    decoded = True

    def __init__(
        self, array: Pixels, names: Sequence[str] | None = None, keep: Indices | None = None
    ) -> None:
        if array.dtype != np.uint8 or not (array.ndim == 3 or array.shape[3:] == (3,)):
            raise UserError(
                "array must be uint8 and of the shape (n, height, width) or "
                f"(n, height, width, 3), got {array.dtype} and {array.shape}"
            )
        self._keep = np.arange(len(array)) if keep is None else np.asarray(keep)
        self.names: Sequence[str] = Names(map(str, self._keep.tolist()) if names is None else names)
        if len(self.names) != len(self._keep):
            raise UserError(
                f"names must be as many as the images, {len(self._keep)}, got {len(self.names)}"
            )
        self._array = array

    def __len__(self) -> int:
        return len(self._keep)

    def subset(self, keep: Indices) -> "ImageArrays":
        """Keep some images only, in the order given; the array is shared."""
        return ImageArrays(self._array, Names(self.names).take(keep), self._keep[keep])

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image, grey ones into three channels; its size stays as it is."""
        check_size(at_least)
        image = np.array(self._array[self._keep[index]])
        return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)

    def digest(self) -> str:
        """Tell images apart by their pixels, in their order."""
        digest = hashlib.blake2b(repr(self._array.shape[1:]).encode(), digest_size=20)
        for place in self._keep:
            digest.update(self._array[place].tobytes())
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        state, array = self.__dict__.copy(), self._array
        # a slice of a mapped array has the array as its base, and keeps the offset of the whole
        is_file = isinstance(array.base, mmap) and array.flags.c_contiguous
        if isinstance(array, np.memmap) and is_file:
            place = {"offset": array.offset, "shape": array.shape}
            state["_array"] = {"filename": array.filename, **place}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_array"], dict):
            state = {**state, "_array": np.memmap(dtype=np.uint8, mode="r", **state["_array"])}
        self.__dict__.update(state)


def readable_suffixes() -> frozenset[str]:
    """Give the endings of the images that can be read here: HEIC needs a library of its own."""
    heic = HEIC_SUFFIXES if find_spec("pillow_heif") else frozenset()
    return IMAGE_SUFFIXES | heic | ({".avif"} if READS_AVIF else frozenset())


def suffix_of(name: str) -> str:
    """Give the ending of a file name, in lower case; that of ``scan.nii.gz`` has two parts."""
    file = name[name.rfind("/") + 1 :].lower()  # called for every file, so not by pathlib
    dot = file.rfind(".")
    suffix = file[dot:] if dot > 0 else ""
    return ".nii.gz" if suffix == ".gz" and file.endswith(".nii.gz") else suffix


def count_suffixes(files: Iterable[Path]) -> str:
    """Count files by their endings: ``12 .heic, 1 .pdf``."""
    counts = Counter(suffix_of(file.name) or "without an ending" for file in files)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {suffix}" for suffix, count in ordered)


def how_to_read(files: Iterable[Path]) -> str:
    """Say how images can be read that were passed over; empty where there are none."""
    suffixes = {suffix_of(file.name) for file in files} - readable_suffixes()
    heic, others = suffixes & HEIC_SUFFIXES, suffixes & UNREAD_SUFFIXES
    cures = [f"pip install layline[heic] reads {' and '.join(sorted(heic))}"] if heic else []
    if others:
        cures.append(f"save {' and '.join(sorted(others))} as PNG or TIFF")
    return "; ".join(cures)


def describe_skipped(files: Sequence[Path]) -> str:
    """Say that files were passed over: how many of each kind, and how they can be read."""
    noun = "file" if len(files) == 1 else "files"
    cure = how_to_read(files)
    return f"{len(files):,} {noun} skipped: {count_suffixes(files)}" + (cure and f"; {cure}")


def list_images(folder: Path, skipped: list[Path] | None = None) -> list[Path]:
    """Find the images of a folder and of the folders in it, see :func:`list_names`."""
    passed_over: list[str] | None = None if skipped is None else []
    found = [folder / name for name in list_names(folder, passed_over)]
    if skipped is not None:
        skipped += [folder / name for name in passed_over or ()]
    return found


def list_names(folder: Path, skipped: list[str] | None = None) -> list[str]:
    """Name the images of a folder and of the folders in it, in natural order.

    Hidden ones and what archivers leave behind are passed over. Links are followed, except one
    that leads back to a folder it is in. A link that leads nowhere is listed, to be found missing.

    Args:
        folder: Where to look; names are paths from it, with forward slashes.
        skipped: Gets the files that are no images that can be read.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"folder must be a folder that exists, got {folder}")
    readable, found = readable_suffixes(), []
    for name in _walk(str(folder), "", frozenset()):
        if suffix_of(name) in readable:
            found.append(name)
        elif skipped is not None:
            skipped.append(name)
    return found


def _walk(folder: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Give all files but hidden ones and clutter, each folder in its natural order."""
    status = os.stat(folder)  # noqa: PTH116 – strings, since objects of pathlib cost a second
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    key = natural_key()
    with os.scandir(folder) as entries:
        shown = [
            (key(entry.name), entry.name, entry.is_dir())
            for entry in entries
            if not entry.name.startswith(".") and entry.name.lower() not in CLUTTER
        ]
    for _, name, is_folder in sorted(shown):
        if is_folder:
            place = os.path.join(folder, name)  # noqa: PTH118
            yield from _walk(place, f"{prefix}{name}/", above | {identity})
        else:
            yield prefix + name
