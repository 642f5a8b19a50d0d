"""Outcomes on disk: damage, merging, foreign folders and file systems without locks."""

import json
import shutil

import pandas as pd
import pytest
from filelock import FileLock

from layline.bench.store import Outcome, Store

NUMBERS = {"mode": {"mae": 0.5}, "median": {"mae": 0.5}}


def finish(store, cell, **others):
    store.start(cell)
    store.finish(cell, Outcome(cell.key, **{"numbers": NUMBERS, **others}))


@pytest.mark.parametrize("text", ["", "{}", '{"key": ', '{"key": "x", "epoch": "a"}'])
def test_a_damaged_outcome_is_missing(grid, tmp_path, text):
    store, cell = Store(tmp_path), grid.cells()[0]
    finish(store, cell)
    assert store.is_done(cell)
    (store.run_folder(cell).path / "outcome.json").write_text(text)
    assert store.find(cell) is None
    assert store.frame([cell]).empty


@pytest.mark.parametrize(
    ("files", "fits"),
    [
        ([], True),
        ([".lock"], True),
        (["grid.toml", "cells/a/outcome.json"], True),
        (["config.toml", "environment.json", "report.html"], False),
        (["results.csv", "grid.toml"], False),  # of an earlier version, without keys
    ],
)
def test_only_folders_of_grids_are_written_to(tmp_path, files, fits):
    for name in files:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("data,seed\n")
    if fits:
        Store(tmp_path / "out").check_folder([])
    else:
        with pytest.raises(ValueError, match="contains other files"):
            Store(tmp_path / "out").check_folder([])


def test_published_results_are_extended_without_their_runs(grid, tmp_path):
    cells = grid.cells()
    store = Store(tmp_path / "first")
    finish(store, cells[0], environment={"torch": "2"}, seconds=1.5, epoch=3, samples=7)
    finish(store, cells[1], error="RuntimeError: full", numbers={})
    frame = store.write_results(grid, cells)
    published = Store(tmp_path / "published")
    published.folder.mkdir()
    for name in ("results.csv", "environment.json"):
        shutil.copy(store.folder / name, published.folder / name)
    (published.folder / "grid.toml").touch()
    published.check_folder(cells)
    with pytest.raises(ValueError, match="results of another grid"):
        published.check_folder(cells[1:])
    assert [published.is_done(cell) for cell in cells[:3]] == [True, False, False]
    pd.testing.assert_frame_equal(published.frame(cells, grid.used_decodings()), frame)
    finish(published, cells[2])
    assert len(published.write_results(grid, cells)) > len(frame)
    about = json.loads((published.folder / "environment.json").read_text())
    assert (about["torch"], about["runs"]) == ("2", 3)
    published.remove_published(cells[:1])
    assert not published.is_done(cells[0])
    assert not Store(published.folder).is_done(cells[0])
    (published.folder / "cells" / "other").mkdir()
    with pytest.raises(ValueError, match="results of another grid"):
        published.check_folder(cells[2:])


def test_two_grids_do_not_share_a_folder_at_once(grid, tmp_path, go):
    with FileLock(tmp_path / ".lock"), pytest.raises(ValueError, match="Another process"):
        go(grid, tmp_path)


@pytest.mark.parametrize("error", [NotImplementedError("locks"), OSError(38, "not implemented")])
def test_a_file_system_without_locks_works(grid, tmp_path, go, monkeypatch, error):
    def acquire(self, *arguments, **options):
        raise error

    monkeypatch.setattr("layline.bench.store.FileLock.acquire", acquire)
    monkeypatch.setattr("layline.bench.runner.train_run", lambda *_: None)  # it is about the store
    failed, log = go(grid.model_copy(update={"seeds": [0], "methods": ["sord"]}), tmp_path)
    assert len(failed) == 1
    assert "does not support locks" in log
