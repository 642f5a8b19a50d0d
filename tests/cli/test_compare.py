"""``layline compare``: runs on the same test samples."""

import json
import shutil

import pytest


@pytest.fixture(scope="module")
def runs(write_run, tmp_path_factory):
    """Two runs on the same samples, and one on fewer."""
    root = tmp_path_factory.mktemp("compared")
    write_run(root / "arc", method="hard-semicircular", images=False)
    write_run(root / "coral", method="coral", images=False)
    write_run(root / "fewer", method="coral", images=False, samples=40)
    return root


def test_the_table_and_the_page_have_every_metric(layline, runs, tmp_path):
    page = tmp_path / "page.html"
    found = layline("compare", runs / "arc", runs / "coral", "--draws", 50, "--out", page)
    assert found.code == 0, found.err
    for word in ("60 samples", "Accuracy", "MAE", "Macro MAE", "QWK", "RPS", "NLL", "interval"):
        assert word in found.out
    assert found.out.splitlines()[-1] == str(page)
    assert page.is_file()


def test_json_has_the_numbers_of_the_runs(layline, runs):
    found = layline("compare", runs / "arc", runs / "coral", "--draws", 50, "--json")
    numbers = json.loads(found.out)
    assert numbers["samples"] == 60
    for run in numbers["runs"]:
        before = json.loads((runs / run["name"] / "test.json").read_text())
        for metric in ("accuracy", "mae", "macro_mae", "qwk", "rps", "nll"):
            assert run["metrics"][metric] == pytest.approx(before[metric], abs=1e-6)


def test_a_mistake_is_one_line(refused, runs, tmp_path):
    assert "at least two runs" in refused("compare", runs / "arc")
    refused("compare", runs / "arc", tmp_path)
    (tmp_path / "config.toml").write_text((runs / "arc" / "config.toml").read_text())
    refused("compare", runs / "arc", tmp_path)
    sentence = refused("compare", runs / "arc", runs / "fewer")
    assert "arc on 60 and fewer on 40, with 40 in common" in sentence
    shutil.copytree(runs / "arc", tmp_path / "edited")
    predictions = tmp_path / "edited" / "predictions.csv"
    for text in ("", predictions.read_text().replace("low", "lower", 3)):
        predictions.write_text(text)
        assert "edited" in refused("compare", runs / "arc", tmp_path / "edited")
