"""A grid runs each cell once, however often it is started."""

import sys

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from sklearn.metrics import accuracy_score, cohen_kappa_score, mean_absolute_error

from layline.experiments import cells as cells_module
from layline.experiments import runner
from layline.experiments.engines import engine
from layline.experiments.grid import Grid
from layline.experiments.runner import Place
from layline.experiments.store import Store


def test_every_number_can_be_recomputed_from_the_cells(grid, tmp_path, go):
    go(grid, tmp_path)
    store = Store(tmp_path)
    cells = {tuple(cell.labels.values()): cell for cell in grid.cells()}
    frame = store.frame(grid.cells(), grid.decodings)
    assert len(frame) == len(cells) * 2
    for row in frame.to_dict("records"):
        cell = cells[tuple(row[name] for name in ("data", "method", "features", "setting", "seed"))]
        lines = pd.read_csv(store.run_folder(cell).predictions)
        shares = lines.iloc[:, -3:].to_numpy()
        by = {
            "mode": shares.argmax(axis=1),
            "median": (shares.cumsum(axis=1) < 0.5 - 1e-12).sum(axis=1),
        }
        truth = lines["true"].to_numpy()
        chosen = by[row["decode"]]
        assert row["mae"] == pytest.approx(mean_absolute_error(truth, chosen))
        assert row["accuracy"] == pytest.approx(accuracy_score(truth, chosen))
        assert row["qwk"] == pytest.approx(cohen_kappa_score(truth, chosen, weights="quadratic"))
        steps = np.cumsum(np.eye(3)[truth] - shares, axis=1)[:, :-1] ** 2
        assert row["rps"] == pytest.approx(steps.sum(axis=1).mean() / 2, rel=1e-5)
        best = min(line["validation_mae"] for line in store.run_folder(cell).read_history())
        assert row["validation_mae"] == best


def test_finished_cells_are_never_run_again(grid, tmp_path, go):
    go(grid, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("outcome.json")}
    assert len(before) == 4
    failed, said = go(grid, tmp_path)
    assert failed == []
    assert "4 runs, 4 of them finished before" in said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("outcome.json")} == before


def test_a_grown_grid_runs_only_what_is_new(grid, tmp_path, go):
    go(grid, tmp_path)
    failed, said = go(grid.model_copy(update={"seeds": [0, 1, 2]}), tmp_path)
    assert failed == []
    assert "6 runs, 4 of them finished before" in said


def test_weights_are_kept_if_that_is_wanted(grid, tmp_path, go):
    small = grid.model_copy(update={"seeds": [0]})
    go(small, tmp_path / "without")
    go(small, tmp_path / "with", keep_models=True)
    assert not list(tmp_path.glob("without/cells/*/best.safetensors"))
    assert len(list(tmp_path.glob("with/cells/*/best.safetensors"))) == 2


def test_a_cell_that_fails_is_noted_and_tried_again(tree, tmp_path, ratings, go, results):
    missing = tmp_path / "later.csv"
    tree["data"].append({**tree["data"][0], "name": "later", "root": str(missing)})
    grid = Grid.model_validate(tree)
    failed, said = go(grid, tmp_path / "out")
    assert {cell.labels["data"] for cell in failed} == {"later"}
    assert len(failed) == 4
    assert "later hard-linear mlp 0 failed: FileNotFoundError: root must exist" in said
    frame = results(grid, tmp_path / "out")
    wrong = frame[frame["data"] == "later"]
    assert wrong["error"].str.startswith("FileNotFoundError: root must exist").all()
    assert wrong["mae"].isna().all()
    assert (frame[frame["data"] == "ratings"]["error"] == "").all()
    missing.write_bytes(ratings.read_bytes() + b"0.5,0.5,2\n")  # else it would be the same data
    failed, said = go(grid, tmp_path / "out")
    assert failed == []
    assert "8 runs, 4 of them finished before" in said


def test_a_loss_that_is_not_finite_is_a_failure_of_its_cell_alone(tree, tmp_path, go):
    tree["tune"] = {"training.learning_rate": [1e-3, 1e30]}
    grid = Grid.model_validate({**tree, "methods": ["classification"], "seeds": [0]})
    failed, _ = go(grid, tmp_path)
    assert [cell.labels["setting"] for cell in failed] == ["training.learning_rate=1e+30"]
    assert "FloatingPointError" in Store(tmp_path).find(failed[0]).error


def test_results_of_another_version_are_not_mixed_in(grid, tmp_path, monkeypatch, go):
    small = grid.model_copy(update={"seeds": [0]})
    for module in (cells_module, runner, sys.modules["layline.experiments.execution"]):
        monkeypatch.setattr(module, "code_version", lambda: "0.0.1+old")
    monkeypatch.setattr(sys.modules["layline.experiments.store"], "code_version", lambda: "x")
    store = Store(tmp_path)
    with engine("local", 1, None) as call:  # one job runs in this process, with what is patched
        for cell, outcome in call(
            runner.execute, [(cell, tmp_path, "0.0.1+old", False) for cell in small.cells()]
        ):
            assert outcome.error == ""
            assert store.is_done(cell)
    monkeypatch.undo()
    assert not any(Store(tmp_path).is_done(cell) for cell in small.cells())
    kept = Store(tmp_path, any_version=True)
    assert all(kept.is_done(cell) for cell in small.cells())
    assert set(kept.frame(small.cells())["version"]) == {"0.0.1+old"}
    failed, said = go(small, tmp_path, any_version=True)
    assert (failed, said) == ([], "2 runs, 2 of them finished before\n")
    failed, said = go(small, tmp_path)
    assert (failed, said.splitlines()[0]) == ([], "2 runs")


def test_two_grids_do_not_share_a_folder_at_once(grid, tmp_path, go):
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(ValueError, match="out must be used by one grid at a time"),
    ):
        go(grid, tmp_path)


@pytest.mark.parametrize(("threads", "jobs"), [(1, None), (2, None), (1000, None), (1, 3)])
def test_runs_at_once_fit_the_processors(threads, jobs):
    found = Place(jobs=jobs).jobs_of(threads)
    cores = runner.cpu_count()
    assert found == (jobs or max(1, cores // threads))
