"""Run the cells of a grid: what is finished stays, what fails is noted, the rest goes on."""

import getpass
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import torch
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from threadpoolctl import threadpool_limits

from layline.backbones import find as find_backbone
from layline.bench.baselines import fit_competitor
from layline.bench.cells import Cell, read_content
from layline.bench.code_version import code_version
from layline.bench.engines import LOCAL, Executor, Pool, ProcessEndedError, stop_event
from layline.bench.store import Outcome, Store, kept_environment
from layline.geometry.decoding import decode_name
from layline.metrics import CRITERIA
from layline.training.callbacks import interrupt_on_shutdown, stopped_by
from layline.training.config import Config
from layline.training.display import Reporter, amount, format_time
from layline.training.frozen import prepare_features
from layline.training.run import train
from layline.training.trainer import Interrupted
from layline.utils.devices import gpus_for
from layline.utils.plugins import load_plugins

# The random state and the number of threads are the process's: one cell at a time.
_PROCESS_LOCK = threading.Lock()


class GridProgress:
    """Show how many cells are done, the last one, and the time left.

    Args:
        console: Where to; a terminal gets one live line with a bar, a log a line per cell.
    """

    def __init__(self, console: Console) -> None:
        self.say, self._is_live = Reporter(console), console.is_terminal
        columns = BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}")
        self._bar = Progress(*columns, console=console, transient=True, disable=not self._is_live)
        self._task = self._bar.add_task("")
        self._total = self._done = self._failed = 0
        self._left: Counter[str] = Counter()  # cells to come, by their data set
        self._seconds: dict[str, list[float]] = {}  # of the cells that ended, likewise

    def start(self, todo: Sequence[Cell], done: int) -> None:
        """Say how many cells the grid has, and how many are finished already.

        Args:
            todo: Those to come.
            done: How many are finished.
        """
        self._left = Counter(_data_of(cell) for cell in todo)
        self._total, self._done = len(todo) + done, done
        total = self._total
        before = f", {done} of them finished before" if done else ""
        if total == done == 1:
            before = ", finished before"
        self.say(amount(total, "run") + before)
        self._bar.update(self._task, total=total, completed=done)

    def show(self, cell: Cell, outcome: Outcome, jobs: int) -> None:
        """Show how a cell ended, of a grid that runs so many jobs at once."""
        self._done += 1
        self._failed += bool(outcome.error)
        self._left[_data_of(cell)] -= 1
        self._seconds.setdefault(_data_of(cell), []).append(outcome.seconds)
        time_left = self._time_left(jobs)
        result = ""
        if not outcome.error:
            mae = outcome.numbers[decode_name(cell.config.training.decoding)]["mae"]
            result = f"MAE {mae:.3f}  {outcome.seconds:.1f} s"
        if outcome.error or not self._is_live:
            ending = f"  {result}" if result else f" failed: {outcome.error}"
            self.say(f"{self._done}/{self._total}  {cell.name}{ending}  {time_left}")
        failures = f"  {self._failed} failed" if self._failed else ""
        line = f"{time_left}{failures}  {result}"
        self._bar.update(self._task, completed=self._done, description=line)

    def _time_left(self, jobs: int) -> str:
        """Say how long the rest takes, each data set as long a cell as it took until now.

        Of a data set that has not begun nothing is known: it counts as the mean of the others, and
        it is said that it is a guess.
        """
        every = [seconds for known in self._seconds.values() for seconds in known]
        means = {data: sum(known) / len(known) for data, known in self._seconds.items()}
        mean = sum(every) / len(every)
        left = {data: count for data, count in self._left.items() if count > 0}
        seconds = sum(count * means.get(data, mean) for data, count in left.items())
        at_once = max(1, min(jobs, sum(left.values())))  # in the end there are fewer than places
        unknown = len(left.keys() - means.keys())
        guess = f", {amount(unknown, 'data set')} not yet begun" if unknown else ""
        return f"{format_time(seconds / at_once)} left{guess}"

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _data_of(cell: Cell) -> str:
    return cell.labels.get("data", "")


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
    with store.alone():
        todo = [cell for cell in distinct if not store.is_done(cell)]
        for sentence in store.explain(todo) if todo else ():
            progress.say(sentence)
        progress.start(todo, len(distinct) - len(todo))
        if todo:
            _run(todo, store, progress, executor, keep_models)
    return [cell for cell in distinct if not store.is_done(cell)]


def _run(
    todo: list[Cell], store: Store, progress: GridProgress, executor: Executor, keep_models: bool
) -> None:
    threads = max(cell.threads for cell in todo)
    gpus = max(len(gpus_of(cell.config)) for cell in todo)
    with (
        progress,
        interrupt_on_shutdown(),
        executor.start(threads, gpus) as pool,
        interrupt_on_shutdown(),  # again: Ray has a handler of its own
    ):
        work = partial(
            run_cell,
            folder=store.folder.resolve(),
            version=code_version(),
            keep_models=keep_models,
            command=[Path(sys.argv[0]).name, *sys.argv[1:]],
            grid=pool.grid,
        )
        _extract_shared_features(todo, pool)
        for cell, outcome in _outcomes(todo, pool, work):
            if store.find(cell) != outcome:  # the worker has another disk
                store.finish(cell, outcome)
            progress.show(cell, outcome, pool.jobs)


def _extract_shared_features(todo: Iterable[Cell], pool: Pool[None]) -> None:
    """Extract frozen features once, before the cells that share them.

    Where a process is killed the cells extract them themselves, and the cause is found there.
    """
    kinds = {
        cell.config.model_dump_json(
            include={"data", "backbone"}, exclude={"data": {"partition"}}
        ): cell
        for cell in todo
        if cell.config.backbone.freeze
    }
    for _ in pool.run(extract_features, kinds.values()):
        pass


def _outcomes(
    todo: list[Cell], pool: Pool[Any], work: Callable[[Cell], Outcome | ProcessEndedError]
) -> Iterator[tuple[Cell, Outcome]]:
    """Give the outcomes of all cells, also if processes are ended from outside.

    The cells of those are tried again in the end, one by one: most often the memory was full. Where
    a process is ended with a single cell, that cell is the cause.
    """
    again = []
    for cell, outcome in pool.run(work, todo):
        if isinstance(outcome, ProcessEndedError):
            again.append(cell)
        else:
            yield cell, outcome
    for cell in again:
        for _, outcome in pool.run(work, [cell]):
            yield (
                cell,
                _ended_outcome(cell, outcome)
                if isinstance(outcome, ProcessEndedError)
                else outcome,
            )


def _ended_outcome(cell: Cell, error: ProcessEndedError) -> Outcome:
    return Outcome(
        **Outcome.about(cell),
        error=f"{type(error).__name__}: the process of this cell was ended from outside, twice, "
        "most often because the memory was full; lower training.batch_size or run fewer at once",
        traceback=str(error),
    )


def run_cell(
    cell: Cell,
    folder: Path,
    version: str,
    keep_models: bool,
    command: Sequence[str] = (),
    grid: str = "",
) -> Outcome | ProcessEndedError:
    """Run a cell in this process, and keep its outcome in the store as well as giving it back.

    A failure is an outcome. Only an interruption is none: the cell goes on the next time.

    Args:
        cell: What to run.
        folder: The store's; on a cluster without a common disk, a folder of the worker.
        version: The code that the grid was started with.
        keep_models: Keep the weights and the state of training.
        command: What the grid was started with.
        grid: The name by which it is stopped where signals do not reach it.

    Returns:
        The outcome, or that it was told to stop, and saved.
    """
    store, stop = Store(folder), stop_event(grid)
    # when a grid is killed its workers may still finish their cells, while it is started again
    with _PROCESS_LOCK, store.lock(cell):
        if stop.is_set():
            return ProcessEndedError("the grid was stopped")
        found = store.find(cell)
        if found is not None and not found.error:
            return found
        store.start(cell)
        begin = time.monotonic()
        try:
            if version != code_version():
                raise RuntimeError(
                    f"version must be {version} on every machine, got {code_version()} here: "
                    "install the same"
                )
            _find_plugins(cell)
            _check_content(cell)
            with stopped_by(stop):
                work = _train if cell.competitor is None else _fit_competitor
                outcome = work(cell, store, begin, command)
            _check_content(cell)
        except Interrupted as stopped:
            if stopped.signal is not None:
                signal.raise_signal(stopped.signal)  # it ends the process, now that all is saved
            return ProcessEndedError(str(stopped))  # raised, it would be logged as an error
        except Exception as error:
            outcome = Outcome(
                **Outcome.about(cell),
                error=f"{type(error).__name__}: {error}",
                traceback=traceback.format_exc(),
                seconds=time.monotonic() - begin,
            )
        else:
            if not keep_models:
                run = store.run_folder(cell)
                shutil.rmtree(run.state, ignore_errors=True)
                run.best.unlink(missing_ok=True)
        store.finish(cell, outcome)
    return outcome


def _find_plugins(cell: Cell) -> None:
    """Import the plug-ins of a cell in this process, and refuse others than it is known by."""
    load_plugins(cell.config.plugins or ())
    if (here := cell.version_here()) != cell.version:
        raise RuntimeError(
            f"version must be {cell.version} on every machine, got {here} here: install the same, "
            "or start the grid again"
        )


def _check_content(cell: Cell) -> None:
    """Refuse data that are not those by which the cell is known."""
    if cell.content is not None and read_content(cell.config) != cell.content:
        raise RuntimeError(
            f"the data must stay as they were when the grid was started, got others in "
            f"{cell.config.data.root}: start it again"
        )


def _train(cell: Cell, store: Store, begin: float, command: Sequence[str]) -> Outcome:
    run = store.run_folder(cell)
    with (
        _threads(cell.threads),
        placed(cell.config) as config,
        (run.path / "log.txt").open("a", encoding="utf-8") as log,
    ):
        numbers = train(config, run, Console(file=log, width=100), command)
    if numbers is None:
        raise RuntimeError("a cell must be the main process of its run, got another")
    (chosen,) = (each for each in run.read_history() if each["epoch"] == numbers["epoch"])
    metric = cell.config.training.metric
    return Outcome.of_test(
        numbers,
        **Outcome.about(cell),
        environment=kept_environment(run.read_environment()),
        validation_mae=chosen["validation_mae"],
        criterion=CRITERIA[metric].sign * chosen[f"validation_{metric}"],
        seconds=time.monotonic() - begin,
    )


def _fit_competitor(cell: Cell, store: Store, begin: float, command: Sequence[str]) -> Outcome:
    run = store.run_folder(cell)
    assert cell.competitor is not None  # the caller has looked
    with (
        _threads(cell.threads),
        threadpool_limits(cell.threads),
        placed(cell.config) as config,
        (run.path / "log.txt").open("a", encoding="utf-8") as log,
        redirect_stdout(log),  # some libraries talk
    ):
        numbers = fit_competitor(
            cell.competitor, config, run, Console(file=log, width=100), command
        )
    return Outcome.of_test(
        numbers,
        **Outcome.about(cell),
        environment=kept_environment(run.read_environment()),
        validation_mae=numbers["validation"]["mae"],
        criterion=numbers["validation"]["criterion"],
        seconds=time.monotonic() - begin,
    )


def gpus_of(config: Config) -> list[str]:
    """Name the GPUs of this machine that a run may be placed on."""
    is_table = find_backbone(str(config.backbone.name)).kind == "table"
    return gpus_for(config.training.device, is_table)


@contextmanager
def placed(config: Config) -> Iterator[Config]:
    """Place a run on one of the GPUs of this machine, where there are several: a free one.

    Runs of one user on one machine take places in turn, by locks that end with their process:
    place i is GPU i modulo their number, and the first free place is taken.
    """
    gpus = gpus_of(config)
    if len(gpus) < 2:
        yield config
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # another list has other GPUs
    about = hashlib.blake2b(f"{getpass.getuser()} {visible}".encode(), digest_size=6)
    folder = Path(tempfile.gettempdir()) / f"layline-gpus-{about.hexdigest()}"
    folder.mkdir(exist_ok=True)
    for place in count():
        lock = FileLock(folder / str(place))
        with suppress(Timeout):
            lock.acquire(timeout=0)
            break
    try:
        chosen = {"device": gpus[place % len(gpus)]}
        yield config.model_copy(update={"training": config.training.model_copy(update=chosen)})
    finally:
        lock.release()


def extract_features(cell: Cell) -> None:
    """Extract the frozen features of a cell; a failure is left to the cells to report."""
    with _PROCESS_LOCK, suppress(Exception), _threads(cell.threads):
        _find_plugins(cell)
        with placed(cell.config) as config:
            prepare_features(config, Console(quiet=True))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads, whatever the process had."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
