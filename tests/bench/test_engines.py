"""Wherever the cells run, the numbers are the same."""

import os
import signal
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
from joblib.externals.loky import process_executor

from layline.bench import engines
from layline.bench.cells import Cell
from layline.bench.engines import Executor, ProcessEndedError
from layline.bench.store import Store


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "dask", "ray"])
def test_every_engine_gives_the_same_numbers(
    grid, tmp_path, undisturbed, name, go, results, monkeypatch
):
    expected = undisturbed(grid)
    monkeypatch.setattr(sys, "argv", ["/bin/layline", "bench", "ratings.csv"])
    failed, said = go(grid, tmp_path, Executor(name, jobs=2 if name == "local" else 1))
    assert failed == []
    lines = said.splitlines()[1:]  # one for each run, as it ends
    assert [line.partition("  ")[0] for line in lines] == ["1/4", "2/4", "3/4", "4/4"]
    assert all(line.endswith(" left") for line in lines)
    pd.testing.assert_frame_equal(results(grid, tmp_path), expected)
    commands = [each["command"] for each in Store(tmp_path).environments(grid.cells())]
    assert commands == [["layline", "bench", "ratings.csv"]] * 4  # of the grid, not of a worker


def _square(cell):
    return int(cell.labels["seed"]) ** 2, os.getpid()


def _die_with_one(cell):
    if cell.labels["seed"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return _square(cell)


@pytest.fixture
def cells(grid):
    return [Cell(grid.cells()[0].config, {"seed": str(number)}) for number in range(4)]


def test_a_pool_gives_each_cell_with_what_came_of_it(cells):
    with Executor(jobs=1).start() as pool:
        found = [(cell.name, result) for cell, (result, _) in pool.run(_square, cells)]
    assert found == [("0", 0), ("1", 1), ("2", 4), ("3", 9)]


@pytest.mark.slow
def test_a_process_that_dies_takes_no_other_with_it(cells):
    with Executor(jobs=2).start() as pool:
        found = {cell.name: result for cell, result in pool.run(_die_with_one, cells)}
        again = {cell.name: result for cell, result in pool.run(_square, cells)}
    assert isinstance(found["1"], ProcessEndedError)
    assert {name: found[name][0] for name in "023"} == {"0": 0, "2": 4, "3": 9}
    assert {name: result for name, (result, _) in again.items()} == {"0": 0, "1": 1, "2": 4, "3": 9}
    pids = {pid for _, pid in again.values()}
    assert len(pids) <= 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def _seem_to_have_grown():
    """Let loky replace this process, as it does with one whose memory has grown."""
    process_executor._MEMORY_LEAK_CHECK_DELAY, process_executor._MAX_MEMORY_LEAK_SIZE = 0, -(2**60)


def _wait_to_be_told(ready):
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    ready.touch()
    return told.wait(20)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A worker stopped while some jobs")
def test_a_process_that_took_the_place_of_another_is_told_to_stop(tmp_path):
    process = engines._Process(threads=1)
    assert len(process.executor._processes) == 1  # it is started where SIGUSR1 is ignored
    try:
        first = process.executor.submit(os.getpid).result()
        for task in (_seem_to_have_grown, os.getpid, os.getpid):  # it is looked at after each
            last = process.executor.submit(task).result()
        assert last != first
        future, ready = process.executor.submit(_wait_to_be_told, tmp_path / "ready"), False
        while not ready and not future.done():
            ready = (tmp_path / "ready").exists()
        process.terminate()
        assert future.result()
    finally:
        process.executor.shutdown(kill_workers=True)


def test_what_is_interrupted_is_told_to_stop(grid):
    told = []

    class Stoppable(FakePool):
        def stop(self):
            told.append(True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engines.ENGINES, "local", lambda *_: nullcontext(Stoppable()))
        with pytest.raises(KeyboardInterrupt), Executor().start():
            raise KeyboardInterrupt
        with Executor().start():
            pass
        with pytest.raises(ValueError, match="x"), Executor().start():
            raise ValueError("x")
    assert told == [True]


class FakePool(engines.Pool):
    def __init__(self):
        super().__init__(1)

    def _submit(self, function, cell): ...

    def _wait(self, running): ...

    def _result(self, future): ...


def test_the_runs_of_one_grid_are_stopped_and_not_those_of_another(monkeypatch):
    monkeypatch.setattr(engines, "_STOPS", {})
    one, other = engines.stop_event("one"), engines.stop_event("other")
    engines.stop_runs("one")
    assert (one.is_set(), other.is_set()) == (True, False)
    engines.stop_runs()  # a worker is closed
    assert other.is_set()


def test_the_local_engine_has_no_address():
    with (
        pytest.raises(ValueError, match="address must be left out"),
        Executor("local", 1, "tcp://").start(),
    ):
        pass


def test_an_unknown_engine_is_named():
    wrong = r"engine must be a known name, got 'dusk': did you mean dask"
    with pytest.raises(ValueError, match=wrong), Executor("dusk").start():
        pass
