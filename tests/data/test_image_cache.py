"""The index of image files, damaged files, and cached pixels."""

import io
import os
import pickle
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data import image_cache as module
from layline.data import images as image_module
from layline.data.array_cache import ArrayCache
from layline.data.image_cache import (
    cache_images,
    check_files,
    describe_bad,
    find_bad,
    index_folder,
    index_images,
)
from layline.data.images import ImageFiles
from layline.data.preprocessing import shrink
from layline.utils.files import digest_file


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(5):
        small = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((50 + 7 * i, 64))
        image.save(tmp_path / "photos" / f"{i}.jpg")
    return ImageFiles(tmp_path / "photos", [f"{i}.jpg" for i in range(5)])


@pytest.fixture
def read_names(monkeypatch):
    """The names of the files that are read."""
    read, original = [], module._look
    monkeypatch.setattr(
        module, "_look", lambda path, hashes: (read.append(path.name), original(path, hashes))[1]
    )
    return read


def wait():
    time.sleep(0.01)  # the clock of the file system


def test_a_row_has_the_digest_and_the_upright_shape(files):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (800, 400)).save(files.root / "turned.jpg", exif=exif)
    index = index_images(ImageFiles(files.root, [*files.names, "turned.jpg"]))
    shapes = [(row.height, row.width) for row in index.rows]
    assert shapes == [*((64, 50 + 7 * i) for i in range(5)), (800, 400)]
    assert index.rows[0].digest.hex() == digest_file(files.path(0))
    assert find_bad(index) == {}


def test_only_new_and_changed_files_are_read(files, read_names):
    first = index_images(files)
    wait()
    assert sorted(read_names) == sorted(files.names)
    read_names.clear()
    assert index_images(files).digest() == first.digest()
    assert read_names == []
    Image.new("RGB", (9, 9)).save(files.path(2))
    os.utime(files.path(3))  # the bytes are the same
    shutil.copy(files.path(0), files.root / "new.jpg")
    wait()
    more = index_images(ImageFiles(files.root, [*files.names, "new.jpg"]))
    assert sorted(read_names) == ["2.jpg", "3.jpg", "new.jpg"]
    assert more.rows[2].height == more.rows[2].width == 9
    assert more.rows[5].digest == first.rows[0].digest
    read_names.clear()
    index_images(files.subset(np.array([4, 0])))  # another list of the same folder
    index_images(files, verify=True)
    assert len(read_names) == 5


def test_files_of_one_size_that_changed_places_are_noticed(files):
    first = index_images(files)
    paths = [files.path(i) for i in (0, 1)]
    status = paths[0].stat()
    paths[0].rename(files.root / "x")
    paths[1].rename(paths[0])
    (files.root / "x").rename(paths[1])
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    swapped = files.subset(np.array([1, 0, 2, 3, 4]))
    assert index_images(swapped).digest() == first.digest()


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_index_is_replaced(files, damage, read_names):
    first = index_images(files)
    (place,) = index_folder().glob("*.sqlite")
    if damage is None:
        place.write_bytes(place.read_bytes()[:3000])
    else:
        place.write_bytes(damage)
    assert index_images(files).digest() == first.digest()
    read_names.clear()
    assert index_images(files).digest() == first.digest()
    assert read_names == []


def test_an_unwritable_cache_is_only_a_warning(files, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE", str(files.path(0)))  # a file cannot be a folder
    with pytest.warns(UserWarning, match="could not be written"):
        assert len(index_images(files).rows) == 5


def damaged(tmp_path):
    good = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(good, "JPEG")
    contents = {
        "empty.jpg": b"",
        "text.png": b"not an image at all",
        "cut.jpg": good.getvalue()[:300],
        "good.jpg": good.getvalue(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.png").mkdir()
    return ImageFiles(tmp_path, [*contents, "folder.png", "absent.png"])


@pytest.mark.parametrize("indexed", [True, False])
def test_every_fault_of_a_file_is_named(tmp_path, indexed):
    images = damaged(tmp_path)
    if indexed:
        images = index_images(images)
    why = {images.names[i]: each for i, each in find_bad(images).items()}
    assert why["empty.jpg"] == "empty file"
    assert why["text.png"] == "not an image"
    assert why["cut.jpg"].startswith("truncated or damaged")
    assert "directory" in why["folder.png"]
    assert why["absent.png"] == "missing"
    assert "good.jpg" not in why


def test_damaged_images_are_refused_or_dropped(tmp_path):
    images = damaged(tmp_path)
    dataset = data.Dataset(images, np.arange(len(images)) % 2, ("a", "b"))
    dataset = data.index_files(dataset)
    with pytest.raises(ValueError, match=r"(?s)images cannot be read:\n  empty.jpg: empty file.*"):
        check_files(dataset)
    kept = check_files(dataset, skip_bad=True)
    assert kept.inputs.names == ["good.jpg"]
    assert kept.notes[-1].startswith("Not used:")
    assert check_files(kept) is kept
    many = dict.fromkeys(range(30), "missing")
    assert describe_bad([f"{i}.jpg" for i in range(30)], many).count("\n") == 21


def test_a_file_that_could_not_be_read_is_tried_again(files, monkeypatch):
    def fail(file, at_least):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(module, "examine", fail)
        assert len(find_bad(index_images(files))) == 5
    assert find_bad(index_images(files)) == {}


def test_content_has_the_same_digest_wherever_it_is(tmp_path):
    for place in ("one", "other"):
        for name in ("low", "high"):
            (tmp_path / place / name).mkdir(parents=True)
            for i in range(3):
                shade = (i, 100 * (name == "low"), 0)
                Image.new("RGB", (4, 4), shade).save(tmp_path / place / name / f"{i}.png")
    digests = {data.content_digest("folder", tmp_path / place) for place in ("one", "other")}
    assert len(digests) == 1
    Image.new("RGB", (4, 4), "blue").save(tmp_path / "one" / "low" / "0.png")
    assert data.content_digest("folder", tmp_path / "one") not in digests
    (tmp_path / "t.csv").write_text("a,label\n1,low\n2,high\n")
    before = data.content_digest("table", tmp_path / "t.csv")
    assert data.content_digest("table", tmp_path / "t.csv") == before
    wait()
    (tmp_path / "t.csv").write_text("a,label\n1,low\n3,high\n")
    assert data.content_digest("table", tmp_path / "t.csv") != before
    assert data.content_digest("photo-quality", None) is None


@pytest.fixture
def decoded(monkeypatch):
    """The number of images that are decoded."""
    counts, original = [], image_module.decode
    monkeypatch.setattr(image_module, "decode", lambda *a: (counts.append(1), original(*a))[1])
    return counts


@pytest.mark.parametrize("at_least", [24, 1000])
def test_the_cache_contains_the_decoded_pixels(files, at_least):
    cached = cache_images(files, at_least)
    for i in (3, 0, 4):
        pixels = cached.load(i, at_least)
        np.testing.assert_array_equal(pixels, shrink(files.load(i, at_least), at_least))
        pixels[:] = 0  # a copy
    keep = np.array([4, 1])
    part = cached.subset(keep)
    assert list(part.names) == ["4.jpg", "1.jpg"]
    np.testing.assert_array_equal(part.load(0, at_least), cached.load(4, at_least))
    assert part.digest() == files.subset(keep).digest()


def test_the_second_time_nothing_is_decoded_also_for_moved_data(files, decoded, tmp_path):
    counts = []
    cache_images(files, 24, counts.append)
    assert counts == [1, 2, 3, 4, 5]
    decoded.clear()
    cache_images(files, 24, pytest.fail)
    files.root.rename(tmp_path / "moved")
    cache_images(ImageFiles(tmp_path / "moved", files.names), 24)
    assert decoded == []
    cache_images(ImageFiles(tmp_path / "moved", files.names), 32)
    cache_images(ImageFiles(tmp_path / "moved", files.names[:4]), 24)
    assert len(decoded) == 9


def test_other_processes_open_the_cache_themselves(files):
    cached = cache_images(files, 24)
    sent = pickle.dumps(cached)
    assert len(sent) < 3000
    np.testing.assert_array_equal(pickle.loads(sent).load(2, 24), cached.load(2, 24))
    ArrayCache().remove(cached.key)
    with pytest.raises(ValueError, match="was removed while it was in use"):
        pickle.loads(sent).load(2)


def test_a_killed_process_continues_where_it_stopped(files, monkeypatch, decoded):
    monkeypatch.setattr(module, "_COMMIT", 2)

    def stop(done):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache_images(files, 1000, stop)
    decoded.clear()
    cached = cache_images(files, 1000)
    assert len(decoded) == 3
    for i in range(5):
        np.testing.assert_array_equal(cached.load(i), files.load(i))


_TRUNCATE = """
import os, sys
from pathlib import Path
from layline.data.array_cache import ArrayCache
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles
root = Path(sys.argv[1])
cached = cache_images(ImageFiles(root, sorted(os.listdir(root))), 1000)
os.truncate(ArrayCache().folder / f"{cached.key}.npy", 200)
try:
    cached.load(4)
except ValueError as error:
    print(error)
"""


def test_a_cache_file_truncated_while_in_use_is_an_error_and_no_crash(files):
    command = [sys.executable, "-c", _TRUNCATE, str(files.root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "truncated while it was in use" in result.stdout
    assert cache_images(files, 1000).load(4).shape == (64, 78, 3)  # it is written again
