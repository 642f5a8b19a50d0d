"""Images as inputs: files that are decoded when needed, and arrays in memory.

Images are decoded upright, as RGB with eight bits. Transparent pixels become white, sixteen bits
are divided by 257, the first of several frames is used, and color profiles are not applied. Every
fault of a file is a :class:`BadImageError`.
"""

import errno
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar

import joblib
import numpy as np

from layline.data.array_cache import ArrayCache, check_not_truncated
from layline.data.dataset import Indices, Pixels
from layline.data.labels import natural_key
from layline.data.preprocessing import shrink, shrunk_shape
from layline.utils.validation import UserError, require

require("PIL", extra="images", needed_by="reading images")
import PIL  # noqa: E402
from PIL import Image, ImageFile, ImageOps, features  # noqa: E402

if TYPE_CHECKING:
    from layline.data.index import FileRow

PILLOW: str = PIL.__version__
READS_AVIF = "avif" in features.modules and bool(features.check("avif"))
# no others: Pillow also opens PostScript, which is a program
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", *(["AVIF"] if READS_AVIF else []))
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
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
_READABLE = IMAGE_SUFFIXES | ({".avif"} if READS_AVIF else set())
_READABLE |= HEIC_SUFFIXES if find_spec("pillow_heif") else set()
KNOWN_SUFFIXES = IMAGE_SUFFIXES | HEIC_SUFFIXES | UNREAD_SUFFIXES
CLUTTER = frozenset({"__macosx", "@eadir", "thumbs.db", "desktop.ini"})  # of archivers and servers
_CACHE_FORMAT = 3
_COMMIT = 1000  # images
_HEADER = 8  # bytes of height and width
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ImageFiles:
    """Images in files; names are their paths from the root, with forward slashes."""

    root: Path
    names: Sequence[str]
    # what the index knows about the files
    rows: "tuple[FileRow, ...] | None" = field(default=None, compare=False, repr=False)

    decoded = False

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """Return the path of an image."""
        return Path(self.root) / self.names[index]

    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given."""
        rows = None if self.rows is None else tuple(self.rows[i] for i in keep)
        return replace(self, names=[self.names[i] for i in keep], rows=rows)

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image, see :func:`decode`."""
        return decode(self.path(index), at_least)

    def indexed_rows(self) -> "tuple[FileRow, ...]":
        """Return what the index knows about the files, after looking at them if needed."""
        from layline.data.index import index_images

        return self.rows or index_images(self).rows or ()

    def digest(self) -> str:
        """Hash the content of the files in their order."""
        rows = self.indexed_rows()
        digest = hashlib.blake2b(f"{len(rows)} files".encode(), digest_size=16)
        digest.update(b"".join(row.digest for row in rows))
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class CachedImages(ImageFiles):
    """Image files that were decoded before; other processes open the cache themselves.

    All images are one array of bytes: the height and width of each, then its pixels. Names are not
    part of the key, so the data may be moved.
    """

    key: str = ""
    starts: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # of each image
    pixels: Pixels | None = field(default=None, repr=False)

    decoded = True

    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given; the pixels are shared."""
        return replace(super().subset(keep), starts=self.starts[keep])

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image out of the cache, at the size that it was cached with."""
        if self.pixels is None:
            raise UserError("The cache of images was removed while it was in use.")
        check_not_truncated(self.pixels)
        start = int(self.starts[index]) + _HEADER
        height, width = np.frombuffer(self.pixels[start - _HEADER : start].tobytes(), np.int32)
        return np.array(self.pixels[start : start + 3 * height * width].reshape(height, width, 3))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pixels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"pixels": ArrayCache().open(state["key"])})


def cache_images(
    images: ImageFiles, at_least: int, progress: Callable[[int], None] = lambda done: None
) -> CachedImages:
    """Decode all images into the cache, or use the pixels that are there.

    Of the shorter side, ``at_least`` pixels are kept. ``progress`` is called with the number of
    images decoded so far, but not if all are there.
    """
    rows = images.indexed_rows()
    about = f"{_CACHE_FORMAT}, Pillow {PILLOW}, {images.digest()}, {at_least}"
    key = f"pixels-{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}"
    shapes = [shrunk_shape(row.height, row.width, at_least) for row in rows]
    # JPEGs are decoded at a fraction of their size, which is rounded up
    sizes = [_HEADER + 3 * (height + 2) * (width + 2) for height, width in shapes]
    starts = np.cumsum([0, *sizes])
    names, opened = images.names, ArrayCache().open(key)
    cached = CachedImages(images.root, names, rows, key, starts[:-1], opened)
    if cached.pixels is not None:
        return cached
    recorded = {"root": str(images.root.resolve()), "samples": len(images)}
    writer = ArrayCache().writer(key, (int(starts[-1]),), np.uint8, recorded)
    first = int(np.searchsorted(starts, writer.done))  # a killed run continues

    def load(number: int) -> Pixels:
        return shrink(images.load(first + number, at_least), at_least)

    for place, image in enumerate(thread_map(load, len(images) - first), start=first):
        start, end = starts[place], starts[place + 1]
        content = np.array(image.shape[:2], dtype=np.int32).tobytes() + image.tobytes()
        if len(content) > end - start:
            raise UserError(f"{images.names[place]} changed while it was read.")
        writer.array[start : start + len(content)] = np.frombuffer(content, np.uint8)
        if (place + 1) % _COMMIT == 0 or place + 1 == len(images):
            writer.commit(int(end))
        progress(place + 1)
    return replace(cached, pixels=writer.array)


class ImageArrays:
    """Images of one size in an array: (n, height, width, 3), or (n, height, width) if gray."""

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


def suffix_of(name: str) -> str:
    """Return the suffix of a file name, in lower case."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 – pathlib is slow for many files


def describe_skipped(files: Iterable[str | Path]) -> str:
    """Describe files that are not read: how many of each suffix, and how they can be read."""
    counts = Counter(suffix_of(str(file)) or "without suffix" for file in files)
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common())
    unread = counts.keys() - _READABLE
    cures = ["To read HEIC: pip install layline[heic]."] if unread & HEIC_SUFFIXES else []
    if others := unread & UNREAD_SUFFIXES:
        cures.append(f"Save {' and '.join(sorted(others))} as PNG or TIFF.")
    return " ".join([f"Files that are not read: {listed}.", *cures])


def list_images(folder: Path, skipped: list[str] | None = None) -> list[str]:
    """List the images of a folder and its subfolders in natural order; ``skipped`` gets the rest.

    Names are paths from the folder. Hidden files and those of archivers are ignored. Links are
    followed, except one that leads back to a folder that contains it.
    """
    images: list[str] = []
    skipped = [] if skipped is None else skipped
    for name in _walk(str(folder), "", frozenset()):
        (images if suffix_of(name) in _READABLE else skipped).append(name)
    return images


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


class BadImageError(UserError):
    """An image cannot be read; ``why`` is a short reason."""

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(f"The image {name} cannot be read: {why}" if name else why)
        self.why = why


def decode(
    file: Path | BinaryIO, at_least: int | None = None, most_pixels: int | None = None
) -> Pixels:
    """Decode an image: (height, width, 3).

    A JPEG is decoded at a half, a quarter or an eighth of its size if its shorter side keeps
    ``at_least`` pixels. An image larger than ``most_pixels``, or Pillow's limit, is refused.
    """
    return examine(file, at_least, most_pixels)[0]


def examine(
    file: Path | BinaryIO, at_least: int | None = None, most_pixels: int | None = None
) -> tuple[Pixels, tuple[int, int]]:
    """Decode an image as :func:`decode` does, and return its full height and width as well."""
    try:
        with file.open("rb") if isinstance(file, Path) else nullcontext(file) as stream:
            image = _identify(stream)
            width, height = image.size
            if width * height > (most_pixels or Image.MAX_IMAGE_PIXELS or width * height):
                raise BadImageError(f"too large: {width}×{height} pixels")
            if at_least is not None and image.format != "HEIF":  # it would use the thumbnail
                image.draft(None, (at_least, at_least))
            before = image.size[::-1]
            pixels = to_pixels(image)
            return pixels, (height, width) if pixels.shape[:2] == before else (width, height)
    except Exception as error:  # Pillow raises almost anything for damaged files
        name = str(file) if isinstance(file, Path) else ""
        raise BadImageError(why_bad(error), name) from error


def to_pixels(image: "Image.Image") -> Pixels:
    """Convert an image of Pillow to RGB, upright: (height, width, 3)."""
    image.load()
    with suppress(Exception):  # damaged EXIF data do not make an image bad
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "I" or image.mode.startswith("I;16"):
        gray = np.asarray(image)
        if gray.min() < 0 or gray.max() > 65535:
            raise BadImageError("32-bit pixels of unknown range; save it with 8 or 16 bits")
        image = Image.fromarray(((gray.astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise BadImageError("floating-point pixels of unknown range; save it with 8 or 16 bits")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return np.array(image.convert("RGB"))


def why_bad(error: Exception) -> str:
    """Return a short reason why an image cannot be read."""
    match error:
        case BadImageError():
            return error.why
        case FileNotFoundError() | NotADirectoryError():
            return "missing"
        case MemoryError():
            return "out of memory"
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            return f"too large: more than {(Image.MAX_IMAGE_PIXELS or 0) / 1e6:.3g} million pixels"
        # damaged files contain wrong offsets, which are invalid seeks
        case OSError(errno=int() as code, strerror=str() as text) if code != errno.EINVAL:
            return f"cannot be read: {text.lower()}"
    text = re.sub(r"<.* at 0x\w+>", "the file", str(error)).partition("\n")[0][:120]
    return f"truncated or damaged: {text or type(error).__name__}"


def _identify(stream: BinaryIO) -> "ImageFile.ImageFile":
    try:
        return Image.open(stream, formats=_FORMATS)
    except PIL.UnidentifiedImageError:
        stream.seek(0)
        start = stream.read(132)
        stream.seek(0)
    if start[4:8] == b"ftyp" and start[8:12] in _HEIC_BRANDS:
        if find_spec("pillow_heif") is None:
            raise BadImageError("HEIC; to read it, pip install layline[heic]")
        from pillow_heif import HeifImageFile  # without registering it with Pillow for everyone

        image: ImageFile.ImageFile = HeifImageFile(stream)  # type: ignore[no-untyped-call]
        return image
    if not start:
        raise BadImageError("empty file")
    if start[128:132] == b"DICM":
        raise BadImageError("DICOM; save it as PNG or TIFF")
    if start[:4] in (b"II*\0", b"MM\0*"):
        raise BadImageError("damaged or unsupported TIFF; save it with 8 bits")
    raise BadImageError("not an image")


def thread_map(
    work: Callable[[int], _Result], count: int, workers: int | None = None
) -> Generator[_Result, None, None]:
    """Yield ``work(0)``, ``work(1)``, …, computed ahead by threads, one per core by default."""
    workers = workers or joblib.cpu_count()
    piece = 8 * workers  # results that are waiting at most
    with ThreadPoolExecutor(workers, thread_name_prefix="layline") as pool:
        for start in range(0, count, piece):
            yield from pool.map(work, range(start, min(start + piece, count)))
