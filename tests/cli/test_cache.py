"""``layline cache``: what is kept, and how to be rid of it."""

import json
import os
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from layline.cli import app
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles
from layline.data.index import index_file


@pytest.fixture
def images(tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    for number in range(3):
        Image.new("RGB", (30, 20), (number, 0, 0)).save(root / f"{number}.png")
    return ImageFiles(root, [f"{number}.png" for number in range(3)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAYLINE_CACHE", str(folder))
    return folder


@pytest.fixture
def filled(images, folder):
    """An index, pixels, features that were not finished, and somebody else's file."""
    cache_images(images, 10, folder)
    (folder / "features-abc").mkdir()
    (folder / "features-abc" / "piece-000000000.rows").write_bytes(bytes(5000))
    (folder / "mine.txt").write_text("not of layline")
    return folder


def test_an_empty_folder_says_so(layline, folder):
    assert layline("cache").out == f"nothing in {folder}\n"
    assert layline("cache", "clear").out == "nothing to clear\n"
    assert json.loads(layline("cache", "--json").out) == []


def test_the_list_says_what_there_is_and_of_which_data(layline, filled, images):
    lines = layline("cache").out.splitlines()
    assert lines[0].split() == ["name", "kind", "size", "samples", "last", "use", "of"]
    assert lines[-1].endswith(f"kB in {filled}")
    entries = {entry["kind"]: entry for entry in json.loads(layline("cache", "--json").out)}
    assert sorted(entries) == ["index", "pixels", "unfinished"]
    for kind in ("index", "pixels"):
        assert entries[kind]["samples"] == 3
        assert entries[kind]["root"] == str(images.root.resolve())
        assert str(images.root.resolve()) in "\n".join(lines)
    assert entries["pixels"]["bytes"] == next(filled.glob("*.pixels")).stat().st_size
    assert entries["unfinished"]["bytes"] == 5000


def test_the_last_use_is_that_of_a_run(layline, filled, images):
    pixels, index = next(filled.glob("*.pixels")), index_file(images.root)
    for file in (pixels, index):
        os.utime(file, (10**9, 10**9))
    cache_images(images, 10, filled)
    assert min(file.stat().st_mtime for file in (pixels, index)) > time.time() - 1000


def test_clearing_takes_what_is_old_or_named_and_asks_before(layline, filled, images):
    pixels = next(filled.glob("*.pixels"))
    os.utime(pixels, (10**9, 10**9))
    refused = CliRunner().invoke(app, ["cache", "clear", "--older-than", "30d"], input="n\n")
    assert (refused.exit_code, pixels.exists()) == (0, True)
    assert "Clear 1 of 3, " in refused.stdout
    assert "nothing was cleared" in refused.stdout
    assert layline("cache", "clear", "--older-than", "30d", "--yes").out.startswith(
        "cleared 1 of 3"
    )
    assert (pixels.exists(), index_file(images.root).exists()) == (False, True)
    assert not pixels.with_suffix(".json").exists()
    layline("cache", "clear", "features-a", "--yes")
    assert not (filled / "features-abc").exists()
    layline("cache", "clear", "--yes")
    assert [path.name for path in filled.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--older-than", "soon"], "older-than must be an age such as 12h, 30d or 8w, got 'soon'"),
        (["nothing"], "name must be one of layline cache, got 'nothing': it is not there"),
    ],
)
def test_what_is_not_understood_is_refused(refused, filled, arguments, sentence):
    assert refused("cache", "clear", *arguments) == f"layline: {sentence}"


def test_what_was_cleared_is_made_again(layline, filled, images):
    before = cache_images(images, 10, filled).load(0, 10)
    layline("cache", "clear", "--yes")
    np.testing.assert_array_equal(cache_images(images, 10, filled).load(0, 10), before)
