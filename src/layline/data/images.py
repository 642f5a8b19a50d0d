"""Images: decoding of files, and the inputs that load them.

Images are decoded upright, as RGB with eight bits. Transparent pixels become white, sixteen bits
are divided by 257, the first of several frames is used, and color profiles are not applied. Every
fault of a file is a :class:`BadImageError`. Pillow is imported when an image is decoded, since
tables do not need it.
"""

import errno
import hashlib
import io
import re
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar

import joblib
import numpy as np

from layline.data.dataset import Images, Indices, Pixels, require_path
from layline.data.detect import describe_skipped, list_images
from layline.utils.validation import UserError, require

if TYPE_CHECKING:
    from PIL.Image import Image

    from layline.data.image_cache import FileRow

# no others: Pillow also opens PostScript, which is a program
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ImageFiles(Images):
    """Images in files; names are their paths from the root, with forward slashes."""

    root: Path
    names: Sequence[str]
    # what the index knows about the files
    rows: "tuple[FileRow, ...] | None" = field(default=None, compare=False, repr=False)

    decoded = False

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
        from layline.data.image_cache import index_images

        return self.rows or index_images(self).rows or ()

    def digest(self) -> str:
        """Hash the content of the files in their order."""
        rows = self.indexed_rows()
        digest = hashlib.blake2b(f"{len(rows)} files".encode(), digest_size=16)
        digest.update(b"".join(row.digest for row in rows))
        return digest.hexdigest()


class ImageArrays(Images):
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

    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given; the array is shared."""
        return type(self)(self._array, [self.names[i] for i in keep], self._keep[keep])

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Copy an image, gray ones into three channels; its size stays as it is."""
        image = np.array(self._array[self._keep[index]])
        return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)


@dataclass(frozen=True)
class UserImages(Images):
    """Images that a user passes to a model: files and bytes, decoded when needed, and arrays."""

    items: tuple[Path | bytes | Pixels, ...]
    names: tuple[str, ...]  # paths, or else places in what was passed
    skipped: tuple[Path, ...] = ()  # files in folders that are not images

    @property
    def decoded(self) -> bool:
        """Whether no image needs decoding."""
        return not any(isinstance(item, Path | bytes) for item in self.items)

    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given."""
        return type(self)(tuple(self.items[i] for i in keep), tuple(self.names[i] for i in keep))

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image, see :func:`decode`; an array is returned as it is."""
        item = self.items[index]
        if not isinstance(item, Path | bytes):
            return item
        try:
            return decode(item if isinstance(item, Path) else io.BytesIO(item), at_least)
        except BadImageError as error:
            raise BadImageError(error.why, self.names[index]) from error


def as_images(samples: Any) -> UserImages:
    """Convert what a user passes to images.

    That is a path, a folder, the bytes of an image file, an array (height, width, 3) of values from
    0 to 255, a Pillow image, or a sequence of them, such as a Series of paths.
    """
    items: list[Path | bytes | Pixels] = []
    names: list[str] = []
    skipped: list[Path] = []
    for place, sample in enumerate(_as_sequence(samples)):
        if isinstance(sample, str | Path):
            path = require_path(sample)
            paths = _list_folder(path, skipped) if path.is_dir() else [path]
            items += paths
            names += map(str, paths)
        else:
            items.append(sample if isinstance(sample, bytes) else _to_array(sample, place))
            names.append(str(place))
    return UserImages(tuple(items), tuple(names), tuple(skipped))


def _as_sequence(samples: Any) -> Sequence[Any]:
    """Return the samples one by one; a single image is a sequence of one."""
    if isinstance(samples, str | Path | bytes) or hasattr(samples, "getbands"):
        return [samples]
    if isinstance(samples, Sequence):
        return samples
    array = np.asarray(samples)
    many = array.ndim == 4 or (array.ndim == 1 and array.dtype.kind in "OUT")  # objects or texts
    return list(array) if many else [array]


def _list_folder(folder: Path, skipped: list[Path]) -> list[Path]:
    images, others = list_images(folder)
    if not images:
        raise UserError(f"The folder {folder} has no images. {describe_skipped(others)}".rstrip())
    skipped += [folder / name for name in others]
    return [folder / name for name in images]


def _to_array(sample: Any, place: int) -> Pixels:
    if hasattr(sample, "getbands"):  # an image of Pillow
        return to_pixels(sample.copy())
    array = np.asarray(sample)
    if array.ndim == 2:
        array = array[..., None].repeat(3, axis=2)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise UserError(
            f"Images must be uint8 arrays of shape (height, width, 3), got {array.dtype} of shape "
            f"{array.shape} at place {place}."
        )
    return np.ascontiguousarray(array)


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
    pillow = require("PIL.Image", extra="images", needed_by="reading images")
    try:
        with file.open("rb") if isinstance(file, Path) else nullcontext(file) as stream:
            image = _identify(stream)
            width, height = image.size
            if width * height > (most_pixels or pillow.MAX_IMAGE_PIXELS or width * height):
                raise BadImageError(f"too large: {width}×{height} pixels")
            if at_least is not None and image.format != "HEIF":  # it would use the thumbnail
                image.draft(None, (at_least, at_least))
            before = image.size[::-1]
            pixels = to_pixels(image)
            return pixels, (height, width) if pixels.shape[:2] == before else (width, height)
    except Exception as error:  # Pillow raises almost anything for damaged files
        name = str(file) if isinstance(file, Path) else ""
        raise BadImageError(why_bad(error), name) from error


def to_pixels(image: "Image") -> Pixels:
    """Convert an image of Pillow to RGB, upright: (height, width, 3)."""
    from PIL import Image, ImageOps

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
    from PIL import Image

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


def _identify(stream: BinaryIO) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(stream, formats=_FORMATS)
    except UnidentifiedImageError:
        stream.seek(0)
        start = stream.read(12)
        stream.seek(0)
    if start[4:8] == b"ftyp" and start[8:12] in _HEIC_BRANDS:
        if find_spec("pillow_heif") is None:
            raise BadImageError("HEIC; to read it, pip install layline[heic]")
        from pillow_heif import HeifImageFile  # without registering it with Pillow for everyone

        return HeifImageFile(stream)  # type: ignore[no-untyped-call]
    if not start:
        raise BadImageError("empty file")
    if start[:4] in (b"II*\0", b"MM\0*"):
        raise BadImageError("damaged or unsupported TIFF; save it with 8 bits")
    raise BadImageError("not an image")


def pillow_version() -> str:
    """Return the version of Pillow, on which decoded pixels depend."""
    return str(require("PIL", extra="images", needed_by="reading images").__version__)


def thread_map(
    work: Callable[[int], _Result], count: int, workers: int | None = None
) -> Generator[_Result, None, None]:
    """Yield ``work(0)``, ``work(1)``, …, computed ahead by threads, one per core by default."""
    workers = workers or joblib.cpu_count()
    piece = 8 * workers  # results that are waiting at most
    with ThreadPoolExecutor(workers, thread_name_prefix="layline") as pool:
        for start in range(0, count, piece):
            yield from pool.map(work, range(start, min(start + piece, count)))
