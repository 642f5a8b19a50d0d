"""From an image file to pixels: upright, RGB, eight bits.

What is transparent is put on white, as a viewer shows it. Sixteen bits are divided by 257, which
takes the whole range to the whole range. Of several frames or pages the first is taken. Colour
profiles are not applied. Whatever is wrong with a file is one :class:`BadImageError`, and no
warning of Pillow reaches the user.
"""

import errno
import re
import stat
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import joblib
import numpy as np

from layline.data.dataset import Pixels
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import check_integer

if TYPE_CHECKING:
    import PIL
    from PIL import Image as Image
    from PIL import ImageFile
    from PIL import features as _pillow_features
else:
    PIL = require("PIL", extra="images", needed_by="reading images")
    Image = require("PIL.Image", extra="images", needed_by="reading images")
    _pillow_features = require("PIL.features", extra="images", needed_by="reading images")

PILLOW: str = PIL.__version__
READS_AVIF = "avif" in _pillow_features.modules and bool(_pillow_features.check("avif"))
# No others: among the rest of what Pillow opens is PostScript, which is a program to be run.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", *(["AVIF"] if READS_AVIF else []))
# what a HEIC file says of itself in its bytes 8 to 12
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE"}
_TURNS |= {6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}
_LYING = (5, 6, 7, 8)  # height and width change places

_Result = TypeVar("_Result")


class BadImageError(UserError):
    """An image cannot be read; ``why`` says it in a few words."""

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(f"image must be readable, got {name}: {why}" if name else why)
        self.why = why


def check_size(at_least: int | None) -> None:
    """Refuse a least size that is none."""
    if at_least is not None:
        check_integer("at_least", at_least, least=1, why="None decodes all of the image")


def decode(
    file: Path | BinaryIO, at_least: int | None = None, most_pixels: int | None = None
) -> Pixels:
    """Decode an image: (height, width, 3), the caller's own to write to.

    Args:
        file: Its path, or the open file.
        at_least: A JPEG is decoded at a half, a quarter or an eighth of its size if its shorter
            side keeps this many pixels; None decodes all of it.
        most_pixels: An image that says it has more is refused before it is decoded; Pillow has a
            limit of its own.

    Raises:
        BadImageError: It cannot be read.
    """
    check_size(at_least)
    with _open_image(file, at_least, most_pixels) as image:
        return to_pixels(image)


def examine(file: Path | BinaryIO, at_least: int) -> tuple[Pixels, tuple[int, int]]:
    """Decode an image as :func:`decode` does, and tell the height and width of the whole of it."""
    check_size(at_least)
    with _open_image(file, None) as image:
        width, height = image.size
        _draft(image, at_least)
        is_whole = image.size == (width, height)
        pixels = to_pixels(image)
        if is_whole:
            return pixels, (pixels.shape[0], pixels.shape[1])
        turned = _orientation(image) in _LYING
        return pixels, (width, height) if turned else (height, width)


def to_pixels(image: "Image.Image") -> Pixels:
    """Turn an image of Pillow into RGB, upright: (height, width, 3)."""
    image.load()
    pixels = _rgb(image)
    turn = _TURNS.get(_orientation(image))
    return np.array(pixels if turn is None else pixels.transpose(Image.Transpose[turn]))


def open_regular(path: Path) -> BufferedReader:
    """Open a file, but neither a pipe nor a device, which may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadImageError("not a regular file")
    return path.open("rb")


def why_bad(error: Exception) -> str:
    """Say in a few words why an image cannot be read."""
    match error:
        case BadImageError():
            return error.why
        case FileNotFoundError() | NotADirectoryError():
            return "missing"
        case IsADirectoryError():
            return "a directory, not a file"
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            return _too_large("its pixels are ")
        case MemoryError():
            return "cannot be read: out of memory"
        # bad offsets in a file make invalid seeks: that is damage, not the disk's fault
        case OSError(errno=int() as code, strerror=str() as text) if code != errno.EINVAL:
            return f"cannot be read: {text.lower()}"
    text = re.sub(r"<.* at 0x\w+>", "the file", str(error)).partition("\n")[0][:120]
    return f"truncated or damaged: {text or type(error).__name__}"


class _PillowWarnings:
    """Ignores Pillow's warnings, except that of an image that is too large: it becomes an error.

    The filters of warnings belong to the process: threads that each set and restored them would
    restore one another's. So the first thread in sets them, and the last one out restores them.
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
    file: Path | BinaryIO, at_least: int | None, most_pixels: int | None = None
) -> Iterator["ImageFile.ImageFile"]:
    """Open an image, to be decoded at that size. An exception of the body is the file's fault."""
    with _WARNINGS:
        try:
            with open_regular(file) if isinstance(file, Path) else nullcontext(file) as stream:
                image = _identified(stream)
                if most_pixels is not None and image.width * image.height > most_pixels:
                    sides = f"{image.width}×{image.height} pixels, "
                    raise BadImageError(_too_large(sides, most_pixels))
                if at_least is not None:
                    _draft(image, at_least)
                yield image
        except Exception as error:
            path = file.name if isinstance(file, BufferedReader) else file
            name = str(path) if isinstance(path, str | Path) else ""
            raise BadImageError(why_bad(error), name) from error


def _draft(image: "ImageFile.ImageFile", at_least: int) -> None:
    """Have a JPEG decoded at a fraction of its size."""
    if image.format != "HEIF":  # of which it would take a thumbnail that is stored beside it
        # a square, so that it does not matter whether the image will be turned
        image.draft(None, (at_least, at_least))


def _identified(stream: BinaryIO) -> "ImageFile.ImageFile":
    try:
        return Image.open(stream, formats=_FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadImageError(_too_large(_sides(stream))) from error
    except PIL.UnidentifiedImageError as error:
        if not stream.seekable():
            raise BadImageError("not an image") from error
        stream.seek(0)
        start = stream.read(132)
        stream.seek(0)
        if start[4:8] == b"ftyp" and start[8:12] in _HEIC_BRANDS:
            return _heic(stream)
        raise BadImageError(_why_unknown(start)) from error


def _heic(stream: BinaryIO) -> "ImageFile.ImageFile":
    """Open what phones write. It is turned when it is decoded, and says that it is upright."""
    if find_spec("pillow_heif") is None:
        raise BadImageError("HEIC: pip install layline[heic] reads it")
    from pillow_heif import HeifImageFile  # without registering it with Pillow for everyone

    try:
        image: ImageFile.ImageFile = HeifImageFile(stream)  # type: ignore[no-untyped-call]
    except SyntaxError as error:  # as Pillow's own readers say that they cannot
        raise BadImageError(f"truncated or damaged: {error}") from error
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
        raise BadImageError(_too_large(f"{image.width}×{image.height} pixels, "))
    return image


def _why_unknown(start: bytes) -> str:
    """Say of a file that is none of the formats what it is, by its first bytes."""
    if not start:
        return "empty file"
    if start[128:132] == b"DICM":
        return "DICOM: save it as PNG or TIFF"
    if start[:4] in (b"II*\0", b"MM\0*"):
        return "a damaged TIFF, or one of a kind that is not read: save it with 8 bits per channel"
    return "not an image"


def _too_large(sides: str, most: int | None = None) -> str:
    limit = (Image.MAX_IMAGE_PIXELS or 0) if most is None else most
    return f"too large: {sides}more than {limit / 1e6:.3g} million"


def _sides(stream: BinaryIO) -> str:
    """Read the sides of an image that Pillow refused: its error only has their product."""
    try:
        stream.seek(0)
        prefix = stream.read(16)
        readers = (Image.OPEN[name] for name in _FORMATS)
        factory = next(factory for factory, accept in readers if accept and accept(prefix))
        stream.seek(0)
        width, height = factory(stream, "").size
    except Exception:  # some readers refuse as well; then the limit must do
        return "its pixels are "
    return f"{width}×{height} pixels, "


def _orientation(image: "Image.Image") -> Any:
    """Read how the camera was held, after loading: by then Pillow has turned a TIFF itself."""
    try:
        return image.getexif().get(_ORIENTATION)
    except Exception:  # of any kind; an image is not bad for what is said about it
        return None


def _rgb(image: "Image.Image") -> "Image.Image":
    if image.mode == "I" or image.mode.startswith("I;16"):
        grey = np.asarray(image)
        if grey.min() < 0 or grey.max() > 65535:
            raise BadImageError("32-bit pixels have no known range: save it with 8 or 16 bits")
        eight_bits = ((grey.astype(np.uint32) + 128) // 257).astype(np.uint8)
        return Image.fromarray(eight_bits).convert("RGB")
    if image.mode == "F":
        raise BadImageError("floating-point pixels have no known range: save it with 8 or 16 bits")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")  # spares a copy


def thread_map(
    work: Callable[[int], _Result], count: int, workers: int | None = None
) -> Generator[_Result, None, None]:
    """Give ``work(0)``, ``work(1)``, …, computed ahead by some threads.

    Close the iterator (:func:`contextlib.closing`) where its user may fail or be interrupted: what
    has not been started then never is.

    Args:
        work: What to do; Pillow and hashlib let other threads run meanwhile.
        count: How often.
        workers: How many threads; as many as there are processors if not given.
    """
    workers = workers or joblib.cpu_count()
    waiting: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="layline")
    try:
        for index in range(count):
            waiting.append(pool.submit(work, index))
            if len(waiting) == 2 * workers:  # so that no thread runs out of work
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
