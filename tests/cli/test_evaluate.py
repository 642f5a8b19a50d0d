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
    flat_ones = {}

    def visit(name, value):
        if isinstance(value, dict | list):
            for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                visit(f"{name} {key}", each)
        else:
            flat_ones[name] = value

    visit("", numbers)
    return flat_ones


def test_the_test_part_gives_the_numbers_of_the_run_again(layline, run):
    found = json.loads(layline("evaluate", run, "--json").out)
    before = json.loads((run / "test.json").read_text())
    assert before["epoch"] in (1, 2)
    for name in ("epoch", "validation", "alarms"):  # of the run, not of the part
        del before[name]
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


def test_what_certainty_is_worth_is_said(layline, graded_run):
    said = layline("evaluate", graded_run).out
    numbers = json.loads(layline("evaluate", graded_run, "--json").out)
    shown = numbers["ranges"][1]
    assert shown["coverage"] == 0.9
    assert f"hold the truth in {shown['measured']:.1%}" in said
    assert f"Temperature {numbers['calibration']['temperature']:.2f}: ECE" in said
    assert numbers["nll"] == numbers["calibration"]["after"]["nll"]


def test_the_part_for_calibration_can_be_measured_where_there_is_one(
    layline, refused, graded_run, run
):
    found = json.loads(layline("evaluate", graded_run, "--part", "calibration", "--json").out)
    assert found["samples"] == 28
    assert "kept no samples apart" in refused("evaluate", run, "--part", "calibration")


def test_costs_are_added_up(layline, graded_run, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,2,3\n1,0,1,2\n2,1,0,1\n3,2,1,0\n")
    numbers = json.loads(layline("evaluate", graded_run, "--decode", costs, "--json").out)
    assert numbers["decode"] == "cost"
    assert numbers["cost"] == pytest.approx(numbers["mae"])
    assert numbers["mae"] == numbers["by_decoding"]["median"]["mae"]
