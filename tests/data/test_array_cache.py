"""The cache: complete or absent, continued after a kill, limited in size; equal pixels."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from layline.data import image_cache, images
from layline.data.array_cache import ArrayCache
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles
from layline.data.preprocessing import shrink
from layline.utils.files import cache_folder
from layline.utils.validation import UserError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cache(tmp_path):
    return ArrayCache(tmp_path / "arrays", limit_bytes=100_000)


def fill(cache, key, rows=10, columns=3):
    writer = cache.writer(key, (rows, columns), np.float32, {"samples": rows})
    writer.array[:] = np.arange(rows * columns).reshape(rows, columns)
    writer.commit(rows)


def test_what_was_written_is_read_back_and_cannot_be_changed(cache):
    assert cache.open("a") is None
    fill(cache, "a")
    array = cache.open("a")
    np.testing.assert_array_equal(array, np.arange(30, dtype=np.float32).reshape(10, 3))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    (entry,) = cache.entries()
    assert (entry.name, entry.kind, entry.samples) == ("a", "a", 10)


def test_a_killed_writer_is_continued_where_it_committed(cache):
    writer = cache.writer("a", (10, 2), np.int64, {})
    writer.array[:4] = 7
    writer.commit(4)
    del writer
    assert cache.open("a") is None
    again = cache.writer("a", (10, 2), np.int64, {})
    assert (again.done, again.array[:4].tolist()) == (4, [[7, 7]] * 4)
    again.array[4:] = 8
    again.commit(10)
    assert cache.open("a")[:, 0].tolist() == [7] * 4 + [8] * 6
    assert cache.writer("a", (10, 3), np.int64, {}).done == 0  # another shape


@pytest.mark.parametrize("damage", ["truncated", "no sidecar", "bad sidecar", "not numpy"])
def test_a_damaged_entry_counts_as_absent_and_can_be_written_again(cache, damage):
    fill(cache, "a")
    file = cache.folder / "a.npy"
    if damage == "truncated":
        os.truncate(file, file.stat().st_size - 1)
    elif damage == "not numpy":
        file.write_bytes(b"x" * 500)
    elif damage == "no sidecar":
        file.with_suffix(".json").unlink()
    else:
        file.with_suffix(".json").write_text("[")
    assert cache.open("a") is None
    fill(cache, "a")
    assert cache.open("a") is not None


def test_the_least_recently_used_entries_make_room(cache):
    for place, key in enumerate("abc"):
        fill(cache, key, rows=2500)  # 30 kB each
        os.utime(cache.folder / f"{key}.json", (place, place))
    assert cache.open("a") is not None  # now the most recently used
    fill(cache, "d", rows=2500)
    assert {entry.name for entry in cache.entries()} == {"a", "c", "d"}


def test_an_array_above_the_limit_and_a_wrong_limit_are_refused(cache, monkeypatch):
    with pytest.raises(OSError, match="LAYLINE_CACHE_GB"):
        cache.writer("a", (1000, 1000), np.float32, {})
    assert cache.entries() == []
    monkeypatch.setenv("LAYLINE_CACHE_GB", "many")
    with pytest.raises(UserError, match="LAYLINE_CACHE_GB"):
        ArrayCache()


def test_a_removed_entry_stays_readable_and_is_not_brought_back(cache):
    writer = cache.writer("a", (4, 1), np.float32, {})
    cache.remove("a")
    writer.array[:] = 1
    writer.commit(4)
    assert cache.open("a") is None


@pytest.fixture
def files(tmp_path):
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for i in range(6):
        small = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((50 + 7 * i, 64))
        image.save(tmp_path / "photos" / f"{i}.jpg")
    return ImageFiles(tmp_path / "photos", [f"{i}.jpg" for i in range(6)])


@pytest.fixture
def decoded(monkeypatch):
    """The number of images that are decoded."""
    counts, original = [], images.decode
    monkeypatch.setattr(images, "decode", lambda *a: (counts.append(1), original(*a))[1])
    return counts


@pytest.mark.parametrize("at_least", [24, 1000])
def test_the_cache_contains_the_decoded_pixels(files, at_least):
    cached = cache_images(files, at_least)
    for i in (3, 0, 5):
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
    assert counts == [1, 2, 3, 4, 5, 6]
    decoded.clear()
    cache_images(files, 24, pytest.fail)
    files.root.rename(tmp_path / "moved")
    cache_images(ImageFiles(tmp_path / "moved", files.names), 24)
    assert decoded == []
    cache_images(ImageFiles(tmp_path / "moved", files.names), 32)
    cache_images(ImageFiles(tmp_path / "moved", files.names[:5]), 24)
    assert len(decoded) == 11


def test_other_processes_open_the_cache_themselves(files):
    cached = cache_images(files, 24)
    sent = pickle.dumps(cached)
    assert len(sent) < 3000
    np.testing.assert_array_equal(pickle.loads(sent).load(2, 24), cached.load(2, 24))
    ArrayCache().remove(cached.key)
    with pytest.raises(ValueError, match="was removed while it was in use"):
        pickle.loads(sent).load(2)


def test_a_killed_process_continues_where_it_stopped(files, monkeypatch, decoded):
    monkeypatch.setattr(image_cache, "_COMMIT", 2)

    def stop(done):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache_images(files, 1000, stop)
    decoded.clear()
    cached = cache_images(files, 1000)
    assert len(decoded) == 2
    for i in range(6):
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
    cached.load(5)
except ValueError as error:
    print(error)
"""


def test_a_cache_file_truncated_while_in_use_is_an_error_and_no_crash(files):
    command = [sys.executable, "-c", _TRUNCATE, str(files.root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "truncated while it was in use" in result.stdout
    assert cache_images(files, 1000).load(5).shape == (64, 85, 3)  # it is written again


def test_the_folder_is_where_the_user_or_the_system_wants_it(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LAYLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "layline"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "layline"
