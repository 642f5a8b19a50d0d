"""The index of files: what it contains, when files are read again, and which images are bad."""

import io
import os
import shutil
import time

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data import image_cache as module
from layline.data.detect import list_images
from layline.data.image_cache import (
    check_files,
    describe_bad,
    find_bad,
    index_folder,
    index_images,
)
from layline.data.images import ImageFiles
from layline.utils.files import digest_file


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(5):
        pixels = rng.integers(0, 256, (20 + i, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
    return ImageFiles(tmp_path / "photos", [f"{i}.png" for i in range(5)])


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
    assert shapes == [*((20 + i, 30) for i in range(5)), (800, 400)]
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
    shutil.copy(files.path(0), files.root / "new.png")
    wait()
    more = index_images(ImageFiles(files.root, [*files.names, "new.png"]))
    assert sorted(read_names) == ["2.png", "3.png", "new.png"]
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


def test_names_need_not_be_unicode(tmp_path):
    name = os.fsdecode(b"gr\xfc\xdf.png")
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    try:
        (tmp_path / "a.png").rename(tmp_path / name)
    except OSError:
        pytest.skip("the file system allows Unicode only")
    assert find_bad(index_images(ImageFiles(tmp_path, [name]))) == {}
    assert list_images(tmp_path)[0] == [name]


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
