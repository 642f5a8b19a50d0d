"""Images: decoding, listing, and inputs: files, arrays and what users pass."""

import io
import pickle
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image, ImageOps
from pillow_heif.constants import HeifCompressionFormat
from pillow_heif.misc import CtxEncode

from layline.data.detect import describe_skipped, list_images
from layline.data.image_cache import find_bad
from layline.data.images import (
    BadImageError,
    ImageArrays,
    ImageFiles,
    as_images,
    decode,
    examine,
    thread_map,
)

SIDES = st.integers(1, 90)


def noise(seed=0, height=40, width=60):
    shape = (height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(height, width):
    ramps = np.linspace(0, 255, height)[:, None], np.linspace(0, 255, width)[None]
    return np.stack(np.broadcast_arrays(*ramps, 128), axis=2).astype(np.uint8)


def saved(image, image_format, **options):
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("image_format", ["PNG", "BMP", "PPM", "TIFF"])
def test_what_a_lossless_format_keeps_comes_back(image_format, tmp_path):
    path = tmp_path / "image.of.no.ending"
    path.write_bytes(saved(noise(), image_format).getvalue())
    for file in (path, io.BytesIO(path.read_bytes())):
        pixels = decode(file)
        assert_array_equal(pixels, noise())
        assert pixels.flags.c_contiguous
        torch.from_numpy(pixels)  # would warn of an array that cannot be written to


@given(SIDES, SIDES, st.integers(1, 100), st.booleans())
def test_a_jpeg_never_gets_smaller_than_wanted(height, width, at_least, progressive):
    file = saved(smooth(height, width), "JPEG", progressive=progressive)
    pixels = decode(file, at_least)
    scale = max(s for s in (1, 2, 4, 8) if s == 1 or min(height, width) // s >= at_least)
    assert pixels.shape == (-(-height // scale), -(-width // scale), 3)
    assert min(pixels.shape[:2]) >= min(at_least, height, width)
    assert_array_equal(pixels, decode(file, at_least))
    examined, shape = examine(file, at_least)
    assert_array_equal(examined, pixels)
    assert shape == (height, width)


@pytest.mark.parametrize("at_least", [None, 10])
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_images_are_turned_as_the_camera_was_held(image_format, at_least):
    options = {"lossless": True} if image_format == "WEBP" else {}
    for orientation in range(10):  # 0 and 9 mean nothing
        file = saved(smooth(40, 60), image_format, exif=turned(orientation), **options)
        with Image.open(file) as image:
            if at_least:
                image.draft(None, (at_least, at_least))
            image.load()
            expected = np.asarray(ImageOps.exif_transpose(image))
        shorter = 10 if at_least and image_format == "JPEG" else 40
        assert min(expected.shape[:2]) == shorter
        assert_array_equal(decode(file, at_least), expected)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF", "ignore:Truncated")
def test_an_image_is_not_bad_for_a_damaged_description():
    file = saved(smooth(9, 9), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01\x12" * 20)
    assert_array_equal(decode(file), decode(saved(smooth(9, 9), "JPEG")))


def palette(transparency=None):
    image = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4) // 4, "P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120])
    if transparency is not None:
        image.info["transparency"] = transparency
    return image


def solid(mode, value):
    return Image.new(mode, (3, 2), value)


@pytest.mark.parametrize(
    ("image", "image_format", "corner"),
    [
        (solid("L", 77), "PNG", [77, 77, 77]),
        (solid("LA", (77, 255)), "PNG", [77, 77, 77]),
        (solid("LA", (77, 0)), "PNG", [255, 255, 255]),
        (solid("RGBA", (10, 20, 30, 255)), "PNG", [10, 20, 30]),
        (solid("RGBA", (10, 20, 30, 0)), "WEBP", [255, 255, 255]),
        (solid("RGBA", (0, 100, 200, 51)), "PNG", [204, 224, 244]),  # a fifth of it, on white
        (palette(), "PNG", [10, 20, 30]),
        (palette(), "GIF", [10, 20, 30]),
        (palette(b"\x00\xff\xff\xff"), "PNG", [255, 255, 255]),
        (palette(0), "GIF", [255, 255, 255]),
        (solid("CMYK", (0, 0, 0, 0)), "TIFF", [255, 255, 255]),
        (solid("CMYK", (0, 255, 255, 0)), "JPEG", [255, 0, 0]),
        (solid("I;16", 257 * 77), "TIFF", [77, 77, 77]),
        (solid("I", 257 * 77), "TIFF", [77, 77, 77]),
    ],
)
def test_every_mode_becomes_rgb(image, image_format, corner):
    pixels = decode(saved(image, image_format))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (image.height, image.width, 3)
    assert_allclose(pixels[0, 0], corner, atol=image_format == "JPEG")


def test_sixteen_bits_are_rounded_to_eight():
    grey = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    pixels = decode(saved(grey, "PNG"))
    assert_array_equal(pixels[:, :, 0], np.round(grey / 257))
    assert_array_equal(pixels[:, :, 0], pixels[:, :, 2])


@pytest.mark.parametrize("image", [solid("I", 70000), solid("I", -1), solid("F", 0.5)])
def test_pixels_without_a_known_range_are_refused(image):
    with pytest.raises(BadImageError, match="unknown range; save it with 8 or 16 bits"):
        decode(saved(image, "TIFF"))


@pytest.mark.parametrize("image_format", ["GIF", "TIFF", "PNG", "WEBP", "MPO"])
def test_the_first_frame_is_taken(image_format):
    frames = [solid("RGB", colour) for colour in ("white", "black")]
    file = saved(frames[0], image_format, save_all=True, append_images=frames[1:])
    assert_array_equal(decode(file, at_least=1), np.full(decode(file, at_least=1).shape, 255))


@pytest.mark.parametrize("pixels", [59, 30, 29])  # Pillow warns of 60, then refuses
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_an_image_that_is_too_large_is_refused_in_any_format(monkeypatch, image_format, pixels):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
    with pytest.raises(BadImageError, match=r"too large: (10×6 pixels|more than .*e-05 million)"):
        decode(saved(noise(0, 6, 10), image_format))
    monkeypatch.undo()
    with pytest.raises(BadImageError, match=r"^too large: 10×6 pixels$"):
        decode(saved(noise(0, 6, 10), image_format), most_pixels=pixels)


def heic(pixels, orientation=1):
    """What a phone writes: the image as the camera was held, and how it has to be turned."""
    file = io.BytesIO()
    encoder = CtxEncode(HeifCompressionFormat.HEVC, quality=100)
    encoder.add_image(
        *((pixels.shape[1], pixels.shape[0]), "RGB", pixels.tobytes()),
        primary=True,
        image_orientation=orientation,
        exif=turned(orientation).tobytes(),
    )
    encoder.save(file)
    return file


@pytest.mark.parametrize("at_least", [None, 10])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_what_phones_write_is_upright(orientation, at_least):
    file = heic(smooth(40, 60), orientation)
    expected = decode(saved(smooth(40, 60), "PNG", exif=turned(orientation)))
    found = decode(file, at_least)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 3
    assert examine(file, 10)[1] == expected.shape[:2]
    assert "HEIF" not in Image.OPEN  # nothing is changed for other users of Pillow


def test_heic_that_cannot_be_read_is_explained(monkeypatch):
    content = heic(smooth(40, 60)).getvalue()
    for cut in (16, 200, len(content) - 5):
        with pytest.raises(BadImageError, match="truncated or damaged"):
            decode(io.BytesIO(content[:cut]))
    with pytest.raises(BadImageError, match="too large: 60×40 pixels"):
        decode(io.BytesIO(content), most_pixels=2399)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(BadImageError, match=r"^HEIC; to read it, pip install layline\[heic\]$"):
        decode(io.BytesIO(content))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (bytes(128) + b"DICM" + bytes(50), "not an image"),
        (b"II*\0" + bytes(50), "damaged or unsupported TIFF; save it with 8"),
        (b"\0\0\0\x18ftypmp42" + bytes(50), "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "not an image"),
    ],
)
def test_what_is_not_read_is_called_by_its_name(content, why):
    with pytest.raises(BadImageError, match=why):
        decode(io.BytesIO(content))


@given(st.binary(max_size=200))
def test_random_bytes_are_not_an_image(content):
    with pytest.raises(BadImageError):
        decode(io.BytesIO(content))


def test_images_are_listed_in_natural_order_without_other_files(tmp_path):
    names = ["b/2.png", "b/10.png", "B/1.jpg", "a.PNG", "notes.txt", ".hidden.png", "x.heic1"]
    for name in [*names, "__MACOSX/a.png"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "circle").symlink_to(tmp_path)
    listed, skipped = list_images(tmp_path)
    assert [name for name in listed if "circle" not in name] == [
        "a.PNG",
        *sorted(["b/2.png", "b/10.png", "B/1.jpg"], key=lambda n: (n != "B/1.jpg", len(n))),
    ]
    assert not any("circle/b/circle" in name for name in listed)
    assert "notes.txt" in skipped
    assert "1 .dcm" in describe_skipped(["x.dcm"])
    assert "PNG or TIFF" in describe_skipped(["x.dcm"])
    with pytest.raises(FileNotFoundError, match="absent"):
        list_images(tmp_path / "absent")


def test_arrays_and_files_load_the_same_pixels_and_subsets(tmp_path):
    for i in range(5):
        Image.fromarray(noise(i, 20 + i, 30)).save(tmp_path / f"{i}.png")
    files = ImageFiles(tmp_path, [f"{i}.png" for i in range(5)])
    pixels = np.stack([files.load(i)[:20] for i in range(5)])
    arrays = ImageArrays(pixels, files.names)
    keep = np.array([3, 0])
    for images in (arrays.subset(keep), files.subset(keep)):
        assert list(images.names) == ["3.png", "0.png"]
        assert_array_equal(images.load(1)[:20], pixels[0])
    gray = ImageArrays(pixels[..., 0])
    assert gray.load(0).shape == (20, 30, 3)
    assert gray.names[:2] == ["0", "1"]
    assert arrays.digest() != arrays.subset(keep).digest()
    with pytest.raises(ValueError, match="float64"):
        ImageArrays(np.zeros((1, 4, 4)))


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_results_of_threads_come_in_order_and_an_error_stops_them(error):
    assert list(thread_map(lambda i: i**2, 50, workers=3)) == [i**2 for i in range(50)]
    before, done = threading.active_count(), []

    def work(index):
        done.append(index)
        if index == 3:
            raise error

    with pytest.raises(error):
        list(thread_map(work, 10_000, workers=2))
    assert len(done) < 100
    assert threading.active_count() == before


@pytest.fixture
def files(tmp_path):
    for name in ("10.png", "9.png", "sub/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(noise(len(name))).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_paths_folders_arrays_and_pillow_images_may_be_mixed(files):
    found = as_images(files)
    assert found.names == tuple(str(files / name) for name in ("9.png", "10.png", "sub/1.png"))
    assert [path.name for path in found.skipped] == ["notes.txt"]
    found = as_images([files / "9.png", files / "sub", noise(1), Image.fromarray(noise(2))])
    assert found.names == (str(files / "9.png"), str(files / "sub/1.png"), "2", "3")
    for index, seed in enumerate((5, 9, 1, 2)):
        assert_array_equal(found.load(index), noise(seed))
    assert found.subset(np.array([3, 0])).names == ("3", str(files / "9.png"))
    assert len(as_images([])) == 0
    paths = [str(files / "9.png"), str(files / "10.png")]
    strings = np.array(paths, dtype=np.dtypes.StringDType())
    for listed in (np.array(paths), strings, pd.Series(paths, index=[7, 3])):
        assert as_images(listed).names == tuple(paths)


def test_one_array_is_one_image_and_four_dimensions_are_many():
    assert len(as_images(noise())) == 1
    many = as_images(torch.from_numpy(np.stack([noise(0), noise(1)])))
    assert (len(many), many.decoded) == (2, True)
    assert_array_equal(many.load(1), noise(1))
    gray = as_images([noise()[..., 0], Image.fromarray(noise()).convert("LA")])
    assert [gray.load(i).shape for i in range(2)] == [(40, 60, 3)] * 2


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (noise().astype(float), r"got float64 of shape \(40, 60, 3\)"),
        ([noise(), noise().transpose(2, 0, 1)], r"got uint8 of shape \(3, 40, 60\) at place 1"),
        (np.zeros((0, 5, 3), np.uint8), r"got uint8 of shape \(0, 5, 3\)"),
        (None, r"got object of shape \(\)"),
        ([[1, 2], [3, 4]], r"got int64 of shape \(2,\) at place 0"),
    ],
)
def test_what_is_no_image_is_refused_with_its_type_and_shape(samples, message):
    with pytest.raises(ValueError, match="Images must be uint8 arrays.*" + message):
        as_images(samples)


def test_a_missing_path_and_a_folder_without_images_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.png does not exist"):
        as_images(tmp_path / "no.png")
    (tmp_path / "a.dcm").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has no images\. .*1 \.dcm\. Save"):
        as_images(tmp_path)


def test_the_content_of_a_file_is_an_image():
    content = saved(noise(), "PNG").getvalue()
    many = as_images([content, noise(1), content])
    assert (many.names, many.decoded) == (("0", "1", "2"), False)
    for index, seed in enumerate((0, 1, 0)):
        assert_array_equal(many.load(index), noise(seed))
    assert_array_equal(pickle.loads(pickle.dumps(many)).load(2), noise(0))


def test_damaged_files_and_bytes_are_named_with_the_reason(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    found = as_images(
        [
            saved(noise(), "PNG").getvalue(),
            tmp_path / "empty.png",
            saved(noise(), "PNG").getvalue()[:60],
            b"text",
        ]
    )
    bad = find_bad(found)
    assert (bad[1], bad[2][:9], bad[3]) == ("empty file", "truncated", "not an image")
    with pytest.raises(ValueError, match=r"empty\.png cannot be read: empty file"):
        found.load(1)
    with pytest.raises(ValueError, match="The image 2 cannot be read: truncated or damaged"):
        found.load(2)
