"""``layline cache``: list and clear what is cached."""

import json
import os

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from layline import data
from layline.cli import app
from layline.data.array_cache import ArrayCache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAYLINE_CACHE", str(folder))
    return folder


@pytest.fixture
def filled(folder, tmp_path):
    """An index of files, features, and an entry that is not finished."""
    for number in range(3):
        for name in ("low", "high"):
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            path = tmp_path / "photos" / name / f"{number}.png"
            Image.new("RGB", (30, 20), (number, len(name), 0)).save(path)
    data.index_files(data.read("folder", tmp_path / "photos"))
    for key, is_done in (("features-abc", True), ("pixels-def", False)):
        writer = ArrayCache().writer(key, (4, 2), np.dtype("float32"), {"samples": 4, "root": "x"})
        writer.array[:] = 1
        writer.commit(4 if is_done else 2)
        if is_done:
            writer.finish()
    return folder


def test_an_empty_folder(layline, folder):
    assert layline("cache").out == f"Nothing in {folder}\n"
    assert layline("cache", "clear").out == "Nothing to clear.\n"
    assert json.loads(layline("cache", "--json").out) == []


def test_entries_are_listed_with_kind_samples_and_data(layline, filled, tmp_path):
    entries = {entry["kind"]: entry for entry in json.loads(layline("cache", "--json").out)}
    assert sorted(entries) == ["features", "index", "unfinished"]
    assert (entries["features"]["samples"], entries["features"]["root"]) == (4, "x")
    assert entries["index"]["root"] == str(tmp_path / "photos")
    assert str(tmp_path / "photos") in layline("cache").out


def test_clearing_takes_what_is_old_or_named_and_asks_before(layline, filled):
    for path in filled.rglob("features-abc*"):
        os.utime(path, (10**9, 10**9))
    refused = CliRunner().invoke(app, ["cache", "clear", "--older-than", "30d"], input="n\n")
    assert refused.exit_code == 0
    assert "Nothing was cleared" in refused.stdout
    assert len(json.loads(layline("cache", "--json").out)) == 3
    assert layline("cache", "clear", "--older-than", "30d", "--yes").code == 0
    kinds = {entry["kind"] for entry in json.loads(layline("cache", "--json").out)}
    assert kinds == {"index", "unfinished"}
    layline("cache", "clear", "pixels-d", "--yes")
    layline("cache", "clear", "--yes")
    assert json.loads(layline("cache", "--json").out) == []


@pytest.mark.parametrize("arguments", [["--older-than", "soon"], ["nothing"]])
def test_what_is_not_understood_is_refused(refused, filled, arguments):
    assert arguments[-1] in refused("cache", "clear", *arguments)
