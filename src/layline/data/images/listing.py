"""Which files of a folder are images, and in which order."""

import os
from collections.abc import Iterator
from pathlib import Path

from layline.data.natural import natural_key

# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
# fmt: on
# what archivers, editors and file servers put between the images, in lower case
CLUTTER = frozenset({"__macosx", "@eadir"})


def list_images(folder: Path) -> list[Path]:
    """Find the images of a folder and of the folders in it, in natural order.

    Hidden ones and what archivers leave behind are passed over. Links are followed, except one
    that leads back to a folder it is in. A link that leads nowhere is listed, to be found missing.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"folder must be a folder that exists, got {folder}")
    found = list(_walk(folder, frozenset()))
    return sorted(
        found, key=lambda path: [(natural_key(p), p) for p in path.relative_to(folder).parts]
    )


def _walk(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.lower() in CLUTTER:
                continue
            path = folder / entry.name
            if entry.is_dir():
                yield from _walk(path, above | {here})
            elif path.suffix.lower() in IMAGE_SUFFIXES:
                yield path
