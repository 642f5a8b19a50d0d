"""A grid runs each cell once, also if one of its processes is killed."""

import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score, mean_absolute_error

from layline.bench import runner
from layline.bench.grid import Grid
from layline.bench.runner import Job, run_cell
from layline.bench.store import RUNNING, Store


def job_in(folder):
    return Job(folder, keep_models=False, command=("layline",), process=os.getpid())


def wait_for(condition, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.02)


def test_every_number_can_be_recomputed_from_the_cells(grid, tmp_path, go):
    go(grid, tmp_path)
    store = Store(tmp_path)
    cells = {tuple(cell.labels.values()): cell for cell in grid.cells()}
    labels = list(grid.cells()[0].labels)
    frame = store.frame(grid.cells(), grid.used_decodings())
    assert len(frame) == len(cells) * 2
    for row in frame.to_dict("records"):
        cell = cells[tuple(row[name] for name in labels)]
        lines = pd.read_csv(store.run_folder(cell).predictions)
        shares, truth = lines.iloc[:, -3:].to_numpy(), lines["true"].to_numpy()
        by = {
            "mode": shares.argmax(axis=1),
            "median": (shares.cumsum(axis=1) < 0.5 - 1e-12).sum(axis=1),
        }
        chosen = by[row["decode"]]
        assert row["mae"] == pytest.approx(mean_absolute_error(truth, chosen))
        assert row["accuracy"] == pytest.approx(accuracy_score(truth, chosen))
        assert row["qwk"] == pytest.approx(cohen_kappa_score(truth, chosen, weights="quadratic"))
        steps = np.cumsum(np.eye(3)[truth] - shares, axis=1)[:, :-1] ** 2
        assert row["rps"] == pytest.approx(steps.sum(axis=1).mean() / 2, rel=1e-5)
        history = store.run_folder(cell).read_history()
        assert row["criterion"] == min(line["validation_mae"] for line in history)


def test_finished_cells_run_again_only_if_wanted(grid, tmp_path, go, results):
    def written():
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("outcome.json")}

    go(grid, tmp_path)
    before, numbers = written(), results(grid, tmp_path)
    assert len(before) == 4
    failed, log = go(grid, tmp_path)
    assert (failed, log) == ([], "4 runs, 4 finished before\n")
    assert written() == before
    failed, log = go(grid.model_copy(update={"seeds": [0, 1, 2]}), tmp_path)
    assert "6 runs, 4 finished before" in log
    go(grid, tmp_path, rerun=True)
    assert all(written()[path] > time for path, time in before.items())
    pd.testing.assert_frame_equal(results(grid, tmp_path), numbers)


def test_a_failed_cell_is_recorded_and_tried_again(tree, tmp_path, ratings, go, results):
    missing = tmp_path / "later.csv"
    tree["data"].append({**tree["data"][0], "name": "later", "root": str(missing)})
    grid = Grid.model_validate(tree)
    failed, log = go(grid, tmp_path / "out")
    assert [cell.labels["data"] for cell in failed] == ["later"] * 4
    assert "later hard-linear paper mlp 0  failed: FileNotFoundError" in log
    frame = results(grid, tmp_path / "out")
    wrong = frame["data"] == "later"
    assert frame[wrong]["error"].str.startswith("FileNotFoundError").all()
    assert frame[wrong]["mae"].isna().all()
    assert (frame[~wrong]["error"] == "").all()
    missing.write_bytes(ratings.read_bytes() + b"0.5,0.5,2\n")  # else it would be the same data
    failed, log = go(grid, tmp_path / "out")
    assert failed == []
    assert "8 runs, 4 finished before" in log


def test_data_that_change_while_a_grid_runs_fail_its_runs(tree, tmp_path, ratings):
    own = tmp_path / "own.csv"
    own.write_bytes(ratings.read_bytes())
    tree["data"][0]["root"] = str(own)
    cell = Grid.model_validate(tree).cells()[0]
    own.write_bytes(ratings.read_bytes() + b"0.5,0.5,2\n")
    assert "The data changed" in run_cell(cell, job_in(tmp_path / "out")).error


def test_runs_take_gpus_in_turn(grid, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(runner, "gpus_for", lambda *_: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(runner, "train_run", lambda config, *_: seen.append(config.training.device))
    for place, cell in enumerate(grid.cells()):
        run_cell(cell, job_in(tmp_path), place)
    assert seen == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_every_backend_gives_the_same_numbers(grid, tmp_path, undisturbed, backend, go, results):
    expected = undisturbed(grid)
    if backend == "loky":
        failed, log = go(grid, tmp_path, jobs=2)
    else:
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as cluster:
            failed, log = go(grid, tmp_path, jobs=None, dask=cluster.scheduler_address)
    assert failed == []
    assert [line.partition("  ")[0] for line in log.splitlines()[1:]] == [
        f"{number}/4" for number in range(1, 5)
    ]
    pd.testing.assert_frame_equal(results(grid, tmp_path), expected)


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_saves_and_its_cell_is_resumed(
    tree, tmp_path, go, results, undisturbed
):
    tree["settings"]["training"]["epochs"] = 80
    grid = Grid.model_validate({**tree, "seeds": [0]})
    folder = Store(tmp_path).run_folder(grid.cells()[0])
    states = []

    def tell() -> None:
        wait_for(folder.history.exists)
        os.kill(int((folder.path / RUNNING).read_text()), signal.SIGTERM)
        wait_for(folder.state.exists)
        states.append(folder.state)

    thread = threading.Thread(target=tell)
    thread.start()
    failed, log = go(grid, tmp_path, jobs=2)
    thread.join()
    assert len(states) == 1
    assert failed == []
    assert "failed" not in log
    pd.testing.assert_frame_equal(results(grid, tmp_path), undisturbed(grid))


@pytest.mark.slow
def test_processes_that_die_fail_only_their_cells(tree, tmp_path, go):
    plugin = tmp_path / "mortal.py"
    plugin.write_text(
        "import os\n"
        "class Estimator:\n"
        "    def __init__(self, dies): self.dies = dies\n"
        "    def fit(self, x, y): os._exit(1) if self.dies else None\n"
        "    def predict(self, x): return x[:, 0]\n"
    )
    mortal = {"name": "m", "estimator": f"{plugin}:Estimator", "tune": {"dies": [*range(1, 8), 0]}}
    grid = Grid.model_validate({**tree, "methods": [], "baselines": [mortal], "seeds": [0]})
    failed, log = go(grid, tmp_path / "out", jobs=2)
    assert failed == [cell for cell in grid.cells() if cell.labels["setting"] != "dies=0"]
    assert log.count("ended without a result") == 7
