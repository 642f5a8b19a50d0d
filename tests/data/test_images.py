import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from PIL import Image

from layline.data.decoding import BadImageError
from layline.data.images import IMAGE_SUFFIXES, ImageArrays, ImageFiles, list_images


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
    code += "import layline.data.images"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    message = b"ImportError: reading images needs PIL: pip install layline[images]"
    assert message in result.stderr


def test_images_are_listed_in_natural_order_without_what_is_not_one(tmp_path):
    wanted = ["2/a.PNG", "2/b9.jpg", "2/b10.jpg", "10/x.jpeg", "A.tiff", "b.webp"]
    clutter = [
        *("notes.txt", "Thumbs.db", ".DS_Store", ".hidden.jpg", "2/._b9.jpg", "jpg"),
        *("__MACOSX/2/b9.jpg", ".ipynb_checkpoints/b.jpg", "2/@eaDir/b9.jpg", "models.pt"),
    ]
    for name in wanted[::-1] + clutter:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_images(tmp_path) == [tmp_path / name for name in wanted]
    assert {Path(name).suffix.lower() for name in wanted} <= IMAGE_SUFFIXES


def test_links_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.png").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    (tmp_path / "real" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "lost.png").symlink_to(tmp_path / "nowhere")
    names = [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path)]
    assert names == ["link/a.png", "lost.png", "real/a.png"]


def test_a_folder_that_is_none_is_named(tmp_path):
    for folder in (tmp_path / "none", tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(FileNotFoundError, match=f"folder must be .* got {folder}"):
            list_images(folder)
