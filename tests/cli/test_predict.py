"""``layline predict``: predictions of a model for new samples."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import layline as package
from layline.cli import app

COLUMNS = ("p_low", "p_mid", "p_high")


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def probabilities(rows):
    return np.array([[float(row[column]) for column in COLUMNS] for row in rows])


@pytest.mark.parametrize("kind", ["run", "frozen_run"])
def test_every_way_gives_the_same_probabilities(layline, photos, tmp_path, kind, request):
    """The run's own list, evaluate, predict in both formats and on stdout, and layline.load."""
    run = request.getfixturevalue(kind)
    own = rows_of((run / "predictions.csv").read_text())
    paths = [photos / row["path"] for row in own]
    expected = package.load(run).predict_proba(paths)
    np.testing.assert_allclose(probabilities(own), expected, atol=1e-6)
    layline("evaluate", run, "--predictions", tmp_path / "e.csv")
    again = rows_of((tmp_path / "e.csv").read_text())
    np.testing.assert_allclose(probabilities(again), expected, atol=1e-6)
    shown = layline("predict", run, *paths)
    assert shown.code == 0
    rows = rows_of(shown.out)
    assert [row["path"] for row in rows] == [str(path) for path in paths]
    assert [row["predicted"] for row in rows] == [row["predicted"] for row in own]
    np.testing.assert_allclose(probabilities(rows), expected, atol=1e-6)
    model = run / "best.safetensors"
    for ending in ("csv", "jsonl"):
        found = layline("predict", model, *paths, "--out", tmp_path / f"p.{ending}")
        assert (found.code, found.out) == (0, "")
    assert (tmp_path / "p.csv").read_text() == shown.out
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    shares = [[line["probabilities"][name] for name in ("low", "mid", "high")] for line in lines]
    np.testing.assert_allclose(shares, expected, atol=1e-6)


@pytest.fixture
def mixed(photos, tmp_path):
    """Three good images, and three that cannot be read between them."""
    for i, name in enumerate(("a.png", "c.png", "e.png")):
        shutil.copy(photos / "low" / f"{i}.png", tmp_path / name)
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "d.png").write_bytes(b"no image")
    whole = (tmp_path / "e.png").read_bytes()
    (tmp_path / "f.png").write_bytes(whole[: len(whole) // 2])
    return tmp_path


@pytest.mark.parametrize(
    ("more", "code"),
    [((), 1), (("--batch-size", 1, "--skip-bad"), 0), (("--batch-size", 2, "--workers", 1), 1)],
)
def test_files_that_cannot_be_read_are_listed_and_the_others_predicted(
    layline, run, mixed, more, code
):
    found = layline("predict", run, mixed, "--out", mixed / "p.csv", *more)
    rows = rows_of((mixed / "p.csv").read_text())
    good = [mixed / f"{name}.png" for name in "ace"]
    assert [row["path"] for row in rows] == [str(path) for path in good]
    expected = package.load(run).predict_proba(good)
    np.testing.assert_allclose(probabilities(rows), expected, atol=1e-6)
    assert found.code == code
    assert found.err.startswith("layline: 3 images cannot be read:")
    assert all(str(mixed / f"{name}.png") in found.err for name in "bdf")


def test_a_mistake_is_one_line(refused, run, table_run, photos, tmp_path):
    image = photos / "low" / "0.png"
    for name in ("p.txt", "p", "p.CSV"):
        found = refused("predict", run, image, "--out", tmp_path / name)
        assert ".csv or .jsonl" in found
    assert "none.png" in refused("predict", run, "none.png")
    assert "did you mean mode?" in refused("predict", run, image, "--decode", "mod")
    assert "none" in refused("predict", "none", image)
    for arguments in ((run, tmp_path), (image, image), (table_run, tmp_path)):
        refused("predict", *arguments)
    refused("predict", table_run, image, image)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_an_input_is_refused(refused, table, table_run, tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to(table)
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,2\n1,0,1\n2,1,0\n")
    before = table.read_bytes(), costs.read_bytes()
    for arguments in ((table, "--out", table), (table, "--out", link), (link, "--out", table)):
        assert "is also an input" in refused("predict", table_run, *arguments)
    options = ("--decode", costs, "--out", costs)
    assert "is also an input" in refused("predict", table_run, table, *options)
    assert (table.read_bytes(), costs.read_bytes()) == before


def test_ranges_confidence_and_who_should_look_at_it(layline, grades, graded_run, tmp_path):
    out = tmp_path / "p.csv"
    options = ("--coverage", 0.9, "--review", 0.25)
    assert layline("predict", graded_run, grades, "--out", out, *options).code == 0
    rows = rows_of(out.read_text())
    assert list(rows[0])[:6] == ["path", "predicted", "low", "high", "confidence", "review"]
    marked = [float(row["confidence"]) for row in rows if row["review"] == "true"]
    others = [float(row["confidence"]) for row in rows if row["review"] == "false"]
    assert len(marked) == round(0.25 * len(rows))
    assert max(marked) <= min(others)
    for row in rows:
        assert int(row["low"]) <= int(row["predicted"]) <= int(row["high"])
    lines = tmp_path / "p.jsonl"
    layline("predict", graded_run, grades, "--out", lines, *options)
    first = json.loads(lines.read_text().splitlines()[0])
    assert first["review"] is (rows[0]["review"] == "true")
    assert (first["low"], first["high"]) == (rows[0]["low"], rows[0]["high"])


def test_costs_from_a_file_decide(layline, run, photos, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,9\n1,0,9\n1,1,0\n")
    rows = rows_of(layline("predict", run, photos, "--decode", costs).out)
    for row, p in zip(rows, probabilities(rows), strict=True):
        paid = [p[1] + p[2], p[0] + p[2], 9 * p[0] + 9 * p[1]]
        assert row["predicted"] == ("low", "mid", "high")[paid.index(min(paid))]


def test_a_mistake_about_ranges_or_costs_is_one_line(refused, run, grades, graded_run, tmp_path):
    assert "got 1.2" in refused("predict", graded_run, grades, "--coverage", 1.2)
    assert "999" in refused("predict", graded_run, grades, "--coverage", 0.999)
    refused("predict", run, grades, "--coverage", 0.9)
    costs = tmp_path / "costs.csv"
    for text in ("0,a\n1,2\n", "", "0,1\n1,0,1\n"):
        costs.write_text(text)
        refused("predict", graded_run, grades, "--decode", costs)


@pytest.mark.parametrize(("more", "code"), [((), 1), (("--skip-bad", "--review", 0.5), 0)])
def test_rows_without_probabilities_are_listed_and_the_others_predicted(
    layline, table_run, tmp_path, more, code
):
    (tmp_path / "far.csv").write_text("size,colour\n1,red\n3e38,red\n2,blue\n-3e38,red\n")
    found = layline("predict", table_run, tmp_path / "far.csv", *more)
    assert found.code == code
    assert [row["path"] for row in rows_of(found.out)] == ["row 2", "row 4"]
    assert "nan" not in found.out
    first, *named = found.err.splitlines()
    assert first.startswith("layline: No prediction for 2 samples: ")
    assert named == ["  row 3", "  row 5"]


def test_standard_input_is_an_image_or_a_table(layline, run, table_run, photos, table):
    for model, path in ((run, photos / "low" / "0.png"), (table_run, table)):
        found = CliRunner().invoke(app, ["predict", str(model), "-"], input=path.read_bytes())
        assert found.exit_code == 0
        direct = rows_of(layline("predict", model, path).out)
        for one, other in zip(rows_of(found.stdout), direct, strict=True):
            assert {**one, "path": ""} == {**other, "path": ""}
