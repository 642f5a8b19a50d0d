"""Pillow at the door: whatever is wrong with a file is one sentence, and no warning gets out."""

import errno
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from layline.data.images.quiet import Quiet
from layline.optional import require

if TYPE_CHECKING:
    import PIL
    from PIL import Image as Image
    from PIL import ImageFile
else:
    PIL = require("PIL", extra="images", needed_by="reading images")
    Image = require("PIL.Image", extra="images", needed_by="reading images")

PILLOW: str = PIL.__version__
# No others: among the rest of what Pillow opens is PostScript, which is a program to be run.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# Pillow warns of an image that is too large, and decodes it all the same: not here
_QUIET = Quiet(r"PIL\.", fatal=Image.DecompressionBombWarning)


class BadImageError(ValueError):
    """An image cannot be read.

    Args:
        why: What is wrong with it, in a few words.
        name: Its file.
    """

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(f"image must be readable, got {name}: {why}" if name else why)
        self.why = why


@contextmanager
def opened(file: Path | BinaryIO) -> Iterator["ImageFile.ImageFile"]:
    """Open an image. Any exception of the body is taken for a fault of the file."""
    with _QUIET:
        try:
            with open_regular(file) if isinstance(file, Path) else nullcontext(file) as stream:
                yield _identified(stream)
        except Exception as error:
            name = file if isinstance(file, Path) else getattr(file, "name", "")
            raise BadImageError(why_bad(error), str(name)) from error


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


def _identified(stream: BinaryIO) -> "ImageFile.ImageFile":
    try:
        return Image.open(stream, formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadImageError(_too_large(_sides(stream))) from error
    except PIL.UnidentifiedImageError as error:
        empty = stream.seekable() and stream.seek(0, 2) == 0
        raise BadImageError("empty file" if empty else "not an image") from error


def _too_large(sides: str) -> str:
    return f"too large: {sides}more than {(Image.MAX_IMAGE_PIXELS or 0) / 1e6:.3g} million"


def _sides(stream: BinaryIO) -> str:
    """Read the sides of an image that Pillow refused: its error only has their product."""
    try:
        stream.seek(0)
        prefix = stream.read(16)
        readers = (Image.OPEN[name] for name in FORMATS)
        factory = next(factory for factory, accept in readers if accept and accept(prefix))
        stream.seek(0)
        width, height = factory(stream, "").size
    except Exception:  # some readers refuse as well; then the limit must do
        return "its pixels are "
    return f"{width}×{height} pixels, "
