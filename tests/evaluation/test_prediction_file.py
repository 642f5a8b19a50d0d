"""Predictions as lines of a file."""

import csv
import io
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.evaluation.prediction_file import (
    FORMATS,
    csv_lines,
    json_lines,
    plain_name,
    prediction_lines,
    safe_cell,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
CLASSES = ["low", "mid", "high"]
SHARES = [0.123456789123, 0.876543210877 - 1e-12, 1e-12]


def lines(make, *records, with_truth=False):
    file = io.StringIO(newline="")
    write = make(file, CLASSES, with_truth=with_truth)
    for record in records:
        write(*record)
    return file.getvalue()


def test_csv_has_a_header_with_a_column_for_each_class():
    text = lines(csv_lines, ("a.jpg", "mid", [0.25, 0.5, 0.25]))
    assert text == "path,predicted,p_low,p_mid,p_high\na.jpg,mid,0.25,0.5,0.25\n"


def test_the_true_class_stands_before_the_predicted_one_where_it_is_known():
    record = ("a.jpg", "mid", [0.25, 0.5, 0.25], "high")
    text = lines(csv_lines, record, with_truth=True)
    assert text.splitlines()[0] == "path,true,predicted,p_low,p_mid,p_high"
    assert text.splitlines()[1].startswith("a.jpg,high,mid,")
    (line,) = lines(json_lines, record, with_truth=True).splitlines()
    assert list(json.loads(line)) == ["path", "true", "predicted", "probabilities"]


def test_json_lines_are_objects_with_the_probabilities_by_class():
    (line,) = lines(json_lines, ("ä.jpg", "mid", [0.25, 0.5, 0.25])).splitlines()
    assert json.loads(line) == {
        "path": "ä.jpg",
        "predicted": "mid",
        "probabilities": {"low": 0.25, "mid": 0.5, "high": 0.25},
    }
    assert "ä" in line


@pytest.mark.parametrize("make", FORMATS.values())
def test_no_samples_give_a_file_without_lines_of_them(make):
    assert len(lines(make).splitlines()) == (make is csv_lines)


@given(path=NAMES, name=NAMES)
def test_every_name_survives(path, name):
    (read,) = list(csv.reader(io.StringIO(lines(csv_lines, (path, name, SHARES)), newline="")))[1:]
    assert [plain_name(cell) for cell in read[:2]] == [path, name]
    (line,) = lines(json_lines, (path, name, SHARES)).split("\n")[:-1]
    assert (json.loads(line)["path"], json.loads(line)["predicted"]) == (path, name)


@given(st.floats(0, 1))
def test_a_probability_keeps_eight_digits(share):
    row = list(csv.reader(io.StringIO(lines(csv_lines, ("a", "low", [share] * 3)))))[1]
    (line,) = lines(json_lines, ("a", "low", [share] * 3)).splitlines()
    for written in (*map(float, row[2:]), *json.loads(line)["probabilities"].values()):
        assert written == pytest.approx(share, rel=1e-7, abs=1e-300)


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
        ("+", "+", "./+"),
        ("a=b", "a=b", "a=b"),
        ("/=a", "/=a", "/=a"),
        ("", "", ""),
    ],
)
def test_what_a_spreadsheet_takes_for_a_formula_is_written_as_a_text(text, as_text, as_path):
    assert (safe_cell(text), safe_cell(text, is_path=True)) == (as_text, as_path)
    assert plain_name(as_text) == plain_name(as_path) == text


def test_formulas_are_guarded_in_every_column_but_not_in_json():
    file = io.StringIO(newline="")
    write = csv_lines(file, CLASSES, with_truth=True, more=["low"], paths=False)
    write("=id", "=mid", SHARES, "@high", {"low": "-low"})
    assert file.getvalue().splitlines()[1].startswith("'=id,'@high,'=mid,'-low,")
    (line,) = lines(json_lines, ("=a.jpg", "=mid", SHARES)).splitlines()
    assert json.loads(line)["path"] == "=a.jpg"


def test_names_that_are_no_unicode_come_back_as_their_bytes(tmp_path):
    name = os.fsdecode(b"caf\xe9.jpg")
    for ending in FORMATS:
        with prediction_lines(tmp_path / f"p{ending}", CLASSES) as write:
            write(name, "mid", SHARES)
    assert b"\ncaf\xe9.jpg,mid," in (tmp_path / "p.csv").read_bytes()
    text = (tmp_path / "p.jsonl").read_text(encoding="utf-8")  # which it has to be
    assert r"caf\udce9.jpg" in text
    assert os.fsencode(json.loads(text)["path"]) == b"caf\xe9.jpg"


@pytest.mark.parametrize(
    ("is_terminal", "written"), [(False, b"caf\xe9.jpg,mid"), (True, b"caf\\udce9.jpg,mid")]
)
def test_a_terminal_sees_escapes_and_a_pipe_gets_bytes(monkeypatch, is_terminal, written):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr("sys.stdout", stream)
    with prediction_lines(None, CLASSES) as write:
        write("caf\udce9.jpg", "mid", SHARES)
    assert written in stream.buffer.getvalue()
    assert stream.errors == "strict"  # as it was
