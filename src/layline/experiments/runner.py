"""Run the cells of a grid: what is finished stays, what fails is noted, the rest goes on."""

import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from layline.evaluation import CRITERIA
from layline.experiments.engines import LOCAL, CellMap, Executor
from layline.experiments.store import Cell, Outcome, Store, code_version
from layline.geometry.decoding import decode_name
from layline.training.display import Reporter, amount, format_time
from layline.training.frozen import prepare_features
from layline.training.run import train

# What the engines' libraries raise when a process of theirs is killed.
_KILLED = ("TerminatedWorkerError", "KilledWorker", "WorkerCrashedError", "OutOfMemoryError")
# The random state and the number of threads are the process's: one cell at a time.
_PROCESS_LOCK = threading.Lock()


class GridProgress:
    """Show how many cells are done, the last one, and the time left.

    Args:
        console: Where to; a terminal gets one live line with a bar, a log a line per cell.
    """

    def __init__(self, console: Console) -> None:
        self._say, self._is_live = Reporter(console), console.is_terminal
        columns = BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}")
        self._bar = Progress(*columns, console=console, transient=True, disable=not self._is_live)
        self._task = self._bar.add_task("")
        self._total = self._done = 0
        self._outcomes: list[Outcome] = []

    def start(self, total: int, done: int) -> None:
        """Say how many cells the grid has, and how many are finished already."""
        self._total, self._done = total, done
        before = f", {done} of them finished before" if done else ""
        if total == done == 1:
            before = ", finished before"
        self._say(amount(total, "run") + before)
        self._bar.update(self._task, total=total, completed=done)

    def show(self, cell: Cell, outcome: Outcome, jobs: int) -> None:
        """Show how a cell ended, of a grid that runs so many jobs at once."""
        self._done += 1
        self._outcomes.append(outcome)
        spent = sum(each.seconds for each in self._outcomes)
        left = format_time(spent / len(self._outcomes) * (self._total - self._done) / jobs)
        result = ""
        if outcome.error:
            self._say(f"{cell.name} failed: {outcome.error}")
        else:
            mae = outcome.numbers[decode_name(cell.config.training.decoding)]["mae"]
            result = f"MAE {mae:.3f}  {outcome.seconds:.1f} s"
            if not self._is_live:
                self._say(f"{self._done}/{self._total}  {cell.name}  {result}  {left} left")
        failed = sum(bool(each.error) for each in self._outcomes)
        failures = f"  {failed} failed" if failed else ""
        line = f"{left} left{failures}  {result}"
        self._bar.update(self._task, completed=self._done, description=line)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def run_grid(
    cells: Sequence[Cell],
    store: Store,
    progress: GridProgress,
    executor: Executor = LOCAL,
    *,
    keep_models: bool = False,
) -> list[Cell]:
    """Run the cells that have no result yet.

    Args:
        cells: All of the grid; those with the same key are one.
        store: Where results are found and kept.
        progress: Shows how far it is.
        executor: Where to run.
        keep_models: Keep the weights and the state of training of each cell.

    Returns:
        The cells that failed.
    """
    distinct = list({cell.key: cell for cell in cells}.values())
    store.folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(store.folder / ".lock", timeout=0):
            todo = [cell for cell in distinct if not store.is_done(cell)]
            progress.start(len(distinct), len(distinct) - len(todo))
            if todo:
                _run(todo, store, progress, executor, keep_models)
    except Timeout:
        raise ValueError(
            f"out must be used by one grid at a time, got {store.folder}: wait for the other one, "
            "or take another folder"
        ) from None
    return [cell for cell in distinct if not store.is_done(cell)]


def _run(
    todo: list[Cell], store: Store, progress: GridProgress, executor: Executor, keep_models: bool
) -> None:
    threads = max(cell.threads for cell in todo)
    folder, version = store.folder.resolve(), code_version()
    work = partial(run_cell, folder=folder, version=version, keep_models=keep_models)
    with progress, executor.start(threads) as call:
        _extract_shared_features(todo, call)
        for cell, outcome in _outcomes(todo, store, call, work):
            if store.find(cell) != outcome:  # the worker has another disk
                store.finish(cell, outcome)
            progress.show(cell, outcome, executor.jobs_for(threads) or 1)


def _extract_shared_features(todo: Iterable[Cell], call: CellMap[None]) -> None:
    """Extract frozen features once, before the cells that share them.

    Where a process is killed the cells extract them themselves, and the cause is found there.
    """
    kinds = {
        cell.config.model_dump_json(
            include={"data", "features"}, exclude={"data": {"partition"}}
        ): cell
        for cell in todo
        if cell.config.features.freeze
    }
    try:
        for _ in call(extract_features, kinds.values()):
            pass
    except Exception as error:
        if type(error).__name__ not in _KILLED:
            raise


def _outcomes(
    todo: list[Cell],
    store: Store,
    call: CellMap[tuple[Cell, Outcome]],
    work: Callable[[Cell], tuple[Cell, Outcome]],
) -> Iterator[tuple[Cell, Outcome]]:
    """Give the outcomes of all cells, also if processes are killed.

    When one is, all cells that were being run end. Those are tried again one by one; where a
    process is killed with a single cell, that cell is the cause.
    """
    left = {cell.key: cell for cell in todo}
    while left:
        try:
            for cell, outcome in call(work, list(left.values())):
                del left[cell.key]
                yield cell, outcome
        except Exception as error:
            if type(error).__name__ not in _KILLED:
                raise
            suspects = [cell for cell in left.values() if store.was_started(cell)]
            for suspect in suspects or list(left.values())[:1]:
                del left[suspect.key]
                try:
                    yield from call(work, [suspect])
                except Exception as again:
                    if type(again).__name__ not in _KILLED:
                        raise
                    yield suspect, _killed_outcome(suspect, again)


def _killed_outcome(cell: Cell, error: Exception) -> Outcome:
    return Outcome(
        wanted=cell.config_hash,
        version=code_version(),
        error=f"{type(error).__name__}: the process of this cell was ended from outside, most "
        "often because the memory was full; lower training.batch_size or run fewer at once",
        traceback=str(error),
    )


def run_cell(cell: Cell, folder: Path, version: str, keep_models: bool) -> tuple[Cell, Outcome]:
    """Run a cell in this process, and keep its outcome in the store as well as giving it back.

    A failure is an outcome. Only an interruption is none: the cell goes on the next time.

    Args:
        cell: What to run.
        folder: The store's; on a cluster without a common disk, a folder of the worker.
        version: The code that the grid was started with.
        keep_models: Keep the weights and the state of training.
    """
    store = Store(folder)
    # when a grid is killed its workers may still finish their cells, while it is started again
    with _PROCESS_LOCK, store.lock(cell):
        found = store.find(cell)
        if found is not None and not found.error:
            return cell, found
        store.start(cell)
        begin = time.monotonic()
        about: dict[str, Any] = {"wanted": cell.config_hash, "version": code_version()}
        try:
            if version != code_version():
                raise RuntimeError(
                    f"version must be {version} on every machine, got {code_version()} here: "
                    "install the same"
                )
            outcome = _train(cell, store, begin, about)
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


def _train(cell: Cell, store: Store, begin: float, about: dict[str, Any]) -> Outcome:
    run = store.run_folder(cell)
    with _threads(cell.threads), (run.path / "log.txt").open("a", encoding="utf-8") as log:
        numbers = train(cell.config, run, Console(file=log, width=100))
    if numbers is None:
        raise RuntimeError("a cell must be the main process of its run, got another")
    (chosen,) = (each for each in run.read_history() if each["epoch"] == numbers["epoch"])
    metric = cell.config.training.metric
    return Outcome.of_test(
        numbers,
        validation_mae=chosen["validation_mae"],
        criterion=CRITERIA[metric].sign * chosen[f"validation_{metric}"],
        seconds=time.monotonic() - begin,
        **about,
    )


def extract_features(cell: Cell) -> None:
    """Extract the frozen features of a cell; a failure is left to the cells to report."""
    with _PROCESS_LOCK, suppress(Exception), _threads(cell.threads):
        prepare_features(cell.config, Console(quiet=True))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads, whatever the process had."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
