import io
import threading
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from layline.data.images.decoding import decode
from layline.data.images.pillow import BadImageError, why_bad


def noise(height=40, width=60, seed=0):
    shape = (height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def saved(image, image_format, **options):
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file


@pytest.mark.parametrize("pixels", [59, 30, 29])  # Pillow warns of 60, then refuses
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_an_image_that_is_too_large_is_refused_in_any_format(monkeypatch, image_format, pixels):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the user does about warnings changes nothing
        with pytest.raises(
            BadImageError, match=r"too large: (10×6 pixels,|its pixels are) more than .*e-05 mill"
        ):
            decode(saved(noise(6, 10), image_format))
    assert pixels == Image.MAX_IMAGE_PIXELS


def test_what_pillow_warns_of_is_not_passed_on(monkeypatch):
    real_open = Image.open

    def grumbling(*args, **kwargs):
        code = "import warnings; warnings.warn('something odd')"
        exec(compile(code, "PIL/odd.py", "exec"), {"__name__": "PIL.odd"})
        return real_open(*args, **kwargs)

    monkeypatch.setattr(Image, "open", grumbling)
    assert_array_equal(decode(saved(noise(), "PNG")), noise())


def test_threads_leave_the_filters_of_warnings_as_they_were():
    before = list(warnings.filters)
    data = saved(noise(200, 200), "JPEG").getvalue()

    def often():
        for _ in range(20):
            decode(io.BytesIO(data))

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before


def test_a_size_that_is_only_found_while_loading_is_too_large_as_well():
    error = Image.DecompressionBombError("Image size exceeds limit")
    assert why_bad(error) == "too large: its pixels are more than 89.5 million"
