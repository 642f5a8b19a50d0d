"""A grid that is killed goes on, and so does one whose processes die."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from layline.experiments import runner
from layline.experiments.grid import Grid
from layline.experiments.grid_file import to_toml
from layline.experiments.outcomes import Outcome
from layline.experiments.runner import Place
from layline.experiments.store import Store

KILLED = """
import io, sys
from pathlib import Path
from rich.console import Console
from layline.experiments.grid_file import read_grid
from layline.experiments.progress import GridProgress
from layline.experiments.runner import Place, run
from layline.experiments.store import Store
grid = read_grid(Path(sys.argv[1]), None, {}, {}, {})
console = Console(file=sys.stdout, width=200)
run(grid.cells(), Store(Path(sys.argv[2])), GridProgress(console), Place(jobs=int(sys.argv[3])))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "whole"), [(1, True), (2, True), (2, False)])
def test_a_killed_grid_goes_on_to_the_same_table(
    tree, tmp_path, undisturbed, jobs, whole, go, results
):
    """Also where its workers outlive it, and are still at their cells when it starts again."""
    tree["settings"]["training"] |= {"epochs": 12, "checkpoint_minutes": 0.0}
    grid = Grid.model_validate(tree)
    file, out = tmp_path / "grid.toml", tmp_path / "out"
    file.write_text(to_toml(grid))
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
    over, mark = threading.Event(), Store(tmp_path).place(endless) / "started"

    def murder() -> None:
        while not over.wait(0.05):
            if mark.exists() and mark.read_text():
                os.kill(int(mark.read_text()), signal.SIGKILL)
                mark.write_text("")  # it was this one

    thread = threading.Thread(target=murder)
    thread.start()
    try:
        failed, said = go(grid, tmp_path, Place(jobs=2))
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

    def call(function, arguments):
        calls.append([cell.key for cell, *_ in arguments])
        for cell, *_ in arguments[:2]:  # two at once
            store.start(cell)
        for cell, *_ in arguments:
            if cell.key == deadly:
                raise TerminatedWorkerError
            outcome = Outcome(cell.wanted, "v", numbers={})
            store.finish(cell, outcome)
            yield cell, outcome

    found = {cell.key: outcome for cell, outcome in runner._survive(cells, store, call, ())}
    assert {key for key, outcome in found.items() if outcome.error} == {deadly}
    assert set(found) == {cell.key for cell in cells}
    assert [deadly] in calls


def test_a_death_while_features_are_extracted_is_left_to_the_cells(grid):
    class TerminatedWorkerError(Exception):
        pass

    def dies(function, arguments):
        raise TerminatedWorkerError
        yield

    def breaks(function, arguments):
        raise ConnectionError("no scheduler")
        yield

    runner._prepare(grid.cells(), dies)
    with pytest.raises(ConnectionError):
        runner._prepare(grid.cells(), breaks)


def test_an_error_of_the_engine_itself_is_not_hidden(grid, tmp_path):
    def call(function, arguments):
        raise ConnectionError("no scheduler")
        yield

    with pytest.raises(ConnectionError, match="no scheduler"):
        list(runner._survive(grid.cells(), Store(tmp_path), call, ()))
