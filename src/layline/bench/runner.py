"""Run the cells of a grid with joblib: on the cores of this machine, or on a Dask cluster.

A finished cell is never run again. A cell that fails is recorded with its error, and the others
continue. When the grid is stopped, every run saves a checkpoint, and the next start resumes it.
"""

import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import joblib
import torch
from joblib.externals.loky.backend import resource_tracker
from joblib.externals.loky.process_executor import TerminatedWorkerError as WorkerDied
from rich.console import Console
from threadpoolctl import threadpool_limits

from layline.backbones import find as find_backbone
from layline.bench.baselines import fit_baseline
from layline.bench.grid import Cell, data_digest
from layline.bench.store import Outcome, Store
from layline.geometry.decoding import decode_name
from layline.metrics import METRICS
from layline.training.callbacks import SHUTDOWN_SIGNALS, Reporter, amount
from layline.training.config import Config
from layline.training.run import train_run
from layline.utils.devices import gpus_for
from layline.utils.registry import load_plugins
from layline.utils.validation import require

GRACE = 20.0  # seconds that runs have to save when the grid is stopped
_POLL = 0.5  # seconds between two looks at whether to stop
_CHECK_EVERY = 60.0  # seconds between two looks at whether the data changed
_STOP = ".stop"  # a file in the folder of the grid; workers on other machines see it as well
_DEATH = (
    "WorkerDied: the process of the run ended without a result, most often because the memory was "
    "full; lower training.batch_size, or run fewer cells at once"
)
# Random state and number of threads belong to the process: a Dask worker runs one cell at a time.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs in addition to the cell."""

    folder: Path  # of the store
    keep_models: bool  # keep weights and checkpoints of finished runs
    command: tuple[str, ...]
    process: int  # the process that runs the grid; 0 if the workers are those of a cluster


def run_grid(
    cells: Sequence[Cell],
    store: Store,
    console: Console,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    keep_models: bool = False,
    rerun: bool = False,
) -> list[Cell]:
    """Run the cells that have no result yet, and return those that failed.

    Cells with the same key are run once. ``dask`` is the address of a scheduler. By default there
    are as many jobs as GPUs or, without one, as fit the processor. A signal saves all runs and
    raises KeyboardInterrupt.
    """
    distinct = list({cell.key: cell for cell in cells}.values())
    log = Reporter(console)
    with store.lock(log):
        (store.folder / _STOP).unlink(missing_ok=True)
        if rerun:
            store.remove_published(distinct)
        for cell in distinct if rerun else ():
            store.remove(cell)
        todo = [cell for cell in distinct if not store.is_done(cell)]
        before = len(distinct) - len(todo)
        log(amount(len(distinct), "run") + (f", {before} finished before" if before else ""))
        if todo:
            command = (Path(sys.argv[0]).name, *sys.argv[1:])
            place = store.folder.resolve()
            job = Job(place, keep_models, command, 0 if dask else os.getpid())
            with _backend(dask, todo, jobs) as workers, _stop_on_signals(place / _STOP) as stop:
                _Queue(store, job, workers, stop, log, len(distinct), before).run(todo)
    return [cell for cell in distinct if not store.is_done(cell)]


@contextmanager
def _stop_on_signals(file: Path) -> Iterator[threading.Event]:
    """Yield an event that a signal sets; a second one, or a long wait, interrupts at once."""
    stop = threading.Event()
    timer = threading.Timer(GRACE, signal.raise_signal, [signal.SIGINT])
    timer.daemon = True

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        file.touch()  # the workers look for it
        timer.start()

    signals = (signal.SIGINT, *SHUTDOWN_SIGNALS)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    # joblib's tracker inherits SIG_IGN: if a signal to all processes of the group killed it, joblib
    # would wait forever
    resource_tracker.ensure_running()
    for number in signals:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        timer.cancel()
        file.unlink(missing_ok=True)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _backend(dask: str | None, todo: Sequence[Cell], jobs: int | None) -> Iterator[int]:
    """Choose joblib's backend, and give the number of cells to run at once."""
    if dask is not None:
        distributed = require("distributed", extra="cluster", needed_by="a Dask cluster")
        with distributed.Client(dask) as client, joblib.parallel_config("dask", client=client):
            workers = max(1, sum(client.ncores().values()))
            yield min(jobs or workers, workers)
        return
    threads = max(cell.threads for cell in todo)
    gpus = max(len(_gpus(cell.config)) for cell in todo)
    with (
        joblib.parallel_config("loky", inner_max_num_threads=threads, idle_worker_timeout=5),
        warnings.catch_warnings(),
    ):
        # loky replaces processes whose memory has grown
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield jobs or gpus or max(1, int(joblib.cpu_count()) // threads)


@dataclass
class _Queue:
    """Run cells with joblib, record their outcomes and print the progress."""

    store: Store
    job: Job
    jobs: int
    stop: threading.Event
    log: Reporter
    total: int
    before: int

    def run(self, todo: Sequence[Cell]) -> None:
        """Run all cells. After the death of a process, those that were running are run alone.

        A run is resumed if its process alone received a signal, so there may be several passes.
        """
        self.seconds: dict[str, float] = {}  # of the cells that are done
        # one cell of each kind of frozen features first: it extracts them for the others
        own: Any = {"data": {"partition", "calibration", "per_class", "stress"}}  # of the splits
        shared: Any = {"include": {"data", "backbone"}, "exclude": own}
        frozen = [cell for cell in todo if cell.config.backbone.freeze]
        first = {cell.config.model_dump_json(**shared): cell for cell in frozen}
        for cells in (list(first.values()), todo):
            while left := [cell for cell in cells if cell.key not in self.seconds]:
                try:
                    self._run_parallel(left, self.jobs)
                except WorkerDied:
                    unfinished = [cell for cell in left if self.store.is_running(cell)]
                    if not unfinished:
                        raise
                    for cell in unfinished:
                        self._run_alone(cell)
                if self.stop.is_set():
                    raise KeyboardInterrupt

    def _run_alone(self, cell: Cell) -> None:
        try:
            if not self.stop.is_set():
                self._run_parallel([cell], 2)  # 1 would run in this process
        except WorkerDied:
            self._record(cell, Outcome(cell.key, error=_DEATH))

    def _run_parallel(self, cells: Sequence[Cell], jobs: int) -> None:
        by_key = {cell.key: cell for cell in cells}
        parallel = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
        tasks = (joblib.delayed(run_cell)(each, self.job, i) for i, each in enumerate(cells))
        for outcome in parallel(tasks):
            if outcome is not None:
                self._record(by_key[outcome.key], outcome)

    def _record(self, cell: Cell, outcome: Outcome) -> None:
        if self.store.find(cell) != outcome:  # a worker of a cluster may have its own disk
            self.store.finish(cell, outcome)
        self.seconds[cell.key] = outcome.seconds
        done = self.before + len(self.seconds)
        mean = sum(self.seconds.values()) / len(self.seconds)
        result = f"failed: {outcome.error}"
        if not outcome.error:
            mae = outcome.numbers[decode_name(cell.config.training.decoding)]["mae"]
            result = f"MAE {mae:.3f}  {outcome.seconds:.1f} s"
        time_left = timedelta(seconds=round(mean * (self.total - done) / self.jobs))
        self.log(f"{done}/{self.total}  {cell.name}  {result}  {time_left} left")


def run_cell(cell: Cell, job: Job, place: int = 0) -> Outcome | None:
    """Run a cell in this process, and write its outcome, which may be an error, to the store.

    It returns None if it was stopped and its state is saved. ``place`` is its place in the queue:
    runs take the GPUs of a machine in turn.
    """
    store, begin = Store(job.folder), time.monotonic()
    # after a grid was killed, its workers may still be running when it is started again
    with _ONE_AT_A_TIME, store.cell_lock(cell), _watch(job) as stop:
        if stop.is_set():
            return None
        before = store.find(cell)
        if before is not None and not before.error:
            return before
        store.start(cell)
        try:
            load_plugins(cell.config.plugins or ())
            _check_data(cell)
            torch.set_num_threads(cell.threads)
            with threadpool_limits(cell.threads):
                outcome = _train(cell, store, begin, job, place, stop)
        except KeyboardInterrupt:
            if os.getpid() == job.process:
                raise
            return None
        except Exception as error:
            outcome = Outcome(
                cell.key,
                error=f"{type(error).__name__}: {error}",
                traceback=traceback.format_exc(),
                seconds=time.monotonic() - begin,
            )
        else:
            if not job.keep_models:
                run = store.run_folder(cell)
                shutil.rmtree(run.state, ignore_errors=True)
                run.best.unlink(missing_ok=True)
        store.finish(cell, outcome)
    return outcome


# when this process last looked at data, by their digest and place
_checked: dict[tuple[str | None, str], float] = {}


def _check_data(cell: Cell) -> None:
    """Raise an error if the data changed; they are read at most once per minute."""
    place = cell.config.data.model_dump_json(include={"source", "root", "options"})
    data = cell.digest, place
    if cell.digest is None or time.monotonic() - _checked.get(data, -inf) < _CHECK_EVERY:
        return
    if data_digest(cell.config) != cell.digest:
        raise RuntimeError("The data changed since the grid was started. Start it again.")
    _checked[data] = time.monotonic()


def _train(
    cell: Cell, store: Store, begin: float, job: Job, place: int, stop: threading.Event
) -> Outcome:
    run, config = store.run_folder(cell), cell.config
    if len(gpus := _gpus(config)) > 1:
        device = {"device": gpus[place % len(gpus)]}
        config = config.model_copy(update={"training": config.training.model_copy(update=device)})
    with (run.path / "log.txt").open("a", encoding="utf-8") as log, redirect_stdout(log):
        console = Console(file=log, width=100)
        if cell.baseline is not None:
            numbers = fit_baseline(cell.baseline, config, run, console, job.command)
            criterion = numbers["criterion"]
        else:
            keep = job.keep_models
            numbers = train_run(config, run, console, job.command, stop, keep) or {}
            metric = METRICS[config.training.metric]
            (chosen,) = (e for e in run.read_history() if e["epoch"] == numbers["epoch"])
            own = chosen.get(f"validation_{metric.name}", numbers["validation"][metric.name])
            criterion = metric.sign * own
    seconds = time.monotonic() - begin
    return Outcome.of_test(numbers, run, key=cell.key, criterion=criterion, seconds=seconds)


@contextmanager
def _watch(job: Job) -> Iterator[threading.Event]:
    """Yield an event that is set when the grid is stopped, or its process is gone."""
    stop, over = threading.Event(), threading.Event()

    def look() -> None:
        is_orphan = job.process not in (0, os.getpid(), os.getppid())
        if is_orphan or (job.folder / _STOP).exists():
            stop.set()

    def watch() -> None:
        while not over.wait(_POLL):
            look()

    look()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        over.set()
        thread.join()


def _gpus(config: Config) -> list[str]:
    """Name the GPUs of this machine that a run may use."""
    is_table = find_backbone(str(config.backbone.name)).kind == "table"
    return gpus_for(config.training.device, is_table)
