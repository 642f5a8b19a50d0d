"""One cell, run wherever it was sent: always with the same threads, and it always has an end."""

import shutil
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from layline.experiments.cells import Cell, code_version
from layline.experiments.outcomes import Outcome
from layline.experiments.store import Store
from layline.training.preparation import prepare as _prepare
from layline.training.run import train

# The random state and the number of threads are the process's: one cell at a time.
_ALONE = threading.Lock()


def execute(cell: Cell, folder: Path, version: str, keep_models: bool) -> tuple[Cell, Outcome]:
    """Run a cell, and keep its outcome in the store as well as giving it back.

    A failure is an outcome. Only an interruption is none: the cell goes on the next time.

    Args:
        cell: What to run.
        folder: The store's; on a cluster without a common disk, a folder of the worker.
        version: The code that the grid was started with.
        keep_models: Keep the weights and the state of training.
    """
    store = Store(folder)
    # when a grid is killed its workers may still finish their cells, while it is started again
    with _ALONE, store.lock(cell):
        found = store.find(cell)
        if found is not None and not found.error:
            return cell, found
        store.start(cell)
        begin = time.monotonic()
        about: dict[str, Any] = {"wanted": cell.wanted, "version": code_version()}
        try:
            if version != code_version():
                raise RuntimeError(
                    f"version must be {version} on every machine, got {code_version()} here: "
                    "install the same"
                )
            outcome = _run(cell, store, begin, about)
        except Exception as error:
            outcome = Outcome(
                error=f"{type(error).__name__}: {error}",
                traceback=traceback.format_exc(),
                seconds=time.monotonic() - begin,
                **about,
            )
        else:
            if not keep_models:
                run = store.run_folder(cell)
                shutil.rmtree(run.state, ignore_errors=True)
                run.best.unlink(missing_ok=True)
        store.finish(cell, outcome)
    return cell, outcome


def prepare(cell: Cell) -> None:
    """Make what the cells with this cell's data and features share; a failure is theirs to say."""
    with _ALONE, suppress(Exception), _threads(cell.threads):
        _prepare(cell.config, Console(quiet=True))


def _run(cell: Cell, store: Store, begin: float, about: dict[str, Any]) -> Outcome:
    run = store.run_folder(cell)
    with _threads(cell.threads), (run.path / "log.txt").open("a", encoding="utf-8") as log:
        numbers = train(cell.config, run, Console(file=log, width=100))
    if numbers is None:
        raise RuntimeError("a cell must be the main process of its run, got another")
    best = min(record["validation_mae"] for record in run.read_history())
    seconds = time.monotonic() - begin
    return Outcome.of_test(numbers, validation_mae=best, seconds=seconds, **about)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads, whatever the process had."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
