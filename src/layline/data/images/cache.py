"""Images decoded once and kept in a file that is named after their contents.

The name is a digest of the bytes of all image files in their order, of the size they are decoded
at, and of what decodes them. Their own names are no part of it: the data may be moved.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path

import numpy as np

from layline.data.base import Indices, Pixels
from layline.data.images.cache_file import read_shapes, write
from layline.data.images.cached_images import CachedImages
from layline.data.images.decoding import check_size, decode, decoded_bytes
from layline.data.images.files import ImageFiles
from layline.data.images.pillow import PILLOW, BadImageError, open_regular, why_bad
from layline.data.images.threads import in_order

FORMAT = 1  # of the file, and of what decoding gives: another number makes other caches
Progress = Callable[[int], None]


def cached(
    images: ImageFiles,
    at_least: int | None,
    folder: Path,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CachedImages:
    """Decode all images into a file of the folder, or take the file where that was done before.

    Args:
        images: The files.
        at_least: The size to decode at, see :func:`decode`.
        folder: Where the caches are, such as :func:`default_folder`.
        workers: How many threads; as many as there are processors if not given.
        progress: Called with the number of images decoded so far; never if they all were.
    """
    check_size(at_least)
    key = _key(images, at_least, workers)
    file = Path(folder) / f"{key}.pixels"
    shapes = read_shapes(file, key, len(images), workers)
    if shapes is None:
        shapes = _build(file, key, images, at_least, workers, progress)
    sizes = 3 * shapes.prod(axis=1)
    return CachedImages(file, images.names, np.cumsum(sizes) - sizes, shapes, at_least)


def default_folder() -> Path:
    """Give the folder for caches: ``$LAYLINE_CACHE``, or the place the system has for them."""
    if own := os.environ.get("LAYLINE_CACHE"):
        return Path(own).expanduser()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "layline"


def _key(images: ImageFiles, at_least: int | None, workers: int | None) -> str:
    def digest(index: int) -> bytes:
        path = images.path(index)
        try:
            with open_regular(path) as file:
                return hashlib.file_digest(file, "blake2b").digest()
        except Exception as error:
            raise BadImageError(why_bad(error), str(path)) from error

    about = f"format {FORMAT}, Pillow {PILLOW}, {len(images)} images of at least {at_least}"
    key = hashlib.blake2b(about.encode(), digest_size=20)
    with closing(in_order(digest, len(images), workers)) as digests:
        for one in digests:
            key.update(one)
    return key.hexdigest()


def _build(
    file: Path,
    key: str,
    images: ImageFiles,
    at_least: int | None,
    workers: int | None,
    progress: Progress | None,
) -> Indices:
    def size(index: int) -> int:
        return decoded_bytes(images.path(index), at_least)

    def pixels(index: int) -> Pixels:
        return decode(images.path(index), at_least)

    with closing(in_order(size, len(images), workers)) as sizes:
        needed = sum(sizes)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(file.parent).free < needed:
            raise OSError(ENOSPC, os.strerror(ENOSPC))  # before hours of decoding, not after
        with closing(in_order(pixels, len(images), workers)) as decoded:
            return write(file, key, _counted(decoded, progress))
    except OSError as error:
        raise _unwritable(file.parent, needed, error) from error


def _counted(images: Iterable[Pixels], progress: Progress | None) -> Iterator[Pixels]:
    for done, image in enumerate(images, start=1):
        yield image
        if progress is not None:
            progress(done)


def _unwritable(folder: Path, needed: int, error: OSError) -> OSError:
    full = error.errno in (ENOSPC, EDQUOT, EFBIG)
    rule = f"have room for {needed:,} bytes" if full else f"take a file of {needed:,} bytes"
    text = (error.strerror or str(error)).lower()
    raised = OSError(
        f"folder must {rule}, got {folder}: {text}; make room, or set LAYLINE_CACHE to another"
    )
    raised.errno = error.errno
    return raised
