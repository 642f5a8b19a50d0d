"""Images in one memory-mapped file, as :func:`layline.data.images.cache.cached` makes it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from layline.data.base import Indices, Pixels
from layline.data.images.cache_file import mapped
from layline.data.images.decoding import check_size


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Images that were decoded before. Only the path of the pixels is sent to other processes.

    Attributes:
        file: The pixels of all images, one after the other.
        names: What the images are called.
        starts: Where the pixels of each image start.
        shapes: The height and width of each image.
        at_least: The size that the images were decoded at.
    """

    file: Path
    names: Sequence[str]
    starts: Indices
    shapes: Indices
    at_least: int | None

    decoded = True

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, keep: Indices) -> "CachedImages":
        """Keep some images only, in the order given; the file is shared."""
        names = tuple(self.names[index] for index in keep)
        return replace(self, names=names, starts=self.starts[keep], shapes=self.shapes[keep])

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image out of the file: the caller may write to it, as torch wants.

        Args:
            index: Which one.
            at_least: The size that is needed; the image may be larger.
        """
        check_size(at_least)
        if self.at_least is not None and (at_least is None or at_least > self.at_least):
            raise ValueError(
                f"at_least must not be above {self.at_least}, got {at_least}: "
                "the images were decoded at that size, make another cache"
            )
        height, width = self.shapes[index]
        start = self.starts[index]
        return np.array(self._pixels[start : start + 3 * height * width].reshape(height, width, 3))

    @cached_property
    def _pixels(self) -> Pixels:
        return mapped(self.file)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}
