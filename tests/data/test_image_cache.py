"""Decoded images in the cache: equal pixels, decoded once, and errors that are clear."""

import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from layline.data import image_cache
from layline.data.array_cache import ArrayCache, cache_folder
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles
from layline.data.preprocessing import shrink


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))


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
    counts, original = [], image_cache.decode
    monkeypatch.setattr(image_cache, "decode", lambda *a: (counts.append(1), original(*a))[1])
    return counts


@pytest.mark.parametrize("at_least", [None, 24, 1000])
def test_the_cache_contains_the_decoded_pixels(files, at_least):
    cached = cache_images(files, at_least)
    for i in (3, 0, 5):
        expected = files.load(i, at_least)
        expected = expected if at_least is None else shrink(expected, at_least)
        pixels = cached.load(i, at_least)
        np.testing.assert_array_equal(pixels, expected)
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
        pickle.loads(sent).load(2, 24)


def test_a_larger_size_than_cached_is_refused(files):
    with pytest.raises(ValueError, match="at_least must be at most 24, got 25"):
        cache_images(files, 24).load(0, 25)


def test_a_killed_process_continues_where_it_stopped(files, monkeypatch, decoded):
    monkeypatch.setattr(image_cache, "_COMMIT", 2)

    def stop(done):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache_images(files, None, stop)
    decoded.clear()
    cached = cache_images(files, None)
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
cached = cache_images(ImageFiles(root, sorted(os.listdir(root))), None)
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
    assert cache_images(files, None).load(5).shape == (64, 85, 3)  # it is written again


def test_a_file_that_changes_while_it_is_cached_is_named(files):
    index = cache_images(files, None).index
    Image.new("RGB", (200, 200)).save(files.path(2))
    ArrayCache().remove(cache_images(replace(files, index=index), None).key)
    with pytest.raises(ValueError, match=r"2\.jpg changed while it was read"):
        cache_images(replace(files, index=index), None)


def test_a_limit_that_is_too_small_is_named(files, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE_GB", "0.00001")
    with pytest.raises(OSError, match="LAYLINE_CACHE_GB"):
        cache_images(files, None)


def test_the_folder_is_where_the_user_or_the_system_wants_it(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LAYLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "layline"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "layline"


def test_the_last_use_is_recorded(files):
    cached = cache_images(files, None)
    state = ArrayCache().folder / f"{cached.key}.json"
    os.utime(state, (1, 1))
    cache_images(files, None)
    assert time.time() - state.stat().st_mtime < 60
