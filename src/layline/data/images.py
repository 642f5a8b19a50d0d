"""Images as inputs: files that are decoded when needed, or arrays in memory."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layline.data.dataset import Indices, Pixels
from layline.data.decoding import READS_AVIF, decode
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
# users want to know that these are not read
UNREAD_SUFFIXES = frozenset({
    ".avif", ".dcm", ".dicom", ".nii", ".svg", ".psd", ".jp2", ".jxl", ".exr", ".raw",
    ".cr2", ".cr3", ".nef", ".arw", ".dng",
})
# fmt: on
KNOWN_SUFFIXES = IMAGE_SUFFIXES | HEIC_SUFFIXES | UNREAD_SUFFIXES
CLUTTER = frozenset({"__macosx", "@eadir", "thumbs.db", "desktop.ini"})  # of archivers and servers


@dataclass(frozen=True)
class ImageFiles:
    """Images in files; names are their paths from the root, with forward slashes.

    Attributes:
        root: The folder that names start from.
        names: The files.
        index: What is known about the files; it is not sent to workers.
    """

    root: Path
    names: Sequence[str]
    index: "FileIndex | None" = field(default=None, compare=False, repr=False)

    decoded = False

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """Return the path of an image."""
        return Path(self.root) / self.names[index]

    def subset(self, keep: Indices) -> "ImageFiles":
        """Select images, in the order given."""
        index = None if self.index is None else self.index.subset(keep)
        return replace(self, names=[self.names[i] for i in keep], index=index)

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image, see :func:`layline.data.decoding.decode`."""
        return decode(self.path(index), at_least)

    def digest(self) -> str:
        """Hash the content of the files in their order, with the index."""
        from layline.data.index import index_images

        return (index_images(self) if self.index is None else self.index).digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "index": None}


class ImageArrays:
    """Images of one size in an array.

    Args:
        array: (n, height, width, 3), or (n, height, width) if they are gray.
        names: The names of the images; their places in the array if not given.
        keep: The images to use, in this order; all if not given.
    """

    decoded = True

    def __init__(
        self, array: Pixels, names: Sequence[str] | None = None, keep: Indices | None = None
    ) -> None:
        if array.dtype != np.uint8 or not (array.ndim == 3 or array.shape[3:] == (3,)):
            raise UserError(
                "Images must be uint8 of shape (n, height, width) or (n, height, width, 3), got "
                f"{array.dtype} of shape {array.shape}."
            )
        self._array = array
        self._keep = np.arange(len(array)) if keep is None else np.asarray(keep)
        self.names: Sequence[str] = [*map(str, self._keep)] if names is None else list(names)
        if len(self.names) != len(self._keep):
            raise UserError(f"There are {len(self.names)} names for {len(self._keep)} images.")

    def __len__(self) -> int:
        return len(self._keep)

    def subset(self, keep: Indices) -> "ImageArrays":
        """Select images, in the order given; the array is shared."""
        return ImageArrays(self._array, [self.names[i] for i in keep], self._keep[keep])

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image, gray ones into three channels; its size stays as it is."""
        image = np.array(self._array[self._keep[index]])
        return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)

    def digest(self) -> str:
        """Hash the pixels in their order."""
        digest = hashlib.blake2b(repr(self._array.shape[1:]).encode(), digest_size=20)
        for place in self._keep:
            digest.update(self._array[place].tobytes())
        return digest.hexdigest()


@cache
def readable_suffixes() -> frozenset[str]:
    """Return the suffixes of images that can be read; HEIC needs a library of its own."""
    heic = HEIC_SUFFIXES if find_spec("pillow_heif") else frozenset()
    return IMAGE_SUFFIXES | heic | ({".avif"} if READS_AVIF else frozenset())


def suffix_of(name: str) -> str:
    """Return the suffix of a file name, in lower case."""
    dot = name.rfind(".")  # called for every file, so without pathlib
    return name[dot:].lower() if dot > name.rfind("/") + 1 else ""


def describe_skipped(files: Iterable[str | Path]) -> str:
    """Describe files that are not read: how many of each suffix, and how they can be read."""
    counts = Counter(suffix_of(str(file)) or "without suffix" for file in files)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in ordered)
    heic, others = (counts.keys() & each for each in (HEIC_SUFFIXES, UNREAD_SUFFIXES))
    cures = ["To read HEIC: pip install layline[heic]."] if heic - readable_suffixes() else []
    if others - readable_suffixes():
        cures.append(f"Save {' and '.join(sorted(others))} as PNG or TIFF.")
    return " ".join([f"Files that are not read: {listed}.", *cures])


def list_images(folder: Path, skipped: list[str] | None = None) -> list[str]:
    """List the images of a folder and its subfolders in natural order.

    Hidden files and those of archivers are ignored. Links are followed, except one that leads back
    to a folder that contains it.

    Args:
        folder: Where to look; names are paths from it, with forward slashes.
        skipped: Gets the other files.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder.")
    readable, found = readable_suffixes(), []
    for name in _walk(str(folder), "", frozenset()):
        if suffix_of(name) in readable:
            found.append(name)
        elif skipped is not None:
            skipped.append(name)
    return found


def _walk(folder: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    status = os.stat(folder)  # noqa: PTH116 – pathlib is slow for many files
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    with os.scandir(folder) as entries:
        shown = [
            (natural_key(entry.name), entry.name, entry.is_dir())
            for entry in entries
            if not entry.name.startswith(".") and entry.name.lower() not in CLUTTER
        ]
    for _, name, is_folder in sorted(shown):
        if is_folder:
            place = os.path.join(folder, name)  # noqa: PTH118
            yield from _walk(place, f"{prefix}{name}/", above | {identity})
        else:
            yield prefix + name
