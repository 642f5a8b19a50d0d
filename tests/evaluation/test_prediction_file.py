"""Files of predictions, and the guard against spreadsheet formulas."""

import csv
import io
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.evaluation.prediction_file import (
    plain_cell,
    read_predictions,
    safe_cell,
    write_csv,
    write_predictions,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
CLASSES = ["low", "mid", "high"]
SHARES = [0.25, 0.5, 0.25]


def write(path, columns, *rows):
    """Write rows of cells, all with the same probabilities."""
    cells = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
    write_predictions(path, cells, CLASSES, np.array([SHARES] * len(rows)), True)
    return path.read_text(encoding="utf-8")


def test_csv_and_json_have_the_same_content(tmp_path):
    columns, cells = ["path", "true", "predicted", "review"], ("ä.jpg", "high", "mid", True)
    header = "path,true,predicted,review,p_low,p_mid,p_high"
    text = write(tmp_path / "p.csv", columns, cells)
    assert text == f"{header}\nä.jpg,high,mid,true,0.25,0.5,0.25\n"
    line = write(tmp_path / "p.jsonl", columns, cells)
    shares = dict(zip(CLASSES, SHARES, strict=True))
    assert json.loads(line) == dict(zip(columns, cells, strict=True)) | {"probabilities": shares}


def test_predictions_are_read_back(tmp_path):
    rows = [("=a.jpg", "low", "mid", "+x"), ("b.jpg", "high", "high", "2")]
    write(tmp_path / "p.csv", ["path", "true", "predicted", "group"], *rows)
    found = read_predictions(tmp_path / "p.csv")
    assert (found.classes, found.names) == (CLASSES, ["=a.jpg", "b.jpg"])
    assert (found.ranks.tolist(), found.predicted.tolist()) == ([0, 2], [1, 2])
    assert found.groups == ["+x", "2"]
    assert found.proba.tolist() == [SHARES, SHARES]


@given(path=NAMES, name=NAMES)
def test_every_name_survives(path, name):
    file = io.StringIO(newline="")
    write_csv(file, {"path": [path], "predicted": [name]}, CLASSES, np.array([SHARES]))
    (row,) = list(csv.reader(io.StringIO(file.getvalue(), newline="")))[1:]
    assert [plain_cell(cell) for cell in row[:2]] == [path, name]


@pytest.mark.parametrize(
    ("text", "as_text", "as_path"),
    [
        ("=1+1", "'=1+1", "./=1+1"),
        ("+a.jpg", "'+a.jpg", "./+a.jpg"),
        ("-a.jpg", "'-a.jpg", "./-a.jpg"),
        ("@SUM(A1)", "'@SUM(A1)", "./@SUM(A1)"),
        ("\ta", "'\ta", "./\ta"),
        ("\ra", "'\ra", "./\ra"),
        ("'=a", "''=a", "./'=a"),
        ("./=a", "'./=a", "././=a"),
        ("=", "=", "./="),
        ("-5", "-5", "./-5"),  # a number is no formula
        ("+1.5e3", "+1.5e3", "./+1.5e3"),
        ("a=b", "a=b", "a=b"),
        ("/=a", "/=a", "/=a"),
        ("", "", ""),
    ],
)
def test_formulas_are_escaped(text, as_text, as_path):
    assert (safe_cell(text), safe_cell(text, is_path=True)) == (as_text, as_path)
    assert plain_cell(as_text) == plain_cell(as_path) == text


def test_file_names_that_are_not_unicode_are_written_as_their_bytes(tmp_path, monkeypatch):
    name = os.fsdecode(b"caf\xe9.jpg")
    write_predictions(tmp_path / "p.csv", {"path": [name]}, CLASSES, np.array([SHARES]), True)
    assert b"\ncaf\xe9.jpg," in (tmp_path / "p.csv").read_bytes()
    text = write(tmp_path / "p.jsonl", ["path"], [name])
    assert os.fsencode(json.loads(text)["path"]) == b"caf\xe9.jpg"
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", stream)
    write_predictions(None, {"path": [name]}, CLASSES, np.array([SHARES]), True)
    stream.flush()
    assert b"\ncaf\xe9.jpg," in stream.buffer.getvalue()
