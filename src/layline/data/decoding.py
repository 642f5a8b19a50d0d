"""Decoding of image files: upright, RGB, eight bits.

Transparent pixels are put on white. Sixteen bits are divided by 257. The first of several frames or
pages is used, and color profiles are not applied. Every fault of a file is a
:class:`BadImageError`, and warnings of Pillow are not shown.
"""

import errno
import re
import stat
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import joblib
import numpy as np

from layline.data.dataset import Pixels
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_integer

if TYPE_CHECKING:
    import PIL
    from PIL import Image as Image
    from PIL import ImageFile, ImageOps
    from PIL import features as _pillow_features
else:
    PIL, Image, ImageOps, _pillow_features = (
        require(name, extra="images", needed_by="reading images")
        for name in ("PIL", "PIL.Image", "PIL.ImageOps", "PIL.features")
    )

PILLOW: str = PIL.__version__
READS_AVIF = "avif" in _pillow_features.modules and bool(_pillow_features.check("avif"))
# no others: Pillow also opens PostScript, which is a program
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", *(["AVIF"] if READS_AVIF else []))
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_ORIENTATION = 0x0112  # the EXIF tag
_LYING = (5, 6, 7, 8)  # orientations that exchange height and width
_Result = TypeVar("_Result")


class BadImageError(UserError):
    """An image cannot be read; ``why`` is a short reason."""

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(f"The image {name} cannot be read: {why}" if name else why)
        self.why = why


def decode(
    file: Path | BinaryIO, at_least: int | None = None, most_pixels: int | None = None
) -> Pixels:
    """Decode an image: (height, width, 3). The caller may write to the array.

    Args:
        file: Its path, or the open file.
        at_least: A JPEG is decoded at a half, a quarter or an eighth of its size if its shorter
            side keeps this many pixels; None decodes it at full size.
        most_pixels: A larger image is refused before it is decoded; Pillow has a limit as well.

    Raises:
        BadImageError: It cannot be read.
    """
    if at_least is not None:
        check_integer("at_least", at_least, least=1)
    with _open_image(file, most_pixels) as image:
        if at_least is not None:
            _draft(image, at_least)
        return to_pixels(image)


def examine(file: BinaryIO, at_least: int) -> tuple[Pixels, tuple[int, int]]:
    """Decode an image as :func:`decode` does, and return its full height and width as well."""
    with _open_image(file) as image:
        width, height = image.size
        _draft(image, at_least)
        is_whole, lying = image.size == (width, height), False
        with suppress(Exception):
            lying = image.getexif().get(_ORIENTATION) in _LYING
        pixels = to_pixels(image)
        if is_whole:
            return pixels, (pixels.shape[0], pixels.shape[1])
        return pixels, (width, height) if lying else (height, width)


def to_pixels(image: "Image.Image") -> Pixels:
    """Convert an image of Pillow to RGB, upright: (height, width, 3)."""
    image.load()
    with suppress(Exception):  # damaged EXIF data do not make an image bad
        ImageOps.exif_transpose(image, in_place=True)
    return np.array(_to_rgb(image))


def open_regular(path: Path) -> BufferedReader:
    """Open a file, but neither a pipe nor a device, which may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadImageError("not a regular file")
    return path.open("rb")


def why_bad(error: Exception) -> str:
    """Return a short reason why an image cannot be read."""
    match error:
        case BadImageError():
            return error.why
        case FileNotFoundError() | NotADirectoryError():
            return "missing"
        case IsADirectoryError():
            return "a directory, not a file"
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            return f"too large: more than {(Image.MAX_IMAGE_PIXELS or 0) / 1e6:.3g} million pixels"
        case MemoryError():
            return "cannot be read: out of memory"
        # damaged files contain wrong offsets, which are invalid seeks
        case OSError(errno=int() as code, strerror=str() as text) if code != errno.EINVAL:
            return f"cannot be read: {text.lower()}"
    text = re.sub(r"<.* at 0x\w+>", "the file", str(error)).partition("\n")[0][:120]
    return f"truncated or damaged: {text or type(error).__name__}"


class _PillowWarnings:
    """Ignores Pillow's warnings; that about a very large image becomes an error.

    Filters of warnings belong to the process, so the first thread sets them and the last one
    restores them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._threads == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
                warnings.simplefilter("error", Image.DecompressionBombWarning)
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self._filters.__exit__(None, None, None)


_WARNINGS = _PillowWarnings()


@contextmanager
def _open_image(
    file: Path | BinaryIO, most_pixels: int | None = None
) -> Iterator["ImageFile.ImageFile"]:
    """Open an image. An exception of the body is a fault of the file."""
    with _WARNINGS:
        try:
            with open_regular(file) if isinstance(file, Path) else nullcontext(file) as stream:
                image = _identify(stream)
                pixels = image.width * image.height
                if pixels > (most_pixels or Image.MAX_IMAGE_PIXELS or pixels):
                    raise BadImageError(f"too large: {image.width}×{image.height} pixels")
                yield image
        except Exception as error:
            path = file.name if isinstance(file, BufferedReader) else file
            name = str(path) if isinstance(path, str | Path) else ""
            raise BadImageError(why_bad(error), name) from error


def _draft(image: "ImageFile.ImageFile", at_least: int) -> None:
    """Decode a JPEG at a fraction of its size; of HEIF it would use the thumbnail."""
    if image.format != "HEIF":
        image.draft(None, (at_least, at_least))


def _identify(stream: BinaryIO) -> "ImageFile.ImageFile":
    try:
        return Image.open(stream, formats=_FORMATS)
    except PIL.UnidentifiedImageError as error:
        if not stream.seekable():
            raise BadImageError("not an image") from error
        stream.seek(0)
        start = stream.read(132)
        stream.seek(0)
        if start[4:8] == b"ftyp" and start[8:12] in _HEIC_BRANDS:
            return _open_heic(stream)
        if not start:
            raise BadImageError("empty file") from error
        if start[128:132] == b"DICM":
            raise BadImageError("DICOM; save it as PNG or TIFF") from error
        if start[:4] in (b"II*\0", b"MM\0*"):
            raise BadImageError("damaged or unsupported TIFF; save it with 8 bits") from error
        raise BadImageError("not an image") from error


def _open_heic(stream: BinaryIO) -> "ImageFile.ImageFile":
    if find_spec("pillow_heif") is None:
        raise BadImageError("HEIC; to read it, pip install layline[heic]")
    from pillow_heif import HeifImageFile  # without registering it with Pillow for everyone

    try:
        image: ImageFile.ImageFile = HeifImageFile(stream)  # type: ignore[no-untyped-call]
    except SyntaxError as error:
        raise BadImageError(f"truncated or damaged: {error}") from error
    return image


def _to_rgb(image: "Image.Image") -> "Image.Image":
    if image.mode == "I" or image.mode.startswith("I;16"):
        gray = np.asarray(image)
        if gray.min() < 0 or gray.max() > 65535:
            raise BadImageError("32-bit pixels of unknown range; save it with 8 or 16 bits")
        eight_bits = ((gray.astype(np.uint32) + 128) // 257).astype(np.uint8)
        return Image.fromarray(eight_bits).convert("RGB")
    if image.mode == "F":
        raise BadImageError("floating-point pixels of unknown range; save it with 8 or 16 bits")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def thread_map(
    work: Callable[[int], _Result], count: int, workers: int | None = None
) -> Generator[_Result, None, None]:
    """Yield ``work(0)``, ``work(1)``, …, computed ahead by threads.

    Close the iterator (:func:`contextlib.closing`) if its user may fail: work that has not started
    is then canceled.

    Args:
        work: The function; Pillow and hashlib let other threads run.
        count: How often to call it.
        workers: The number of threads; that of the processors if not given.
    """
    workers = workers or joblib.cpu_count()
    waiting: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="layline")
    try:
        for index in range(count):
            waiting.append(pool.submit(work, index))
            if len(waiting) == 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
