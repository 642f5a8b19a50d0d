"""A grid runs each cell once, also where it or one of its processes is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from joblib import cpu_count
from sklearn.metrics import accuracy_score, cohen_kappa_score, mean_absolute_error

from layline.experiments import runner
from layline.experiments import store as store_module
from layline.experiments.engines import Executor
from layline.experiments.grid import Grid
from layline.experiments.store import Outcome, Store, code_version

KILLED = """
import io, sys
from pathlib import Path
from rich.console import Console
from layline.experiments.grid import read_grid
from layline.experiments.runner import GridProgress
from layline.experiments.engines import Executor
from layline.experiments.runner import run_grid
from layline.experiments.store import Store
grid = read_grid(Path(sys.argv[1]))
console = Console(file=sys.stdout, width=200)
run_grid(
    grid.cells(), Store(Path(sys.argv[2])), GridProgress(console), Executor(jobs=int(sys.argv[3]))
)
"""


def test_every_number_can_be_recomputed_from_the_cells(grid, tmp_path, go):
    go(grid, tmp_path)
    store = Store(tmp_path)
    cells = {tuple(cell.labels.values()): cell for cell in grid.cells()}
    labels = list(grid.cells()[0].labels)
    frame = store.frame(grid.cells(), grid.read_by())
    assert len(frame) == len(cells) * 2
    for row in frame.to_dict("records"):
        cell = cells[tuple(row[name] for name in labels)]
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
    assert "later hard-linear paper mlp 0 failed: FileNotFoundError: root must exist" in said
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
    for module in (store_module, runner):
        monkeypatch.setattr(module, "code_version", lambda: "0.0.1+old")
    store = Store(tmp_path)
    for cell in small.cells():
        outcome = runner.run_cell(cell, tmp_path, "0.0.1+old", keep_models=False)
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
    found = Executor(jobs=jobs).jobs_for(threads)
    cores = cpu_count()
    assert found == (jobs or max(1, cores // threads))


def test_a_worker_with_other_code_is_refused(grid, tmp_path):
    cell = grid.cells()[0]
    outcome = runner.run_cell(cell, tmp_path, "9.9.9+other", False)
    assert outcome.error.startswith("RuntimeError: version must be 9.9.9+other on every machine")


def test_what_cells_share_is_made_with_their_threads(grid, monkeypatch):
    seen = []
    monkeypatch.setattr(runner, "prepare_features", lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    runner.extract_features(replace(grid.cells()[0], threads=before + 1))
    assert (seen, torch.get_num_threads()) == ([before + 1], before)


def test_a_cell_that_another_process_finishes_is_waited_for(grid, tmp_path):
    cell, store = grid.cells()[0], Store(tmp_path)
    found = []
    with store.lock(cell):
        thread = threading.Thread(
            target=lambda: found.append(runner.run_cell(cell, tmp_path, code_version(), False))
        )
        thread.start()
        time.sleep(0.3)
        assert not found
        outcome = Outcome(cell.config_hash, code_version(), validation_mae=0.5)
        store.finish(cell, outcome)
    thread.join(timeout=60)
    assert found == [(cell, outcome)]


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "whole"), [(1, True), (2, True), (2, False)])
def test_a_killed_grid_goes_on_to_the_same_table(
    tree, tmp_path, undisturbed, jobs, whole, go, results
):
    """Also where its workers outlive it, and are still at their cells when it starts again."""
    tree["settings"]["training"] |= {"epochs": 12, "checkpoint_minutes": 0.0}
    grid = Grid.model_validate(tree)
    file, out = tmp_path / "grid.toml", tmp_path / "out"
    file.write_text(grid.to_toml())
    for early in (True, False):  # in the midst of the first cells, and of the last ones
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file), str(out), str(jobs)],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(partial(in_the_midst, out, 0 if early else 2))
        time.sleep(0.1)
        (os.killpg if whole else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
    assert done(out) < 4
    failed, said = go(grid, out)
    assert failed == []
    assert "of them finished before" in said or not whole
    pd.testing.assert_frame_equal(results(grid, out), undisturbed(grid))


def done(out: Path) -> int:
    return len(list(out.glob("cells/*/outcome.json")))


def in_the_midst(out: Path, finished: int) -> bool:
    """Tell whether a cell is in the midst of its epochs, after so many others."""
    return done(out) >= finished and any(
        (path.parent / "state").exists() and not (path.parent / "outcome.json").exists()
        for path in out.glob("cells/*/started")
    )


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_process_that_dies_fails_its_cell_alone(tree, tmp_path, go):
    tree |= {"methods": ["classification"], "tune": {"training.epochs": [2, 100_000]}}
    grid = Grid.model_validate({**tree, "seeds": [0]})
    (endless,) = [cell for cell in grid.cells() if "100000" in cell.labels["setting"]]
    over, mark = threading.Event(), Store(tmp_path).folder_of(endless) / "started"

    def murder() -> None:
        while not over.wait(0.05):
            if mark.exists() and mark.read_text():
                os.kill(int(mark.read_text()), signal.SIGKILL)
                mark.write_text("")  # it was this one

    thread = threading.Thread(target=murder)
    thread.start()
    try:
        failed, said = go(grid, tmp_path, Executor(jobs=2))
    finally:
        over.set()
        thread.join()
    assert failed == [endless]
    assert "the process of this cell was ended from outside" in said


def test_where_a_process_dies_the_cells_are_tried_one_by_one(grid, tmp_path):
    """Only a cell under which a process dies alone is the cause."""
    cells, store, calls = grid.cells(), Store(tmp_path), []
    deadly = cells[1].key

    class TerminatedWorkerError(Exception):
        pass

    def call(function, cells):
        calls.append([cell.key for cell in cells])
        for cell in cells[:2]:  # two at once
            store.start(cell)
        for cell in cells:
            if cell.key == deadly:
                raise TerminatedWorkerError
            outcome = Outcome(cell.config_hash, "v", numbers={})
            store.finish(cell, outcome)
            yield cell, outcome

    found = {cell.key: outcome for cell, outcome in runner._outcomes(cells, store, call, None)}
    assert {key for key, outcome in found.items() if outcome.error} == {deadly}
    assert set(found) == {cell.key for cell in cells}
    assert [deadly] in calls


def test_a_death_while_features_are_extracted_is_left_to_the_cells(grid):
    class TerminatedWorkerError(Exception):
        pass

    def dies(function, cells):
        raise TerminatedWorkerError
        yield

    def breaks(function, cells):
        raise ConnectionError("no scheduler")
        yield

    runner._extract_shared_features(grid.cells(), dies)
    with pytest.raises(ConnectionError):
        runner._extract_shared_features(grid.cells(), breaks)


def test_an_error_of_the_engine_itself_is_not_hidden(grid, tmp_path):
    def call(function, cells):
        raise ConnectionError("no scheduler")
        yield

    with pytest.raises(ConnectionError, match="no scheduler"):
        list(runner._outcomes(grid.cells(), Store(tmp_path), call, None))
