import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from PIL import Image

from layline.data.images.files import BadImageError, ImageArrays, ImageFiles, list_images


def noise(height=40, width=60, seed=0):
    shape = (height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_an_error_names_the_file_also_after_a_journey_between_processes(tmp_path):
    with pytest.raises(BadImageError) as caught:
        ImageFiles(tmp_path, ["a/b.jpg"]).load(0)
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == f"image must be readable, got {tmp_path / 'a' / 'b.jpg'}: missing"
    assert error.why == "missing"


@pytest.fixture
def files(tmp_path):
    for index in range(4):
        (tmp_path / "some").mkdir(exist_ok=True)
        Image.fromarray(noise(8 + index, 9, index)).save(tmp_path / "some" / f"{index}.png")
    return ImageFiles(tmp_path, [f"some/{index}.png" for index in range(4)])


def test_files_are_found_from_the_root_or_by_themselves(files):
    both = ImageFiles(files.root / "some", ["0.png", str(files.root / "some" / "1.png")])
    assert len(both) == 2
    for index in range(2):
        assert_array_equal(both.load(index), files.load(index))


def test_a_subset_keeps_names_and_images_together(files):
    arrays = ImageArrays(np.stack([noise(seed=index) for index in range(4)]), list("abcd"))
    for images in (files, arrays):
        part = images.subset(np.array([2, 0])).subset(np.array([1, 0, 0]))
        assert len(part) == 3
        assert part.names == tuple(images.names[index] for index in (0, 2, 2))
        for place, index in enumerate((0, 2, 2)):
            assert_array_equal(part.load(place), images.load(index))


def test_files_and_arrays_give_the_same_pixels(tmp_path):
    images = [noise(seed=index) for index in range(3)]
    for index, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
    files = ImageFiles(tmp_path, [path.name for path in list_images(tmp_path)])
    arrays = ImageArrays(np.stack(images))
    assert arrays.names == ("0", "1", "2")
    for index in range(3):
        assert_array_equal(files.load(index, at_least=5), arrays.load(index, at_least=5))


def test_grey_arrays_get_three_channels_and_the_array_is_not_shared():
    grey = noise()[None, :, :, 0]
    grey.flags.writeable = False
    pixels = ImageArrays(grey).load(0)
    assert pixels.shape == (40, 60, 3)
    pixels[:] = 0
    torch.from_numpy(ImageArrays(noise()[None]).load(0))
    for channel in range(3):
        assert_array_equal(ImageArrays(grey).load(0)[:, :, channel], grey[0])


@pytest.mark.parametrize(
    ("array", "names", "message"),
    [
        (noise()[None].astype(float), None, r"array must be uint8 .* got float64 and \(1, 40, 60"),
        (noise()[0], None, r"array must be .*\(n, height, width\) .* got uint8 and \(60, 3\)"),
        (noise()[None, :, :, :2], None, r"array must be .* got uint8 and \(1, 40, 60, 2\)"),
        (noise()[None], ["a", "b"], r"names must be as many as the images, 1, got 2"),
    ],
)
def test_an_array_that_holds_no_images_is_named(array, names, message):
    with pytest.raises(ValueError, match=message):
        ImageArrays(array, names)


def test_a_mapped_array_is_sent_by_its_path_and_a_slice_of_it_as_it_is(tmp_path):
    np.save(tmp_path / "images.npy", np.stack([noise(seed=index) for index in range(5)]))
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    for array, small in ((mapped, True), (mapped[1:], False), (mapped[:, ::2], False)):
        images = ImageArrays(array).subset(np.array([3, 1]))
        sent = pickle.dumps(images)
        assert (len(sent) < 2000) == small
        for index in range(2):
            assert_array_equal(pickle.loads(sent).load(index), images.load(index))
            torch.from_numpy(images.load(index))


def test_pillow_is_imported_with_the_images_only_and_its_absence_explained():
    code = "import sys, layline.data; assert 'PIL' not in sys.modules; sys.modules['PIL'] = None; "
    code += "import layline.data.images.files"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    message = b"ImportError: reading images needs PIL: pip install layline[images]"
    assert message in result.stderr
