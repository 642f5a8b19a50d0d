"""``layline evaluate``: the numbers of a run, measured again."""

import csv
import json
import shutil

import numpy as np
import pytest

import layline as package
from layline import metrics


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def flat(numbers):
    """Give the numbers without the tree; pytest compares what has no tree only."""
    inner = {f"{d} {k}": v for d, by in numbers["by_decoding"].items() for k, v in by.items()}
    outer = {k: v for k, v in numbers.items() if k not in ("by_decoding", "confusion")}
    return outer | inner | {"confusion": str(numbers["confusion"])}


def test_the_test_part_gives_the_numbers_of_the_run_again(layline, run):
    found = json.loads(layline("evaluate", run, "--json").out)
    before = json.loads((run / "test.json").read_text())
    assert before.pop("epoch") in (1, 2)
    assert flat(found) == pytest.approx(flat(before), abs=1e-6)


@pytest.mark.parametrize(("part", "samples"), [("train", 25), ("validation", 4), ("test", 7)])
def test_every_part_can_be_measured(layline, run, tmp_path, part, samples):
    lines = tmp_path / "lines.csv"
    found = layline("evaluate", run, "--part", part, "--json", "--predictions", lines)
    numbers = json.loads(found.out)
    assert (numbers["part"], numbers["samples"]) == (part, samples)
    rows = read(lines)
    assert len(rows) == samples
    ranks = [
        [("low", "mid", "high").index(row[key]) for row in rows] for key in ("true", "predicted")
    ]
    assert numbers["mae"] == pytest.approx(metrics.mean_absolute_error(*ranks))
    assert numbers["accuracy"] == pytest.approx(metrics.accuracy(*ranks))


def test_another_decoding_is_named(layline, run):
    numbers = json.loads(layline("evaluate", run, "--decode", "mean", "--json").out)
    assert numbers["decode"] == "mean"
    assert numbers["mae"] == numbers["by_decoding"]["mean"]["mae"]
    assert "mean (chosen)" in layline("evaluate", run, "--decode", "mean").out


def test_the_lines_are_those_of_the_run_and_of_the_loaded_model(layline, run, photos, tmp_path):
    found = layline("evaluate", run, "--predictions", tmp_path / "lines.csv")
    assert found.code == 0
    assert "Classes, lowest first: low < mid < high" in found.err
    again, before = read(tmp_path / "lines.csv"), read(run / "predictions.csv")
    assert [row["path"] for row in again] == [row["path"] for row in before]
    columns = ("p_low", "p_mid", "p_high")
    values = [np.array([[float(r[c]) for c in columns] for r in rows]) for rows in (again, before)]
    np.testing.assert_allclose(*values, atol=1e-6)
    model = package.load(run)
    paths = [photos / row["path"] for row in before]
    np.testing.assert_allclose(model.predict_proba(paths), values[0], atol=1e-6)
    assert model.predict(paths).tolist() == [row["predicted"] for row in before]


def test_data_that_were_moved_are_found_where_they_are_now(layline, refused, run, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "elsewhere")
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    text = (run / "config.toml").read_text().replace(str(photos), str(tmp_path / "gone"))
    (moved / "config.toml").write_text(text)
    assert "root must exist, got" in refused("evaluate", moved)
    found = layline("evaluate", moved, "--root", tmp_path / "elsewhere", "--json")
    assert json.loads(found.out)["samples"] == 7


def test_a_table_is_measured_too(layline, table_run):
    found = json.loads(layline("evaluate", table_run, "--json").out)
    assert found["mae"] == json.loads((table_run / "test.json").read_text())["mae"]


def test_data_with_other_classes_are_refused(refused, run, make_photos, tmp_path):
    other = make_photos(tmp_path / "photos", names=("a", "b", "c"))
    (tmp_path / "other").mkdir()
    for name in ("config.toml", "best.safetensors"):
        shutil.copy(run / name, tmp_path / "other" / name)
    text = (run / "config.toml").read_text()
    for old, new in (("low", "a"), ("mid", "b"), ("high", "c")):
        text = text.replace(f'"{old}"', f'"{new}"')
    (tmp_path / "other" / "config.toml").write_text(text)
    found = refused("evaluate", tmp_path / "other", "--root", other)
    assert "the data must have the classes of the model, low, mid, high, got a, b, c" in found


def test_a_mistake_is_one_sentence(refused, run, tmp_path):
    assert "run must be the folder of a run" in refused("evaluate", tmp_path)
    assert "got 'tests': did you mean test?" in refused("evaluate", run, "--part", "tests")
    assert "known are mode, median, mean" in refused("evaluate", run, "--decode", "x")
    assert "root must exist" in refused("evaluate", run, "--root", tmp_path / "none")
    found = refused("evaluate", run, "--predictions", tmp_path / "x.txt")
    assert "must be a known name, got '.txt': known are .csv, .jsonl" in found
    shutil.copy(run / "config.toml", tmp_path / "config.toml")
    assert "best.safetensors: it is not there" in refused("evaluate", tmp_path)
    (tmp_path / "best.safetensors").write_bytes(b"")
    assert "must be a whole .safetensors file" in refused("evaluate", tmp_path)
