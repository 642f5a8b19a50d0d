"""One cell, run wherever it was sent."""

import threading
import time
from dataclasses import replace

import torch

from layline.experiments import execution
from layline.experiments.cells import code_version
from layline.experiments.outcomes import Outcome
from layline.experiments.store import Store


def test_a_worker_with_other_code_is_refused(grid, tmp_path):
    cell = grid.cells()[0]
    _, outcome = execution.execute(cell, tmp_path, "9.9.9+other", False)
    assert outcome.error.startswith("RuntimeError: version must be 9.9.9+other on every machine")


def test_what_cells_share_is_made_with_their_threads(grid, monkeypatch):
    seen = []
    monkeypatch.setattr(execution, "_prepare", lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    execution.prepare(replace(grid.cells()[0], threads=before + 1))
    assert (seen, torch.get_num_threads()) == ([before + 1], before)


def test_a_cell_that_another_process_finishes_is_waited_for(grid, tmp_path):
    cell, store = grid.cells()[0], Store(tmp_path)
    found = []
    with store.lock(cell):
        thread = threading.Thread(
            target=lambda: found.append(execution.execute(cell, tmp_path, code_version(), False))
        )
        thread.start()
        time.sleep(0.3)
        assert not found
        outcome = Outcome(cell.wanted, code_version(), validation_mae=0.5)
        store.finish(cell, outcome)
    thread.join(timeout=60)
    assert found == [(cell, outcome)]
