"""Images as inputs: files that are decoded when asked for, or arrays in memory.

What ``load`` gives is a copy that the caller may write to and hand to ``torch.from_numpy``.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layline.data.base import Indices, Names, Pixels
from layline.data.images.decoding import check_size, decode
from layline.data.labels import natural_key

if TYPE_CHECKING:
    from layline.data.images.index import FileIndex

# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
# fmt: on
# what archivers, editors and file servers put between the images, in lower case
CLUTTER = frozenset({"__macosx", "@eadir"})


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
        from layline.data.images.index import index_images

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
            raise ValueError(
                "array must be uint8 and of the shape (n, height, width) or "
                f"(n, height, width, 3), got {array.dtype} and {array.shape}"
            )
        self._keep = np.arange(len(array)) if keep is None else np.asarray(keep)
        self.names: Sequence[str] = Names(map(str, self._keep.tolist()) if names is None else names)
        if len(self.names) != len(self._keep):
            raise ValueError(
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


def list_images(folder: Path) -> list[Path]:
    """Find the images of a folder and of the folders in it, in natural order.

    Hidden ones and what archivers leave behind are passed over. Links are followed, except one
    that leads back to a folder it is in. A link that leads nowhere is listed, to be found missing.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"folder must be a folder that exists, got {folder}")
    key = natural_key()
    return sorted(
        _walk(folder, frozenset()),
        key=lambda path: [(key(part), part) for part in path.relative_to(folder).parts],
    )


def _walk(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    status = folder.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.lower() in CLUTTER:
                continue
            path = folder / entry.name
            if entry.is_dir():
                yield from _walk(path, above | {identity})
            elif path.suffix.lower() in IMAGE_SUFFIXES:
                yield path
