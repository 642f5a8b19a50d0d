"""``layline reproduce``: what it lists, what it refuses, and a very small run of everything."""

import shutil
from dataclasses import replace

import pandas as pd
import pytest

from layline.bench import runner
from layline.bench.paper import load_reproductions

TINY = ["--epochs", "1", "--partitions", "1", "--jobs", "1"]
for _setting in (
    "data.options.size=16",
    "data.options.per_class=2",
    "data.options.validation_per_class=1",
    "data.options.test_per_class=2",
    "backbone.options.channels=4",
    "backbone.options.depth=1",
):
    TINY += ["--set", _setting]


@pytest.mark.parametrize("arguments", [[], ["all", "--list"]])
def test_it_lists_the_names(layline, arguments):
    found = layline("reproduce", *arguments)
    for name, each in load_reproductions().items():
        assert f"{name:26}{each.title}\n" in found.out
    assert "--preset small" in found.out


def test_a_dry_run_counts_the_runs_and_writes_nothing(layline, tmp_path):
    *lines, last = layline(
        "reproduce", "all", "--dry-run", "--out", tmp_path / "o"
    ).out.splitlines()
    assert last == "560 runs, 456 of them different"
    assert len(lines) == 560
    assert not (tmp_path / "o").exists()
    paper = layline("reproduce", "table-norm", "figure-scale", "--preset", "paper", "--dry-run")
    assert paper.out.splitlines()[-1] == "200 runs, 200 of them different"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-norms"], "table-norm"),
        (["all", "--preset", "big"], "big"),
        (["table-norm", "--root", "somewhere"], "--root SOURCE=PATH"),
        (["table-norm", "--root", "coco=here"], "coco"),
        (["figure-tau", "--source", "folder"], "folder of folder is missing"),
        (["figure-tau", "--source", "folder", "--root", "a", "--root", "b"], "only one --root"),
        (["figure-tau", "--set", "training.epoch=1"], "training.epoch"),
        (["table-historical-adience", "--preset", "paper"], "The data come from Palermo"),
    ],
)
def test_a_mistake_is_reported_before_any_run(refused, tmp_path, arguments, message):
    assert message in refused("reproduce", *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def one_of_each_kind(monkeypatch):
    """Of the runs that differ only in the value of an option, train one and copy it."""
    trained, train = {}, runner._train

    def train_or_copy(cell, store, *others):
        config, place = cell.config, store.run_folder(cell).path
        kind = (config.head.method, *sorted(config.head.options))
        kind += (config.data.source, config.report.enabled)
        if kind not in trained:
            trained[kind] = place, train(cell, store, *others)
        elif trained[kind][0] != place:
            shutil.copytree(trained[kind][0], place, dirs_exist_ok=True)
        return replace(trained[kind][1], key=cell.key)

    monkeypatch.setattr(runner, "_train", train_or_copy)
    return trained


@pytest.mark.slow
def test_everything_runs_from_end_to_end_in_a_very_small_size(layline, tmp_path, one_of_each_kind):
    out = tmp_path / "out"
    found = layline("reproduce", "all", *TINY, "--out", out)
    assert found.code == 0, found.err
    for name in load_reproductions():
        files = {path.name for path in (out / name).iterdir()}
        assert {"table.md", "table.csv", "cells.csv"} <= files
        assert ({"figure.png", "figure.pdf"} <= files) is name.startswith("figure")
        table = pd.read_csv(out / name / "table.csv")
        empty = table[table["mean"].isna() & table["note"].isna()]
        # a semicircle needs two dimensions
        assert name == "figure-dimension" or empty.empty, name
        assert {(str(row), group) for row, group in empty[["row", "group"]].values} <= {
            ("1", "H-S")
        }
        assert (out / name / "table.md").read_text() in found.out
    runs = len(list(out.glob("cells/*/outcome.json")))
    assert f"{runs} runs" in found.err
    assert 10 < len(one_of_each_kind) < runs
