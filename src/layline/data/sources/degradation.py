"""How a photograph loses quality: by blur, by noise and by compression, in this order.

A strength of 0 is none (hardly any compression), one of 1 is as bad as a level's mean ever is.
"""

import io

import numpy as np

from layline.data.base import Pixels

_BLUR = 3.0  # standard deviation in pixels at strength 1
_NOISE = 70.0  # standard deviation in grey levels at strength 1
_FINEST, _LOSS, _COARSEST = (
    95,
    80,
    5,
)  # JPEG quality: at strength 0, what 1 takes from it, the least


def degrade(
    pixels: Pixels, blur: float, noise: float, compression: float, rng: np.random.Generator
) -> Pixels:
    """Blur an image, add noise and compress it.

    Args:
        pixels: The image.
        blur: Strength of the blur, Gaussian.
        noise: Strength of the noise, Gaussian, of each pixel and colour by itself.
        compression: Strength of the JPEG compression.
        rng: Draws the noise.
    """
    from PIL import Image, ImageFilter

    image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(_BLUR * blur))
    noisy = np.asarray(image) + rng.normal(0.0, _NOISE * noise, pixels.shape)
    stored = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).round().astype(np.uint8)).save(
        stored,
        "JPEG",
        quality=max(_COARSEST, round(_FINEST - _LOSS * compression)),
        # said here, so that no other default of a library changes the pixels
        subsampling="4:2:0",
        optimize=False,
        progressive=False,
    )
    return np.asarray(Image.open(stored).convert("RGB"))
