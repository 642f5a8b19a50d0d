"""What is known of image files."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from layline.data import file_digests
from layline.data.array_cache import cache_folder
from layline.data.copies import picture_hash
from layline.data.decoding import decode
from layline.data.images import ImageFiles, list_names
from layline.data.images import index as index_module
from layline.data.index import find_bad, index_file, index_images, known_root


@pytest.fixture
def looked(monkeypatch, tmp_path):
    """The files that were read, one after the other; every change of a file can be seen."""
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "_SETTLED", 0)
    read, look = [], index_module._look

    def counting(path, size):
        read.append(path.name)
        return look(path, size)

    monkeypatch.setattr(index_module, "_look", counting)
    return read


@pytest.fixture
def images(tmp_path):
    root = tmp_path / "images"
    rng = np.random.default_rng(0)
    for folder in ("a", "b"):
        (root / folder).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 256, (100 + number, 150, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{folder}{number}.jpg")
    return ImageFiles(root, list_names(root))


def rows(index):
    return index.digests.tolist(), index.hashes.tolist(), index.shapes.tolist(), index.faults


def test_a_row_says_what_the_file_holds(images, looked):
    (images.root / "b/b1.jpg").write_bytes(b"text")
    index = index_images(images)
    assert index.shapes[:, 0].tolist() == [100, 101, 102, 100, 0, 102]
    assert index.shapes[:, 1].tolist() == [150, 150, 150, 150, 0, 150]
    assert index.faults == {4: "not an image"}
    assert len(np.unique(index.digests, axis=0)) == 6
    pixels = decode(images.path(0), 64)
    assert index.hashes[0].tobytes() == picture_hash(pixels)
    assert (images.digest(), len(index)) == (index.digest(), 6)


def test_the_shape_is_that_of_the_image_as_it_is_seen(tmp_path, looked):
    for number, orientation in enumerate((1, 3, 6, 8)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (300, 200)).save(tmp_path / f"{number}.jpg", exif=exif)
    index = index_images(ImageFiles(tmp_path, [f"{number}.jpg" for number in range(4)]))
    assert index.shapes.tolist() == [[200, 300], [200, 300], [300, 200], [300, 200]]


def test_the_second_time_no_file_is_read(images, looked):
    counts = []
    first = index_images(images, counts.append)
    assert (sorted(looked), counts) == (
        ["a0.jpg", "a1.jpg", "a2.jpg", "b0.jpg", "b1.jpg", "b2.jpg"],
        [1, 2, 3, 4, 5, 6],
    )
    looked.clear()
    second = index_images(images, counts.append)
    assert (looked, len(counts)) == ([], 6)
    assert rows(second) == rows(first)
    assert rows(index_images(images, verify=True)) == rows(first)
    assert len(looked) == 6


def overwrite(root):
    Image.new("RGB", (9, 9)).save(root / "a/a1.jpg")


def change_in_place(root):
    """Another byte, the same size, and the time set back."""
    status = (root / "a/a1.jpg").stat()
    data = bytearray((root / "a/a1.jpg").read_bytes())
    data[-100] ^= 1
    (root / "a/a1.jpg").write_bytes(data)
    os.utime(root / "a/a1.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [overwrite, change_in_place])
def test_a_change_is_noticed(images, looked, change):
    before = index_images(images)
    change(images.root)
    looked.clear()
    after = index_images(images)
    assert looked == ["a1.jpg"]
    assert after.digest() != before.digest()


def test_files_of_one_size_and_time_that_changed_places_are_noticed(images, looked):
    for name, grey in (("a/a1.jpg", 7), ("b/b1.jpg", 9)):
        Image.new("L", (8, 8), grey).save(images.root / name, "BMP")
        os.utime(images.root / name, (10**9, 10**9))
    pair = images.subset(np.array([1, 4]))
    before = index_images(pair).digests
    for old, new in (("a/a1.jpg", "x"), ("b/b1.jpg", "a/a1.jpg"), ("x", "b/b1.jpg")):
        (images.root / old).rename(images.root / new)
    assert_array_equal(index_images(pair).digests, before[::-1])


def test_new_and_removed_files_are_noticed_and_others_stay_known(images, looked):
    index_images(images)
    looked.clear()
    overwritten = images.root / "a/a9.jpg"
    Image.new("RGB", (9, 9)).save(overwritten)
    (images.root / "b/b2.jpg").unlink()
    now = ImageFiles(images.root, [*images.names[:3], "a/a9.jpg", *images.names[3:]])
    index = index_images(now)
    assert sorted(looked) == ["a9.jpg", "b2.jpg"]
    assert index.faults == {6: "missing"}
    looked.clear()
    assert rows(index_images(now)) == rows(index)
    assert looked == []
    shown = ImageFiles(images.root, list_names(images.root))
    assert index_images(shown).faults == {}
    assert looked == []


def test_lists_of_the_same_folder_keep_each_others_rows(images, looked):
    first, second = (images.subset(np.array(keep)) for keep in ([0, 1], [4, 5, 3]))
    for each in (first, second):
        index_images(each)
    looked.clear()
    both = index_images(images.subset(np.array([5, 0, 3, 1])))
    assert looked == []
    assert_array_equal(both.shapes[:, 0], [102, 100, 100, 101])


def test_a_file_that_was_just_written_is_read_again(images, looked, monkeypatch):
    """Within a tick of the clock another change would leave no trace."""
    monkeypatch.setattr(file_digests, "_SETTLED", 10**12)
    index_images(images)
    looked.clear()
    index_images(images)
    assert len(looked) == 6


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[: len(b) // 2],
        lambda b: b[:500] + b"\0" * 99 + b[599:],
        lambda b: b"text",
    ],
)
def test_a_damaged_index_is_made_anew(images, looked, damage):
    first = index_images(images)
    file = index_file(images.root)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    looked.clear()
    assert rows(index_images(images)) == rows(first)
    assert len(looked) == 6
    assert known_root(file) == (str(images.root.resolve()), 6)
    file.write_bytes(b"text")
    assert known_root(file) is None


@pytest.mark.parametrize("what", ["INDEX_FORMAT", "PILLOW"])
def test_another_format_or_pillow_reads_all_files(images, looked, monkeypatch, what):
    index_images(images)
    looked.clear()
    monkeypatch.setattr(index_module, what, "another")
    index_images(images)
    assert len(looked) == 6


def test_an_index_that_cannot_be_kept_is_said_and_harms_nothing(
    images, looked, monkeypatch, tmp_path
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "file"))
    index = index_images(images)
    (note,) = index.notes
    assert note.startswith(
        f"What is known of the images could not be kept in {tmp_path / 'file'}: "
    )
    assert note.endswith("; the next start reads them all again")
    assert len(index) == 6


def test_content_is_the_same_wherever_it_is_and_whenever_it_was_written(images, looked, tmp_path):
    digest = images.digest()
    copy = Path(shutil.copytree(images.root, tmp_path / "copy"))
    for path in copy.rglob("*.jpg"):
        os.utime(path, (5, 5))
    assert ImageFiles(copy, images.names).digest() == digest
    assert images.subset(np.array([1, 0, 2, 3, 4, 5])).digest() != digest
    assert images.subset(np.arange(5)).digest() != digest


def test_what_is_known_to_be_bad_is_not_read_to_find_it(images, looked):
    (images.root / "a/a2.jpg").write_bytes(b"")
    known = replace(images, index=index_images(images))
    shutil.rmtree(images.root)
    assert [(bad.index, bad.name, bad.why) for bad in find_bad(known)] == [
        (2, "a/a2.jpg", "empty file")
    ]
    part = known.subset(np.array([3, 2]))
    assert part.index.faults == {1: "empty file"}


def test_the_index_is_small_beside_the_caches(images, looked):
    index_images(images)
    (file,) = cache_folder().iterdir()
    assert file == index_file(images.root)
    assert file.stat().st_size < 5000
