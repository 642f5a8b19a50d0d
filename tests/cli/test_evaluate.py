"""``layline evaluate`` and ``layline calibrate``: a run on its own and on other data."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import layline as package
from layline import metrics
from layline.model.calibration import Calibration


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_test_split_gives_the_numbers_of_the_run_again(layline, run):
    found = json.loads(layline("evaluate", run, "--json").out)
    before = json.loads((run / "test.json").read_text())
    for name in metrics.METRICS:
        assert found[name] == pytest.approx(before[name], abs=1e-6), name
        ends = before["intervals"].get(name)
        assert found["intervals"].get(name) == (ends and pytest.approx(ends, abs=1e-6)), name
    assert found["confusion"] == before["confusion"]


@pytest.mark.parametrize(("part", "samples"), [("train", 25), ("validation", 4), ("test", 7)])
def test_every_split_can_be_evaluated(layline, run, tmp_path, part, samples):
    lines = tmp_path / "lines.csv"
    found = layline("evaluate", run, "--part", part, "--json", "--predictions", lines)
    numbers, rows = json.loads(found.out), read(lines)
    assert (numbers["part"], numbers["samples"]) == (part, samples)
    assert len(rows) == samples
    ranks = [
        [("low", "mid", "high").index(row[key]) for row in rows] for key in ("true", "predicted")
    ]
    assert numbers["mae"] == pytest.approx(metrics.mean_absolute_error(*ranks))


def test_calibration_and_ranges_are_shown(layline, refused, graded_run, run):
    shown = layline("evaluate", graded_run).out
    numbers = json.loads(layline("evaluate", graded_run, "--json").out)
    at_90 = numbers["ranges"][1]
    assert at_90["coverage"] == 0.9
    assert f"contain the true class in {at_90['measured']:.1%}" in shown
    assert f"Temperature {numbers['calibration']['temperature']:.2f}: RPS" in shown
    found = json.loads(layline("evaluate", graded_run, "--part", "calibration", "--json").out)
    assert found["samples"] == 28
    assert "no calibration split" in refused("evaluate", run, "--part", "calibration")


def test_a_cost_matrix_from_a_file(layline, graded_run, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,2,3\n1,0,1,2\n2,1,0,1\n3,2,1,0\n")
    numbers = json.loads(layline("evaluate", graded_run, "--decode", costs, "--json").out)
    assert numbers["decode"] == "cost"
    assert numbers["cost"] == pytest.approx(numbers["mae"])
    assert numbers["mae"] == numbers["by_decoding"]["median"]["mae"]


def test_a_mistake_is_one_line(refused, run, tmp_path):
    refused("evaluate", tmp_path)
    assert "did you mean test?" in refused("evaluate", run, "--part", "tests")
    assert "mode, median, mean" in refused("evaluate", run, "--decode", "x")
    assert "There is no" in refused("evaluate", run, "--root", tmp_path / "none")
    found = refused("evaluate", run, "--predictions", tmp_path / "x.txt")
    assert ".csv or .jsonl" in found
    shutil.copy(run / "config.toml", tmp_path / "config.toml")
    assert "best.safetensors" in refused("evaluate", tmp_path)
    (tmp_path / "best.safetensors").write_bytes(b"")
    assert "best.safetensors" in refused("evaluate", tmp_path)


def test_an_output_that_is_an_input_is_refused(refused, layline, table, table_run, tmp_path):
    """Neither the data nor a file of the run is overwritten."""
    copy = shutil.copy(table, tmp_path / "t.csv")
    before = table.read_bytes(), (table_run / "predictions.csv").read_bytes()
    for arguments in (
        ("evaluate", table_run, "--predictions", table),
        ("evaluate", table_run, "--predictions", table_run / "predictions.csv"),
        ("evaluate", table_run, "--root", copy, "--predictions", copy),
        ("card", table_run, "--out", table),
        ("card", table_run, "--out", table_run / "config.toml"),
        ("report", table_run, "--out", table),
        ("report", table_run, "--out", table_run / "config.toml"),
        ("compare", table_run, table_run, "--draws", 10, "--out", table),
    ):
        assert "is also an input" in refused(*arguments)
    assert (table.read_bytes(), (table_run / "predictions.csv").read_bytes()) == before
    assert copy.read_bytes() == before[0]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    refused("evaluate", table_run, "--root", copy, "--out", tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["notes.txt"]


# --- the run's own data at another place


def test_data_that_were_moved_are_found(layline, refused, run, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "elsewhere")
    moved = shutil.copytree(run, tmp_path / "moved")
    text = (run / "config.toml").read_text().replace(str(photos), str(tmp_path / "gone"))
    (moved / "config.toml").write_text(text)
    assert "gone" in refused("evaluate", moved)
    found = layline("evaluate", moved, "--root", tmp_path / "elsewhere", "--json")
    assert json.loads(found.out)["samples"] == 7


def test_all_own_data_include_training_samples(layline, run, photos, tmp_path):
    numbers, log = evaluate(layline, run, tmp_path / "out", "--root", photos, "--part", "all")
    assert numbers["samples"] == 36
    assert "those that the model learned from" in log
    assert any("those that the model learned from" in alarm for alarm in numbers["alarms"])


# --- other data


@pytest.fixture
def hospital(make_photos, tmp_path):
    """Photographs of two of the three classes."""
    return make_photos(tmp_path / "hospital", each=5, names=("low", "mid"))


def evaluate(layline, run, out, *options):
    found = layline("evaluate", run, "--out", out, "--no-report", "--json", *options)
    assert found.code == 0, found.err
    return json.loads(found.out), found.err


def test_other_data_are_evaluated_as_the_loaded_model_predicts(layline, run, hospital, tmp_path):
    numbers, _ = evaluate(layline, run, tmp_path / "out", "--root", hospital)
    assert (numbers["part"], numbers["samples"]) == ("all", 10)
    rows = read(tmp_path / "out" / "predictions.csv")
    model, paths = package.load(run), [hospital / row["path"] for row in rows]
    assert model.predict(paths).tolist() == [row["predicted"] for row in rows]
    shares = [[float(row[f"p_{name}"]) for name in model.classes] for row in rows]
    np.testing.assert_allclose(model.predict_proba(paths), shares, atol=1e-6)
    assert json.loads((tmp_path / "out" / "test.json").read_text()) == numbers
    assert numbers["run_test"]["mae"] == json.loads((run / "test.json").read_text())["mae"]


def test_a_given_test_split_is_used(layline, run, make_photos, tmp_path):
    for part, each in (("train", 3), ("test", 2)):
        make_photos(tmp_path / "split" / part, each=each)
    numbers, _ = evaluate(layline, run, tmp_path / "test", "--root", tmp_path / "split")
    assert (numbers["part"], numbers["samples"]) == ("test", 6)
    options = ("--root", tmp_path / "split", "--part", "all")
    assert evaluate(layline, run, tmp_path / "whole", *options)[0]["samples"] == 15


def test_an_unknown_class_is_named_and_can_be_left_out(
    layline, refused, run, hospital, make_photos, tmp_path
):
    make_photos(tmp_path / "more", each=3, names=("odd",))
    (tmp_path / "more" / "odd").rename(hospital / "odd")
    assert "odd" in refused("evaluate", run, "--root", hospital)
    options = ("--root", hospital, "--skip-unknown")
    assert evaluate(layline, run, tmp_path / "out", *options)[0]["samples"] == 10


def test_groups_of_a_list_are_used_and_written(layline, run, hospital, tmp_path):
    lines = [
        f"{name}/{i}.png,{name},{'patient' if name == 'low' else i}"
        for name in ("low", "mid")
        for i in range(5)
    ]
    table = hospital / "list.csv"
    table.write_text("\n".join(["path,grade,person", *lines]) + "\n")
    options = ("--root", table, "--label", "grade", "--group", "person")
    numbers, _ = evaluate(layline, run, tmp_path / "out", *options)
    assert (numbers["samples"], numbers["intervals"]["over"]) == (10, "groups")
    groups = {row["group"] for row in read(tmp_path / "out" / "predictions.csv")}
    assert groups == {"patient", "0", "1", "2", "3", "4"}


def test_a_table_is_read_as_the_model_reads_it(layline, refused, table_run, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("colour,extra,size,label\ngreen,9,0.5,grade 0\nred,8,,grade 2\n")
    numbers, _ = evaluate(layline, table_run, tmp_path / "out", "--root", other)
    assert numbers["samples"] == 2
    rows = read(tmp_path / "out" / "predictions.csv")
    assert package.load(table_run).predict(other).tolist() == [row["predicted"] for row in rows]
    other.write_text("size,label\n0.5,grade 0\n0.2,grade 1\n")
    assert "colour" in refused("evaluate", table_run, "--root", other)


def test_an_evaluation_has_its_own_page_and_folder(layline, refused, run, hospital, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    assert layline("evaluate", copy, "--root", hospital).code == 0
    place = copy / "evaluations" / "hospital"
    page = (place / "report.html").read_text()
    for name in ("test.json", "predictions.csv", "review.json", "evaluation.json"):
        assert (place / name).is_file()
    assert layline("report", place, "--out", tmp_path / "again.html").code == 0
    assert (tmp_path / "again.html").read_text() == page
    layline("evaluate", copy, "--root", hospital, "--no-report")
    assert (copy / "evaluations" / "hospital-2" / "test.json").is_file()
    refused("evaluate", copy, "--out", place)


# --- calibration


@pytest.fixture
def mine(graded_run, tmp_path):
    return shutil.copytree(graded_run, tmp_path / "run")


def test_the_splits_of_the_run_give_the_calibration_of_training_again(layline, mine):
    model = package.load(mine)
    before = model.description.calibration
    assert before.temperature != 1
    model.description = replace(model.description, calibration=Calibration())
    model.save(mine / "best.safetensors")
    found = layline("calibrate", mine)
    assert f"Temperature {before.temperature:.3f}" in found.out
    assert f"Ranges from {len(before.scores)} samples" in found.out
    after = package.load(mine).description.calibration
    assert after.temperature == pytest.approx(before.temperature, rel=1e-3)
    np.testing.assert_allclose(after.scores, before.scores, atol=1e-3)


def test_half_of_other_data_gives_the_ranges(layline, mine, grades):
    assert layline("calibrate", mine, "--root", grades).code == 0
    after = package.load(mine).description.calibration
    samples = len(grades.read_text().splitlines()) - 1
    assert abs(len(after.scores) - samples / 2) <= 4
    assert "Ranges at 90%" in layline("evaluate", mine).out


def test_without_a_calibration_split_there_are_no_ranges(layline, run, tmp_path):
    found = layline("calibrate", shutil.copytree(run, tmp_path / "run"))
    assert "no calibration split" in found.err
    assert "No ranges" in found.out
    assert "Temperature 1.000" in found.out  # four validation samples are too few
