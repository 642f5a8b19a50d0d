"""Predictions as lines of a file."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.prediction_file import FORMATS, csv_lines, json_lines

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1)
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
    assert read[:2] == [path, name]
    (line,) = lines(json_lines, (path, name, SHARES)).split("\n")[:-1]
    assert (json.loads(line)["path"], json.loads(line)["predicted"]) == (path, name)


@given(st.floats(0, 1))
def test_a_probability_keeps_eight_digits(share):
    row = list(csv.reader(io.StringIO(lines(csv_lines, ("a", "low", [share] * 3)))))[1]
    (line,) = lines(json_lines, ("a", "low", [share] * 3)).splitlines()
    for written in (*map(float, row[2:]), *json.loads(line)["probabilities"].values()):
        assert written == pytest.approx(share, rel=1e-7, abs=1e-300)
