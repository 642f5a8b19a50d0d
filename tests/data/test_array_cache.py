"""Cached arrays: complete or absent, continued after a kill, limited in size."""

import os

import numpy as np
import pytest

from layline.data.array_cache import ArrayCache
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
        os.utime(cache.folder / f"{key}.npy", (place, place))
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


def test_the_folder_is_where_the_user_or_the_system_wants_it(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LAYLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "layline"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "layline"
