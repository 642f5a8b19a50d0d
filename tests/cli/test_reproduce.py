"""``layline reproduce``: what there is, what would be run, and a very small grid, all of it."""

import shutil
from dataclasses import replace

import pandas as pd
import pytest

from layline.bench import runner
from layline.bench.paper import REPRODUCTIONS
from layline.bench.store import Outcome

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


@pytest.mark.parametrize("arguments", [[], ["--list"], ["all", "--list"]])
def test_it_lists_what_there_is(layline, arguments):
    found = layline("reproduce", *arguments)
    assert found.code == 0
    for name, each in REPRODUCTIONS.items():
        assert f"{name:26}{each.title}\n" in found.out
    assert "--preset small" in found.out


def test_a_dry_run_counts_the_runs_and_writes_nothing(layline, tmp_path):
    out = tmp_path / "out"
    found = layline("reproduce", "all", "--dry-run", "--out", out)
    *lines, last = found.out.splitlines()
    assert last == "560 runs, 446 of them different"
    assert len(lines) == 560 + 1
    assert len({line.split()[0] for line in lines}) == 446 + 1
    (impossible,) = [line for line in lines if line.startswith("impossible")]
    assert "figure-dimension  H-S  1  dim must be at least 2" in impossible
    assert not out.exists()


def test_the_papers_runs_can_be_listed_without_its_data(layline):
    found = layline("reproduce", "table-norm", "figure-scale", "--preset", "paper", "--dry-run")
    assert found.out.splitlines()[-1] == "200 runs, 200 of them different"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-norms"], "NAME must be a known name, got 'table-norms': did you mean table-norm"),
        (["all", "--preset", "big"], "--preset must be a known name, got 'big'"),
        (["table-norm", "--root", "somewhere"], "--root must be SOURCE=PATH, got 'somewhere'"),
        (["table-norm", "--root", "coco=here"], "--root must be a known name, got 'coco'"),
        (["figure-tau", "--source", "folder"], "--root PATH must be given"),
        (
            ["figure-tau", "--source", "folder", "--root", "a", "--root", "b"],
            "--root must be given once with --source, got 2",
        ),
        (["figure-tau", "--set", "training.seed=1"], "training.seed must not be set"),
        (["figure-tau", "--set", "training=1"], "training must be a section"),
        (["figure-tau", "--set", "training.epoch=1"], "training.epoch: is no setting"),
        (
            ["figure-tau", "--preset", "paper", "--partitions", "9"],
            "--partitions must be at most 5 for Adience Face, got 9",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_run(refused, tmp_path, arguments, message):
    assert message in refused("reproduce", *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_data_of_the_paper_are_named_with_their_origin(refused, tmp_path):
    asked = (
        "reproduce",
        "table-historical-adience",
        "--preset",
        "paper",
        "--out",
        tmp_path / "out",
    )
    sentence = refused(*asked, "--root", f"adience={tmp_path}")
    assert "--root historical-color=PATH must be given: the data come from Palermo" in sentence
    assert "adience" not in sentence
    assert "image-aesthetics" not in sentence


@pytest.mark.slow
def test_a_figure_of_own_photographs_is_run_once_and_written(layline, photos, tmp_path):
    out = tmp_path / "out"
    own = ["--source", "folder", "--root", photos, "--set", "data.size=16", "--partitions", "1"]
    small = ["--epochs", "1", "--jobs", "1", "--set", "backbone.options.channels=4"]
    asked = ["reproduce", "figure-layouts", *own, *small, "--out", out]
    found = layline(*asked)
    assert found.code == 0, found.err
    assert "Not the paper's data: Adience Face is folder" in found.out
    assert (out / "figure-layouts" / "figure.html").exists()
    frame = pd.read_csv(out / "figure-layouts" / "cells.csv")
    assert frame["row"].tolist() == ["H-L", "H-S", "S-P", "S-B"]
    assert frame["mae"].between(0, 2).all()
    again = layline(*asked)
    assert again.out == found.out
    assert "4 runs, 4 of them finished before" in again.err


@pytest.fixture
def one_of_each_kind(monkeypatch):
    """Of the runs that differ in the value of an option alone, train one; the others are copies."""
    trained, train = {}, runner._train

    def train_or_copy(cell, store, begin, command):
        config, place = cell.config, store.run_folder(cell).path
        kind = (config.head.method, *sorted(config.head.options), config.recipe)
        kind += (config.data.source, config.report.enabled)
        if kind not in trained:
            trained[kind] = place, train(cell, store, begin, command)
        elif trained[kind][0] != place:
            shutil.copytree(trained[kind][0], place, dirs_exist_ok=True)
        return replace(trained[kind][1], **Outcome.about(cell))

    monkeypatch.setattr(runner, "_train", train_or_copy)
    return trained


@pytest.mark.slow
def test_everything_runs_from_end_to_end_in_a_very_small_size(layline, tmp_path, one_of_each_kind):
    out = tmp_path / "out"
    found = layline("reproduce", "all", *TINY, "--out", out)
    assert found.code == 0, found.err
    for name in REPRODUCTIONS:
        files = {path.name for path in (out / name).iterdir()}
        assert {"table.md", "table.tex", "table.csv", "cells.csv"} <= files
        assert ("figure.html" in files) is name.startswith("figure")
        table = pd.read_csv(out / name / "table.csv")
        assert (table["mean"].notna() | table["note"].notna()).all(), name
        assert (out / name / "table.md").read_text() in found.out
    runs = len(list(out.glob("cells/*/outcome.json")))
    assert f"{runs} runs" in found.err
    assert 10 < len(one_of_each_kind) < runs
