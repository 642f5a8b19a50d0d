"""From an image file to pixels: upright, RGB, eight bits.

What is transparent is put on white, as a viewer shows it. Sixteen bits are divided by 257, which
takes the whole range to the whole range. Of several frames or pages the first is taken. Colour
profiles are not applied.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from layline.arguments import check_integer
from layline.data.base import Pixels
from layline.data.images.pillow import BadImageError, Image, opened

if TYPE_CHECKING:
    from PIL import ImageFile

_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def check_size(at_least: int | None) -> None:
    """Refuse a least size that is none."""
    if at_least is not None:
        check_integer("at_least", at_least, least=1, why="None decodes all of the image")


def decode(file: Path | BinaryIO, at_least: int | None = None) -> Pixels:
    """Decode an image: (height, width, 3), the caller's own to write to.

    Args:
        file: Its path, or the open file.
        at_least: A JPEG is decoded at a half, a quarter or an eighth of its size if its shorter
            side keeps this many pixels; None decodes all of it.

    Raises:
        BadImageError: It cannot be read.
    """
    check_size(at_least)
    with opened(file) as image:
        _shrink(image, at_least)
        return to_pixels(image)


def to_pixels(image: "Image.Image") -> Pixels:
    """Turn an image of Pillow into RGB, upright: (height, width, 3)."""
    image.load()
    pixels = _rgb(image)
    turn = _TURNS.get(_orientation(image))
    return np.array(pixels if turn is None else pixels.transpose(turn))


def decoded_bytes(file: Path | BinaryIO, at_least: int | None = None) -> int:
    """Count the bytes that :func:`decode` will give, from the head of the file alone."""
    with opened(file) as image:
        _shrink(image, at_least)
        return 3 * image.width * image.height


def _shrink(image: "ImageFile.ImageFile", at_least: int | None) -> None:
    if at_least is not None:
        # a square, so that it does not matter whether the image will be turned
        image.draft(None, (at_least, at_least))


def _orientation(image: "Image.Image") -> Any:
    """Read how the camera was held, after loading: by then Pillow has turned a TIFF itself."""
    try:
        return image.getexif().get(_ORIENTATION)
    except Exception:  # of any kind; an image is not bad for what is said about it
        return None


def _rgb(image: "Image.Image") -> "Image.Image":
    if image.mode == "I" or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode == "F":
        raise BadImageError("floating-point pixels have no known range: save it with 8 or 16 bits")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")  # spares a copy


def _eight_bits(grey: NDArray[Any]) -> Pixels:
    if grey.min() < 0 or grey.max() > 65535:
        raise BadImageError("32-bit pixels have no known range: save it with 8 or 16 bits")
    return ((grey.astype(np.uint32) + 128) // 257).astype(np.uint8)
