r"""Copies of images: the same picture again, perhaps resized, compressed anew or mirrored.

The perceptual hash of a picture g of 64 × 64 greys is the signs of its lowest cosine coefficients,

.. math:: c_{uv} = \sum_{y,x} g_{yx}\,\cos\frac{\pi u(2y+1)}{128}\,\cos\frac{\pi v(2x+1)}{128},
   \qquad u, v < 16

Mirroring a picture changes the sign of :math:`c_{uv}` for odd v and nothing else, so the hash of
the mirror image follows from the hash.
"""

import numpy as np

from layline.data.base import Pixels
from layline.data.images.decoding import Image

_FREQUENCIES = 16
_SIDE = 64  # pixels at a side that the coefficients are computed of
HASH_BYTES = _FREQUENCIES**2 // 8
_COSINES = np.cos(
    np.pi * np.arange(_FREQUENCIES)[:, None] * (2 * np.arange(_SIDE) + 1) / (2 * _SIDE)
)
# what mirroring changes: the bits of odd horizontal frequencies
_MIRROR = np.packbits(np.tile(np.arange(_FREQUENCIES) % 2 == 1, _FREQUENCIES))
_ROUNDING = 1e-3  # a coefficient that is zero but for rounding must not depend on the machine


def picture_hash(pixels: Pixels) -> bytes:
    """Hash an image such that the hashes of copies differ in few bits."""
    greys = Image.fromarray(pixels).convert("L")
    small = greys.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS, reducing_gap=3.0)
    coefficients = _COSINES @ np.asarray(small, dtype=np.float64) @ _COSINES.T
    return np.packbits(coefficients > _ROUNDING).tobytes()
