"""Images decoded once, at the size that is needed, in the cache of arrays.

All images are one array of bytes, whose key is a digest of the image files in their order, of the
size and of the decoder. Names are not part of it, so the data may be moved. Each image is its
height and width, then its pixels. An image whose shorter side has more pixels than are needed is
resized (:func:`layline.data.preprocessing.shrink`).
"""

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layline.data.array_cache import ArrayCache, check_not_truncated
from layline.data.dataset import Indices, Pixels
from layline.data.decoding import PILLOW, decode, thread_map
from layline.data.images import ImageFiles
from layline.data.index import Progress, index_images
from layline.data.preprocessing import shrink, shrunk_shape
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.data.index import FileIndex

CACHE_FORMAT = 3
_COMMIT = 1000  # images
_SHAPE = 8  # bytes of height and width


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Images that were decoded before; other processes open the cache themselves.

    Attributes:
        key: The key of the pixels in the cache.
        names: The names of the images.
        starts: Where each image starts in the array.
        at_least: The size that the images were decoded at.
        index: What is known about the files.
    """

    key: str
    names: Sequence[str]
    starts: Indices
    at_least: int | None
    index: "FileIndex | None"
    pixels: Pixels | None = field(repr=False)

    decoded = True

    def __len__(self) -> int:
        return len(self.starts)

    def subset(self, keep: Indices) -> "CachedImages":
        """Select images, in the order given; the pixels are shared."""
        return replace(
            self,
            names=[self.names[i] for i in keep],
            starts=self.starts[keep],
            index=None if self.index is None else self.index.subset(keep),
        )

    def digest(self) -> str:
        """Hash the content of the files that the images come from, in their order."""
        assert self.index is not None  # only workers lack it
        return self.index.digest()

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image out of the cache; it may be larger than ``at_least``."""
        if self.at_least is not None and (at_least is None or at_least > self.at_least):
            raise UserError(
                f"at_least must be at most {self.at_least}, got {at_least}: the cache has images "
                "of that size."
            )
        if self.pixels is None:
            raise UserError("The cache of images was removed while it was in use.")
        check_not_truncated(self.pixels)
        start = int(self.starts[index]) + _SHAPE
        height, width = np.frombuffer(self.pixels[start - _SHAPE : start].tobytes(), np.int32)
        return np.array(self.pixels[start : start + 3 * height * width].reshape(height, width, 3))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "index": None, "pixels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"pixels": ArrayCache().open(state["key"])})


def cache_images(
    images: ImageFiles, at_least: int | None, progress: Progress = None
) -> CachedImages:
    """Decode all images into the cache, or use the pixels that are there.

    Args:
        images: The files.
        at_least: Pixels of the shorter side to keep; None keeps all.
        progress: Called with the number of images decoded so far; never if all are there.
    """
    index = index_images(images) if images.index is None else images.index
    images = replace(images, index=index)
    about = f"{CACHE_FORMAT}, Pillow {PILLOW}, {index.digest()}, {at_least}"
    key = f"pixels-{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}"
    room = index.shapes
    if at_least is not None:  # JPEGs are decoded at a fraction of their size, which is rounded up
        room = np.array([shrunk_shape(h, w, at_least) for h, w in room.tolist()]) + 2
    ends = np.cumsum(_SHAPE + 3 * room.reshape(-1, 2).prod(axis=1))
    pixels = ArrayCache().open(key)
    if pixels is None:
        pixels = _decode_all(images, at_least, key, ends, progress)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return CachedImages(key, images.names, starts, at_least, index, pixels)


def _decode_all(
    images: ImageFiles, at_least: int | None, key: str, ends: Indices, progress: Progress
) -> Pixels:
    about = {"root": str(images.root.resolve()), "samples": len(images)}
    writer = ArrayCache().writer(key, (int(ends[-1]),), np.uint8, about)
    first = int(np.searchsorted(ends, writer.done, side="right"))  # a killed run continues

    def load(number: int) -> Pixels:
        image = decode(images.path(first + number), at_least)
        return image if at_least is None else shrink(image, at_least)

    with closing(thread_map(load, len(images) - first)) as decoded:
        for place, image in enumerate(decoded, start=first):
            start = int(ends[place - 1]) if place else 0
            content = np.array(image.shape[:2], dtype=np.int32).tobytes() + image.tobytes()
            if len(content) > ends[place] - start:
                raise UserError(f"{images.names[place]} changed while it was read.")
            writer.array[start : start + len(content)] = np.frombuffer(content, np.uint8)
            if (place + 1) % _COMMIT == 0:
                writer.commit(int(ends[place]))
            if progress is not None:
                progress(place + 1)
    pixels: Pixels = writer.finish()
    return pixels
