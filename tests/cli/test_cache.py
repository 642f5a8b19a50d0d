"""``layline cache`` and ``layline cache clear``."""

import json
import os
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from layline.cli import app
from layline.data.array_cache import ArrayCache
from layline.data.image_cache import cache_images
from layline.data.images import ImageFiles


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path):
    """Images with an index and cached pixels, and unfinished features."""
    root = tmp_path / "images"
    root.mkdir()
    for number in range(3):
        Image.new("RGB", (30, 20), (number, 0, 0)).save(root / f"{number}.png")
    cache_images(ImageFiles(root, [f"{number}.png" for number in range(3)]), 10)
    ArrayCache().writer("features-abc", (50, 10), np.float32, {"samples": 50})
    return root


def run(*arguments, **options):
    return CliRunner().invoke(app, ["cache", *arguments], **options)


def kinds():
    return sorted(entry["kind"] for entry in json.loads(run("--json").stdout))


def test_an_empty_cache_is_listed_and_cleared(folder):
    assert run().stdout == f"Nothing in {folder}\n"
    assert run("clear").stdout == "Nothing to clear.\n"
    assert kinds() == []


def test_entries_are_listed_with_their_data(root, folder):
    entries = {entry["kind"]: entry for entry in json.loads(run("--json").stdout)}
    assert sorted(entries) == ["index", "pixels", "unfinished"]
    assert entries["pixels"]["samples"] == 3
    assert entries["pixels"]["root"] == str(root.resolve())
    text = run().stdout
    assert text.count(str(root.resolve())) == 1
    assert text.endswith(f" in {folder}\n")


def test_entries_are_cleared_by_age_or_all(root):
    pixels = next(e for e in json.loads(run("--json").stdout) if e["kind"] == "pixels")
    assert run("clear", input="n\n").exit_code == 1
    assert len(kinds()) == 3
    assert run("clear", "--older-than", "1", "--yes").stdout == "Nothing to clear.\n"
    state = ArrayCache().folder / f"{pixels['name']}.npy"
    os.utime(state, (time.time() - 100_000,) * 2)
    assert "1 of 3 entries" in run("clear", "--older-than", "1", "--yes").stdout
    assert kinds() == ["index", "unfinished"]
    assert run("clear", input="y\n").exit_code == 0
    assert kinds() == []
