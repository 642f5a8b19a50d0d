import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from PIL import Image

import layline.data.image_cache
from layline.data.array_cache import cache_folder
from layline.data.decoding import BadImageError, decode
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles
from layline.data.preprocessing import shrink


@pytest.fixture
def images(tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    rng = np.random.default_rng(0)
    for index in range(7):
        pixels = rng.integers(0, 256, (30 + index, 50 - index, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{index}.jpg")
    return ImageFiles(root, [f"{index}.jpg" for index in range(7)])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "inside"


@pytest.fixture
def decoded(monkeypatch):
    """The files that were decoded, one after the other."""
    files = []

    def counting(file, at_least=None):
        files.append(file.name)
        return decode(file, at_least)

    monkeypatch.setattr(layline.data.image_cache, "decode", counting)
    return files


def assert_same(one, other, at_least=None):
    assert len(one) == len(other)
    for index in range(len(one)):
        assert_array_equal(one.load(index, at_least), other.load(index, at_least))


def test_the_cache_gives_what_decoding_gives(images, folder):
    cache = cache_images(images, None, folder)
    assert cache.names == images.names
    assert_same(cache, images)
    assert cache.load(0).shape == (30, 50, 3)
    assert cache.digest() == images.digest()


@pytest.mark.parametrize("at_least", [10, 12, 30, 33, 99])
def test_the_cache_keeps_the_pixels_that_are_needed_and_no_more(images, folder, at_least):
    cache = cache_images(images, at_least, folder)
    for index in range(len(images)):
        pixels = cache.load(index, at_least)
        assert_array_equal(pixels, shrink(images.load(index, at_least), at_least))
        assert min(pixels.shape[:2]) == min(at_least, *images.load(index).shape[:2])


def test_what_is_loaded_belongs_to_the_caller(images, folder):
    cache = cache_images(images, None, folder)
    torch.from_numpy(cache.load(0)).zero_()
    assert type(cache.load(0)) is np.ndarray
    assert_same(cache, images)


def test_the_second_time_nothing_is_decoded(images, folder, decoded):
    cache_images(images, None, folder)
    assert sorted(decoded) == sorted(images.names)
    decoded.clear()
    assert_same(cache_images(images, None, folder), images)
    assert decoded == []


def test_moved_data_have_the_same_cache(images, folder, decoded, tmp_path):
    cache_images(images, None, folder)
    decoded.clear()
    moved = images.root.rename(tmp_path / "elsewhere")
    (moved / "3.jpg").rename(moved / "three.jpg")
    names = [name.replace("3", "three") for name in images.names]
    cache = cache_images(ImageFiles(moved, names), None, folder)
    assert decoded == []
    assert cache.names == tuple(names)


def test_other_data_have_another_cache(images, folder, decoded):
    cache_images(images, None, folder)
    order = np.array([1, 0, 2, 3, 4, 5, 6])
    for other in (
        images.subset(order),
        images.subset(order[2:]),
        images.subset(order[[0, *order]]),
    ):
        decoded.clear()
        assert_same(cache_images(other, None, folder), other)
        assert len(decoded) == len(other)
    Image.new("RGB", (4, 4)).save(images.root / "2.jpg")
    assert_same(cache_images(images, None, folder), images)
    cache_images(images, 10, folder)
    assert len(list(folder.glob("*.pixels"))) == 6


def test_another_pillow_or_format_decodes_again(images, folder, decoded, monkeypatch):
    for name, value in (("PILLOW", "0.1"), ("CACHE_FORMAT", 0)):
        cache_images(images, None, folder)
        decoded.clear()
        monkeypatch.setattr(layline.data.image_cache, name, value)
        cache_images(images, None, folder)
        assert len(decoded) == 7


def test_a_subset_of_the_cache_is_that_of_the_images(images, folder):
    keep = np.array([5, 0, 5])
    part = cache_images(images, None, folder).subset(keep)
    assert part.names == ("5.jpg", "0.jpg", "5.jpg")
    assert_same(part, images.subset(keep))


def test_other_processes_get_the_path_and_map_the_file_themselves(images, folder):
    cache = cache_images(images, None, folder)
    cache.load(0)
    sent = pickle.dumps(cache)
    assert len(sent) < 2000 < (folder / cache.file).stat().st_size
    assert_same(pickle.loads(sent), images)
    assert pickle.loads(sent).index is None


def test_a_size_that_was_not_kept_is_refused(images, folder):
    cache = cache_images(images, 10, folder)
    assert_array_equal(cache.load(0, 3), shrink(images.load(0, 10), 10))
    for at_least in (11, None):
        with pytest.raises(ValueError, match=f"at_least must not be above 10, got {at_least}"):
            cache.load(0, at_least)


def test_no_images_have_a_cache_too(images, folder, decoded):
    none = images.subset(np.array([], dtype=np.int64))
    for _ in range(2):
        assert len(cache_images(none, None, folder)) == 0


def cut(content):
    return content[: len(content) // 2]


def shifted(content):
    return content[1:] + b"\0"


def flipped(place):
    def flip(content):
        content = bytearray(content)
        content[place] ^= 1
        return bytes(content)

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        *(cut, shifted, flipped(-1), flipped(-40), flipped(-33)),
        *(lambda content: b"", lambda content: content[:-1], lambda content: content + b"\0"),
        *(lambda content: bytes(len(content)), lambda content: content[:10]),
    ],
)
def test_a_damaged_cache_is_made_again(images, folder, decoded, damage):
    file = cache_images(images, None, folder).file
    content = file.read_bytes()
    file.write_bytes(damage(content))
    decoded.clear()
    assert_same(cache_images(images, None, folder), images)
    assert len(decoded) == 7
    assert file.read_bytes() == content


@pytest.mark.parametrize("place", [0, 5000])
def test_a_changed_pixel_is_found_when_the_cache_is_verified(images, folder, decoded, place):
    file = cache_images(images, None, folder).file
    content = file.read_bytes()
    file.write_bytes(flipped(place)(content))
    decoded.clear()
    assert_same(cache_images(images, None, folder, verify=True), images)
    assert len(decoded) == 7
    assert file.read_bytes() == content


def test_a_cache_under_another_name_is_not_taken(images, folder, decoded):
    first, second = (cache_images(images, at_least, folder).file for at_least in (None, 10))
    shutil.copy(first, second)
    assert min(cache_images(images, 10, folder).load(0, 10).shape[:2]) == 10


def test_progress_counts_what_is_decoded(images, folder):
    counts = []
    for _ in range(2):
        cache_images(images, None, folder, progress=counts.append)
    assert counts == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_stops_in_the_middle_leaves_nothing(images, folder, error):
    def stop(done):
        if done == 4:
            raise error

    with pytest.raises(error):
        cache_images(images, None, folder, progress=stop)
    assert list(folder.iterdir()) == []


def test_a_killed_process_leaves_nothing_that_is_taken_for_a_cache(images, folder, decoded):
    code = f"""if True:
        import time
        from pathlib import Path
        from layline.data.image_cache import cache_images
        from layline.data.images import ImageFiles
        images = ImageFiles(Path({str(images.root)!r}), {list(images.names)!r})
        def wait(done):
            print(done, flush=True)
            time.sleep(60 * (done == 4))
        cache_images(images, None, Path({str(folder)!r}), progress=wait)
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    while process.stdout.readline() != b"4\n":
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (part,) = folder.iterdir()
    assert part.suffix == ".part"
    assert_same(cache_images(images, None, folder), images)
    assert part.exists()  # it may be another process at work
    os.utime(part, (time.time() - 2 * 24 * 3600,) * 2)
    cache_images(images, 10, folder)
    assert not part.exists()


def test_two_at_once_do_no_harm(images, folder):
    inner = []

    def another(done):
        if done == 3:
            inner.append(cache_images(images, None, folder))

    outer = cache_images(images, None, folder, progress=another)
    assert outer.file == inner[0].file
    assert sorted(file.suffix for file in folder.iterdir()) == [".json", ".pixels"]
    for cache in (outer, inner[0]):
        assert_same(cache, images)


NEEDED = sum(3 * (30 + index) * (50 - index) for index in range(7))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_gets_full_is_named_and_left_clean(images, folder, monkeypatch, code):
    def fail(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(layline.data.image_cache.os, "fsync", fail)
    with pytest.raises(OSError, match=f"folder must have room for {NEEDED:,} bytes") as caught:
        cache_images(images, None, folder)
    assert f"got {folder}: {os.strerror(code).lower()}; make room" in str(caught.value)
    assert caught.value.errno == code
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_too_small_is_named_before_decoding(images, folder, decoded, monkeypatch):
    usage = shutil._ntuple_diskusage(10**9, 10**9 - NEEDED + 1, NEEDED - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=f"room for {NEEDED:,} bytes, got {folder}: no space left"):
        cache_images(images, None, folder)
    assert decoded == []


def test_a_folder_that_cannot_be_one_is_named(images, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"folder must take a file of .*, got {tmp_path / 'file'}: "):
        cache_images(images, None, tmp_path / "file")


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "missing"), (b"", "empty file"), (b"text", "not an image"), ("cut", "truncated or")],
)
def test_a_bad_image_is_named(images, folder, content, why):
    path = images.root / "5.jpg"
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(whole[:-50] if content == "cut" else content)
    with pytest.raises(BadImageError, match=f"image must be readable, got {path}: {why}"):
        cache_images(images, None, folder)
    assert not list(folder.glob("*"))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LAYLINE_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"LAYLINE_CACHE": "~/b"}, "/home/me/b"),
        ({"LAYLINE_CACHE": "", "XDG_CACHE_HOME": "/x"}, "/x/layline"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/layline"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/layline"),
        ({}, "/home/me/.cache/layline"),
    ],
)
def test_the_folder_is_where_the_user_or_the_system_wants_it(monkeypatch, variables, expected):
    for name in ("LAYLINE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)
