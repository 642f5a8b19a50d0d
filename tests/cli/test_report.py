"""``layline report``, and the report at the end of training."""

import json
import sys

import pytest


def test_the_report_can_be_written_anew_and_is_the_same(layline, run, tmp_path):
    out = tmp_path / "deep" / "page.html"
    found = layline("report", run, "--out", out)
    assert (found.code, found.out) == (0, f"{out}\n")
    assert out.read_bytes() == (run / "report.html").read_bytes()


def test_the_mistakes_of_a_table_have_the_cells_of_their_rows(layline, table, tmp_path):
    arguments = ("--root", table, "--dim", 4, "--epochs", 1, "--method", "classification")
    found = layline("train", "table", *arguments, "--seed", 3, "--out", tmp_path / "run")
    assert found.code == 0, found.err
    records = json.loads((tmp_path / "run" / "mistakes.json").read_text())
    assert records
    lines = table.read_text().splitlines()
    for record in records:
        size, colour, label = lines[int(record["name"].removeprefix("row ")) - 1].split(",")
        assert record["values"] == {"size": float(size), "colour": colour}
        assert record["true"] == label
    assert "<dt>colour</dt>" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("library", ["plotly"])
def test_training_without_the_libraries_says_how_to_get_them(
    layline, photos, small, tmp_path, monkeypatch, library
):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    out = tmp_path / "run"
    found = layline("train", "folder", "--root", photos, *small, "--out", out)
    assert found.code == 0
    assert f"a report needs {library}: pip install layline[report]" in found.err
    assert not (out / "report.html").exists()
    assert (out / "layouts").exists()


def test_a_folder_without_a_finished_run_is_refused(refused, run, tmp_path):
    assert "config.toml" in refused("report", tmp_path)
    (tmp_path / "config.toml").write_bytes((run / "config.toml").read_bytes())
    assert "not finished" in refused("report", tmp_path)
