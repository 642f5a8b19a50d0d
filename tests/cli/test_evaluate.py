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
    costs.write_text(",0,1,2,3\n0,0,1,2,3\n1,1,0,1,2\n2,2,1,0,1\n3,3,2,1,0\n")
    numbers = json.loads(layline("evaluate", graded_run, "--decode", costs, "--json").out)
    assert numbers["decode"] == "cost"
    assert numbers["cost"] == pytest.approx(numbers["mae"])
    assert numbers["mae"] == numbers["by_decoding"]["median"]["mae"]


# --- data of another origin


@pytest.fixture
def hospital(make_photos, tmp_path):
    """Photographs of two of the three classes, and of one that the model does not know."""
    return make_photos(tmp_path / "hospital", each=5, names=("low", "mid"))


def measured(layline, run, out, *options):
    found = layline("evaluate", run, "--out", out, "--no-report", "--json", *options)
    assert found.code == 0, found.err
    return json.loads(found.out), found.err


def test_all_of_other_data_are_measured_and_what_they_lack_is_said(
    layline, run, hospital, tmp_path
):
    numbers, said = measured(layline, run, tmp_path / "out", "--root", hospital, "--part", "all")
    assert (numbers["part"], numbers["samples"]) == ("all", 10)
    assert "No samples of classes that the model knows: high" in said
    rows = read(tmp_path / "out" / "predictions.csv")
    model = package.load(run)
    paths = [hospital / row["path"] for row in rows]
    assert model.predict(paths).tolist() == [row["predicted"] for row in rows]
    shares = [[float(row[f"p_{name}"]) for name in model.classes] for row in rows]
    np.testing.assert_allclose(model.predict_proba(paths), shares, atol=1e-6)
    assert json.loads((tmp_path / "out" / "test.json").read_text()) == numbers
    assert numbers["run_test"]["mae"] == json.loads((run / "test.json").read_text())["mae"]


def test_without_a_split_all_is_measured_and_with_one_its_test_part(
    layline, run, make_photos, hospital, tmp_path
):
    numbers, said = measured(layline, run, tmp_path / "all", "--root", hospital)
    assert numbers["part"] == "all"
    assert "no split of their own: all 10 samples are measured" in said
    for part, each in (("train", 3), ("test", 2)):
        make_photos(tmp_path / "split" / part, each=each)
    numbers, said = measured(layline, run, tmp_path / "test", "--root", tmp_path / "split")
    assert (numbers["part"], numbers["samples"]) == ("test", 6)
    assert "its test part is measured, 6 of 15 samples" in said
    numbers, _ = measured(
        layline, run, tmp_path / "whole", "--root", tmp_path / "split", "--part", "all"
    )
    assert numbers["samples"] == 15


def test_a_named_part_of_other_data_is_that_of_a_run_on_them(
    layline, run, make_photos, small, tmp_path
):
    other = make_photos(tmp_path / "other", each=8)
    classes = ("--classes", "low,mid,high")
    trained = layline(
        *("train", other, *classes, *small, "--epochs", 1, "--no-report", "--out", tmp_path / "run")
    )
    assert trained.code == 0, trained.err
    measured(layline, run, tmp_path / "out", "--root", other, "--part", "test")
    names = [
        sorted(row["path"] for row in read(tmp_path / folder / "predictions.csv"))
        for folder in ("run", "out")
    ]
    assert names[0] == names[1]


def test_an_unknown_class_is_named_and_can_be_left_out(
    layline, refused, run, hospital, make_photos, tmp_path
):
    make_photos(tmp_path / "more", each=3, names=("High", "odd"))
    for name in ("High", "odd"):
        (tmp_path / "more" / name).rename(hospital / name)
    sentence = refused("evaluate", run, "--root", hospital)
    assert "the classes of the model, low, mid, high, got High, odd" in sentence
    assert "rename 'High' if it is 'high', or leave their 6 samples out" in sentence
    options = ("--root", hospital, "--skip-unknown")
    numbers, said = measured(layline, run, tmp_path / "out", *options)
    assert numbers["samples"] == 10
    assert "does not know their classes: 'High' (3), 'odd' (3)" in said


def test_groups_of_a_list_widen_the_intervals_and_are_written(layline, run, hospital, tmp_path):
    lines = [
        f"{name}/{i}.png,{name},{'patient' if name == 'low' else i}"
        for name in ("low", "mid")
        for i in range(5)
    ]
    table = hospital / "list.csv"
    table.write_text("\n".join(["path,grade,person", *lines]) + "\n")
    options = ("--root", table, "--label", "grade", "--group", "person")
    numbers, said = measured(layline, run, tmp_path / "out", *options)
    assert "is taken as csv" in said
    assert (numbers["samples"], numbers["intervals"]["over"]) == (10, "groups")
    groups = {row["group"] for row in read(tmp_path / "out" / "predictions.csv")}
    assert groups == {"patient", "0", "1", "2", "3", "4"}


def test_arrays_are_matched_by_their_integers(layline, run, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (6, 18, 20, 3), dtype=np.uint8)
    np.savez(tmp_path / "arrays.npz", images=pixels, labels=[0, 1, 2, 0, 1, 2])
    numbers, said = measured(layline, run, tmp_path / "out", "--root", tmp_path / "arrays.npz")
    assert numbers["samples"] == 6
    assert "The integers 0, 1, … are taken for low, mid, high" in said


def test_a_table_is_read_as_the_model_reads_it(layline, refused, table_run, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("colour,extra,size,label\ngreen,9,0.5,grade 0\nred,8,,grade 2\n")
    numbers, said = measured(layline, table_run, tmp_path / "out", "--root", other)
    assert numbers["samples"] == 2
    assert "Column 'extra' is none that the model was trained with and was left out" in said
    assert "values that training never saw, 'green'" in said
    rows = read(tmp_path / "out" / "predictions.csv")
    assert package.load(table_run).predict(other).tolist() == [row["predicted"] for row in rows]
    other.write_text("size,label\n0.5,grade 0\n0.2,grade 1\n")
    assert "must have the column 'colour'" in refused("evaluate", table_run, "--root", other)


def test_data_of_another_kind_are_refused(refused, run, table, table_run, hospital):
    assert "the data must be images, got a table" in refused("evaluate", run, "--root", table)
    found = refused("evaluate", table_run, "--root", hospital)
    assert "the data must be a table, got images" in found


def test_an_evaluation_has_its_own_page_and_folder(layline, refused, run, hospital, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    first = layline("evaluate", copy, "--root", hospital)
    assert f"are in {copy}/evaluations/hospital" in first.err
    place = copy / "evaluations" / "hospital"
    page = (place / "report.html").read_text()
    assert "measured with a model that was trained before" in page
    assert 'id="learning"' not in page
    assert "“high” (0)" in page
    for name in ("test.json", "predictions.csv", "review.json", "evaluation.json"):
        assert (place / name).is_file()
    assert layline("report", place, "--out", tmp_path / "again.html").code == 0
    assert (tmp_path / "again.html").read_text() == page
    layline("evaluate", copy, "--root", hospital, "--no-report")
    assert (copy / "evaluations" / "hospital-2" / "test.json").is_file()
    assert "out must be new or empty" in refused("evaluate", copy, "--out", place)


def test_own_data_as_a_whole_are_said_to_hold_what_was_learned(layline, run, photos, tmp_path):
    numbers, said = measured(layline, run, tmp_path / "out", "--root", photos, "--part", "all")
    assert numbers["samples"] == 36
    assert "those that it learned from too" in said
    assert any("those that it learned from" in text for text in numbers["alarms"])


def test_own_data_with_a_new_file_are_suspected(layline, run, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copy(photos / "low" / "0.png", tmp_path / "photos" / "low" / "new.png")
    _, said = measured(layline, run, tmp_path / "out", "--root", tmp_path / "photos")
    assert "7 of the run's 7 test samples have the same names and labels here" in said
