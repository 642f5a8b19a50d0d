"""A grid runs each cell once, also where it or one of its processes is killed."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from joblib import cpu_count
from rich.console import Console
from sklearn.metrics import accuracy_score, cohen_kappa_score, mean_absolute_error

from layline.bench import cells as cells_module
from layline.bench import runner
from layline.bench.cells import Cell
from layline.bench.code_version import code_version
from layline.bench.engines import Executor, Pool, ProcessEndedError
from layline.bench.grid import Grid
from layline.bench.results import differing_environments, write_results
from layline.bench.store import Outcome, Store

KILLED = """
import io, sys
from pathlib import Path
from rich.console import Console
from layline.bench.grid import read_grid
from layline.bench.runner import GridProgress
from layline.bench.engines import Executor
from layline.bench.runner import run_grid
from layline.bench.store import Store
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


def test_the_time_left_knows_how_long_a_run_on_each_data_set_takes(grid):
    cell, said = grid.cells()[0], io.StringIO()
    small, large = (replace(cell, labels={"data": name}) for name in ("small", "large"))
    progress = runner.GridProgress(Console(file=said, width=200))
    progress.start([small, small, small, large, large, large], 0)
    for each, seconds in ((small, 2.0), (large, 60.0), (large, 62.0)):
        outcome = Outcome(**Outcome.about(each), error="ValueError: none", seconds=seconds)
        progress.show(each, outcome, jobs=1)
    endings = [line.rpartition("  ")[2] for line in said.getvalue().splitlines()[1:]]
    assert endings == ["0:10 left, 1 data set not yet begun", "2:04 left", "1:05 left"]


def test_a_cell_that_fails_is_noted_and_tried_again(tree, tmp_path, ratings, go, results):
    missing = tmp_path / "later.csv"
    tree["data"].append({**tree["data"][0], "name": "later", "root": str(missing)})
    grid = Grid.model_validate(tree)
    failed, said = go(grid, tmp_path / "out")
    assert {cell.labels["data"] for cell in failed} == {"later"}
    assert len(failed) == 4
    assert "later hard-linear paper mlp 0 failed: FileNotFoundError: root must exist" in said
    assert said.splitlines()[-1].startswith("8/8  ")
    assert said.splitlines()[-1].endswith("  0:00 left")
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
    for module in (cells_module, runner):
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
    assert failed == []
    why, count, *_ = said.splitlines()
    assert why.startswith("2 runs are made again: the code has changed since (from 0.0.1+old to ")
    assert count == "2 runs"


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
        outcome = Outcome(**Outcome.about(cell), numbers={"mode": {"mae": 0.5}})
        store.finish(cell, outcome)
    thread.join(timeout=60)
    assert [each.numbers for each in found] == [outcome.numbers]


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "whole", "moments"), [(1, True, (0, 2)), (2, False, (2,))])
def test_a_killed_grid_goes_on_to_the_same_table(
    tree, tmp_path, undisturbed, jobs, whole, moments, go, results
):
    """In the midst of the first cells, and of the last ones.

    Also where its workers outlive it, and are still at their cells when it starts again.
    """
    tree["settings"]["training"] |= {"epochs": 12, "checkpoint_minutes": 0.0}
    grid = Grid.model_validate(tree)
    file, out = tmp_path / "grid.toml", tmp_path / "out"
    file.write_text(grid.to_toml())
    for finished in moments:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file), str(out), str(jobs)],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(partial(in_the_midst, out, finished))
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
def test_a_worker_that_is_told_to_end_saves_and_ends_and_its_cell_goes_on(
    tree, tmp_path, go, results, undisturbed
):
    """A polite kill of one process is no failure of its cell, and the other goes on."""
    tree["settings"]["training"]["epochs"] = 60
    grid = Grid.model_validate({**tree, "seeds": [0]})
    told, states = [], []

    def tell() -> None:
        wait_for(lambda: len(list(tmp_path.glob("cells/*/history.jsonl"))) == 2)
        mark = Store(tmp_path).folder_of(grid.cells()[0])
        told.append(int((mark / "started").read_text()))
        os.kill(told[0], signal.SIGTERM)
        wait_for(lambda: not Path(f"/proc/{told[0]}").exists())
        states.extend((mark / "state").glob("epoch-*"))

    thread = threading.Thread(target=tell)
    thread.start()
    failed, said = go(grid, tmp_path, Executor(jobs=2))
    thread.join()
    assert told
    assert failed == []
    assert "failed" not in said
    assert len(states) == 1
    pd.testing.assert_frame_equal(results(grid, tmp_path), undisturbed(grid))


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


class FakePool(Pool):
    """Runs cells at once, here; those with some keys end their process."""

    def __init__(self, deadly=(), times=2):
        super().__init__(2, 2)
        self.deadly = dict.fromkeys(deadly, times)
        self.calls = []

    def run(self, function, cells):
        cells = list(cells)
        self.calls.append([cell.key for cell in cells])
        return super().run(function, cells)

    def _submit(self, function, cell):
        return cell.key

    def _wait(self, running):
        return list(running)

    def _result(self, key):
        if self.deadly.get(key, 0) > 0:
            self.deadly[key] -= 1
            return ProcessEndedError("killed")
        return Outcome("x", "v", numbers={"mode": {"mae": 0.5}})


@pytest.mark.parametrize(("times", "fails"), [(1, False), (2, True)])
def test_a_cell_whose_process_dies_is_tried_again_alone(grid, times, fails):
    """Most often the memory was full; only where it dies alone it is the cause."""
    cells = grid.cells()
    deadly = cells[1].key
    pool = FakePool([deadly], times)
    found = {cell.key: outcome for cell, outcome in runner._outcomes(cells, pool, None)}
    assert set(found) == {cell.key for cell in cells}
    failed = {key for key, outcome in found.items() if outcome.error}
    assert failed == ({deadly} if fails else set())
    assert pool.calls == [[cell.key for cell in cells], [deadly]]


def test_a_death_while_features_are_extracted_is_left_to_the_cells(grid):
    cells = []
    for cell in grid.cells():
        features = cell.config.backbone.model_copy(update={"freeze": True})
        config = cell.config.model_copy(update={"backbone": features})
        cells.append(replace(cell, config=config))
    pool = FakePool([cell.key for cell in cells])
    runner._extract_shared_features(cells, pool)
    assert sum(len(call) for call in pool.calls) == 1  # all share theirs


def test_an_error_of_the_engine_itself_is_not_hidden(grid):
    class Broken(FakePool):
        def _wait(self, running):
            raise ConnectionError("no scheduler")

    with pytest.raises(ConnectionError, match="no scheduler"):
        list(runner._outcomes(grid.cells(), Broken(), None))


def test_data_that_change_while_a_grid_runs_fail_its_runs(tree, tmp_path, ratings, go):
    """What they would give would be kept under the name of other data."""
    own = tmp_path / "own.csv"
    own.write_bytes(ratings.read_bytes())
    tree["data"][0]["root"] = str(own)
    grid = Grid.model_validate(tree)
    cells = grid.cells()
    own.write_bytes(ratings.read_bytes() + b"0.5,0.5,2\n")
    outcome = runner.run_cell(cells[0], tmp_path / "out", code_version(), False)
    assert outcome.error.startswith("RuntimeError: the data must stay as they were when the grid")
    assert not Store(tmp_path / "out").is_done(cells[0])
    assert go(grid, tmp_path / "out")[0] == []


def test_the_environment_is_that_of_the_runs(grid, tmp_path, go, monkeypatch):
    small = grid.model_copy(update={"seeds": [0]})
    with monkeypatch.context() as first:
        first.setattr(sys, "argv", ["/bin/layline", "bench", "ratings.csv"])
        go(small, tmp_path)
    with monkeypatch.context() as second:
        second.setattr(sys, "argv", ["/bin/layline", "bench", "--out", "out"])
        go(grid, tmp_path)
    store, cells = Store(tmp_path), grid.cells()
    run = store.run_folder(cells[0]).read_environment()
    assert run["command"] == ["layline", "bench", "ratings.csv"]
    assert (run["torch"], run["threads"]) == (torch.__version__, 1)
    environments = store.environments([*cells, *cells])
    assert len(environments) == 4
    monkeypatch.setattr(torch, "__version__", "0.0")  # whoever writes the table
    write_results(grid, cells, store)
    written = json.loads((tmp_path / "environment.json").read_text())
    assert written["torch"] == run["torch"]
    assert written["command"] == [
        {"value": ["layline", "bench", "ratings.csv"], "runs": 2},
        {"value": ["layline", "bench", "--out", "out"], "runs": 2},
    ]
    assert (written["runs"], written["layline"]) == (4, [code_version()])
    assert differing_environments(store, cells) == []
    outcome = store.find(cells[3])
    other = replace(outcome, environment={**outcome.environment, "torch": "1.9"})
    store.finish(cells[3], other)
    (sentence,) = differing_environments(store, cells)
    assert sentence == f"The runs differ in torch: {run['torch']} (3 runs), 1.9 (1 run)"


class Gpus:
    """What ``torch.accelerator`` says where there are some."""

    def __init__(self, count):
        self.device_count = lambda: count

    def is_available(self):
        return self.device_count() > 0

    def current_accelerator(self):
        return torch.device("cuda")


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """Say that there are so many GPUs."""
    monkeypatch.setattr(runner.tempfile, "gettempdir", lambda: str(tmp_path))
    return lambda count: monkeypatch.setattr(torch, "accelerator", Gpus(count))


def on_device(grid, device):
    grid = grid.model_copy(
        update={"settings": {**grid.settings, "training": {"epochs": 1, "device": device}}}
    )
    return grid.cells()[0]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_runs_are_placed_on_gpus_in_turn(grid, gpus, device):
    cell = on_device(grid, device)
    gpus(2)
    with ExitStack() as running:
        places = [running.enter_context(runner.placed(cell.config)) for _ in range(5)]
        devices = [config.training.device for config in places]
        assert devices == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert {Cell(config, cell.labels).key for config in places} == (
        {cell.key} if device == "cuda" else {on_device(grid, "cuda").key}
    )
    with runner.placed(cell.config) as first, runner.placed(cell.config) as second:
        assert first.training.device == "cuda:0"  # places that are free again are taken again
        assert second.training.device == "cuda:1"


@pytest.mark.parametrize(
    ("count", "device"), [(0, "auto"), (1, "auto"), (2, "cpu"), (2, "cuda:1"), (2, "mps")]
)
def test_what_has_one_place_stays_there(grid, gpus, count, device):
    cell = on_device(grid, device)
    gpus(count)
    with runner.placed(cell.config) as config:
        assert config == cell.config


def test_a_run_trains_where_it_is_placed(grid, gpus, tmp_path, monkeypatch):
    cell = on_device(grid, "auto")
    gpus(2)
    seen = []

    def trained(config, *others):
        seen.append(config.training.device)
        raise OSError("no GPU here")

    monkeypatch.setattr(runner, "train", trained)
    with runner.placed(cell.config):  # another run
        runner.run_cell(cell, tmp_path / "out", code_version(), False)
    assert seen == ["cuda:1"]


@pytest.mark.parametrize(("count", "jobs", "expected"), [(2, None, 2), (2, 5, 5), (0, 3, 3)])
def test_as_many_runs_at_once_as_there_are_gpus(count, jobs, expected):
    assert Executor(jobs=jobs).jobs_for(1, count) == expected
