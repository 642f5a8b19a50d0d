"""Engines that run cells: this machine, or a Dask or Ray cluster, behind the same call."""

import concurrent.futures
import os
import signal
import threading
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import joblib
from joblib.externals.loky import ProcessPoolExecutor

from layline.bench.cells import Cell
from layline.utils.allocator import keep_freed_memory
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.validation import find_known

_T = TypeVar("_T")
GRACE = 10.0  # seconds that a run has to finish its step and to save when a grid is stopped
_WATCH = 0.5  # seconds between two looks at whether the parent is there


class ProcessEndedError(RuntimeError):
    """The process of a cell was ended from outside, or told to stop, before the cell was done."""


class Pool(ABC, Generic[_T]):
    """Processes that run cells.

    Args:
        jobs: How many cells they run at once.
        at_once: How many they are given at once; None is all of them.

    Attributes:
        grid: A name for the cells that these processes run together.
    """

    def __init__(self, jobs: int, at_once: int | None = None) -> None:
        self.grid = uuid.uuid4().hex
        self.jobs, self._at_once = jobs, at_once
        self._running: dict[Any, Cell] = {}

    def run(self, function: Callable[[Cell], _T], cells: Iterable[Cell]) -> Iterator[Any]:
        """Call a function on cells, many at once, and give each with what came of it.

        They come in any order, each as soon as it has ended. What came of it is what the function
        returned, or :class:`ProcessEndedError`, which is not raised: the other cells go on.
        """
        waiting = list(cells)[::-1]
        while waiting or self._running:
            while waiting and (self._at_once is None or len(self._running) < self._at_once):
                cell = waiting.pop()
                self._running[self._submit(function, cell)] = cell
            for future in self._wait(self._running):
                cell = self._running[future]
                result = self._result(future)
                del self._running[future]
                yield cell, result

    def stop(self) -> None:
        """Tell the cells that are running to save and stop, and give them the time for it."""

    @abstractmethod
    def _submit(self, function: Callable[[Cell], _T], cell: Cell) -> Any:
        """Begin with a cell, and give what stands for its result."""

    @abstractmethod
    def _wait(self, running: Collection[Any]) -> Iterable[Any]:
        """Wait for some of them to end, and give those."""

    @abstractmethod
    def _result(self, future: Any) -> _T | ProcessEndedError:
        """Give what came of one that has ended."""


@dataclass(frozen=True)
class Executor:
    """An engine, and how many cells it runs at once.

    Attributes:
        engine: ``local``, ``dask`` or ``ray``.
        jobs: How many cells at once; if not given, as many as there are GPUs that they may use, or
            as fit the processors, or as the cluster has places for.
        address: Of a cluster's scheduler; without one a cluster is started here.
    """

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None

    def jobs_for(self, threads: int, gpus: int = 0) -> int:
        """Say how many cells of so many threads run at once on this machine."""
        return self.jobs or gpus or max(1, int(joblib.cpu_count()) // threads)

    def check(self) -> "StartEngine":
        """Refuse an engine that there is not; give how the one that is named is started."""
        start_engine = find_known("engine", self.engine, ENGINES)
        if self.engine == "local" and self.address is not None:
            raise UserError(
                f"address must be left out for the local engine, got {self.address}: name the "
                "cluster's too (--engine dask or ray)"
            )
        return start_engine

    @contextmanager
    def start(self, threads: int = 1, gpus: int = 0) -> Iterator[Pool[Any]]:
        """Give the processes that run cells of so many threads, with so many GPUs on this machine.

        Cells that are still running at the end, after an interruption, are told to save and stop.
        """
        with self.check()(self, threads, gpus) as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                with suppress(KeyboardInterrupt):  # a second one does not wait
                    pool.stop()
                raise


LOCAL = Executor()
StartEngine = Callable[[Executor, int, int], AbstractContextManager[Pool[Any]]]


class _ThisProcess(Pool[_T]):
    """Runs one cell after the other, here."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self._results: dict[str, _T] = {}

    def _submit(self, function: Callable[[Cell], _T], cell: Cell) -> Any:
        self._results[cell.key] = function(cell)
        return cell.key

    def _wait(self, running: Collection[Any]) -> Iterable[Any]:
        return list(running)

    def _result(self, future: Any) -> _T | ProcessEndedError:
        return self._results.pop(future)


class _LocalProcesses(Pool[_T]):
    """Processes of this machine, each in a pool of its own: if one dies, the others go on."""

    def __init__(self, jobs: int, threads: int) -> None:
        super().__init__(jobs, jobs)
        self._threads = threads
        self._free: list[_Process] = []
        self._busy: dict[Any, _Process] = {}

    def _submit(self, function: Callable[[Cell], _T], cell: Cell) -> Any:
        process = self._free.pop() if self._free else _Process(self._threads)
        future = process.executor.submit(function, cell)
        self._busy[future] = process
        return future

    def _wait(self, running: Collection[Any]) -> Iterable[Any]:
        return concurrent.futures.wait(running, return_when="FIRST_COMPLETED").done

    def _result(self, future: Any) -> _T | ProcessEndedError:
        process = self._busy.pop(future)
        try:
            result: _T | ProcessEndedError = future.result()
        except BrokenProcessPool as error:
            process.executor.shutdown(kill_workers=True)
            return ProcessEndedError(str(error))
        except ProcessEndedError as error:
            result = error
        except BaseException:
            self._free.append(process)
            raise
        self._free.append(process)
        return result

    def stop(self) -> None:
        for process in self._free + list(self._busy.values()):
            process.terminate()
        concurrent.futures.wait(self._busy, timeout=GRACE)

    def close(self) -> None:
        """End all processes."""
        for process in self._free + list(self._busy.values()):
            process.executor.shutdown(kill_workers=True)


class _Process:
    """A process that runs one cell at a time, and does not outlive this one."""

    def __init__(self, threads: int) -> None:
        # a scheduler may send SIGUSR1 to everyone: loky's own helper would die of it, with a
        # traceback, and the processes are told by this one
        with _without_usr1():
            self.executor = ProcessPoolExecutor(
                max_workers=1,
                initializer=_start_process,
                initargs=(os.getpid(),),
                env={name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
            )
            self.executor.submit(os.getpid)  # which starts it, here

    def terminate(self) -> None:
        """Send SIGTERM, which a run answers by saving; one that is still starting is killed."""
        # asked now: loky replaces a process whose memory has grown
        for process in list(self.executor._processes.values()):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)


@contextmanager
def _without_usr1() -> Iterator[None]:
    """Let processes that are started here ignore SIGUSR1, where the system has it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "SIGUSR1"):
        yield
        return
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _start_process(parent: int) -> None:
    """Prepare a process that runs cells."""
    keep_freed_memory()
    _end_with_parent(parent)


def _end_with_parent(parent: int) -> None:
    """End this process soon after its parent, also where that was killed."""
    if os.name == "nt":  # it would name a parent that is gone
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _local(wanted: Executor, threads: int, gpus: int) -> Iterator[Pool[Any]]:
    jobs = wanted.jobs_for(threads, gpus)
    if jobs == 1:
        yield _ThisProcess()
        return
    pool: _LocalProcesses[Any] = _LocalProcesses(jobs, threads)
    with warnings.catch_warnings():
        # a process whose memory has grown, as by the extraction of features, is replaced by loky
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        try:
            yield pool
        finally:
            pool.close()


# By grid: set where its runs are to stop in this process, whose signals are not theirs.
_STOPS: dict[str, threading.Event] = {}


def stop_event(grid: str) -> threading.Event:
    """Give the event that stops the runs of a grid in this process."""
    return _STOPS.setdefault(grid, threading.Event())


def stop_runs(grid: str | None = None) -> None:
    """Let the runs of a grid, or all of them, save and stop in this process."""
    for each in list(_STOPS) if grid is None else [grid]:
        stop_event(each).set()


class _Dask(Pool[_T]):
    """The workers of a Dask cluster, which run cells in a thread."""

    def __init__(self, library: Any, client: Any, jobs: int | None) -> None:
        self._library, self._client = library, client
        places = sum(client.nthreads().values())
        super().__init__(max(1, min(jobs or places, places)), jobs)

    def _submit(self, function: Callable[[Cell], _T], cell: Cell) -> Any:
        return self._client.submit(function, cell, pure=False)

    def _wait(self, running: Collection[Any]) -> Iterable[Any]:
        found = self._library.wait(list(running), return_when="FIRST_COMPLETED")
        return list(found.done)

    def _result(self, future: Any) -> _T | ProcessEndedError:
        try:
            result: _T = future.result()
        except (self._library.KilledWorker, ProcessEndedError) as error:
            return ProcessEndedError(str(error))
        return result

    def stop(self) -> None:
        self._client.run(stop_runs, self.grid)
        with suppress(self._library.TimeoutError):
            self._library.wait(list(self._running), timeout=GRACE)


@contextmanager
def _dask(wanted: Executor, threads: int, gpus: int) -> Iterator[Pool[Any]]:
    distributed = require("distributed", extra="cluster", needed_by="the engine dask")

    class StopRuns(distributed.WorkerPlugin):  # type: ignore[misc, name-defined]
        """Stops the runs of a worker that its scheduler closes."""

        name = "layline-stop-runs"

        def teardown(self, worker: Any) -> None:
            stop_runs()

    cluster: AbstractContextManager[Any] = nullcontext(wanted.address)
    if wanted.address is None:
        cluster = distributed.LocalCluster(
            n_workers=wanted.jobs_for(threads, gpus), threads_per_worker=1, dashboard_address=None
        )
    with cluster as place, distributed.Client(place) as client:
        client.register_plugin(StopRuns())
        yield _Dask(distributed, client, wanted.jobs)


class _Ray(Pool[_T]):
    """The workers of a Ray cluster, each of which has the processors and GPUs of its cell."""

    def __init__(self, library: Any, wanted: Executor, threads: int) -> None:
        self._library = library
        found = library.cluster_resources()
        processors, gpus = int(found.get("CPU", 1)), int(found.get("GPU", 0))
        places = gpus or max(1, processors // threads)
        super().__init__(min(wanted.jobs or places, max(places, processors)), wanted.jobs)
        self._options: dict[str, float] = {
            "max_retries": 0,
            "num_cpus": threads if wanted.address else 1,
        }
        if gpus:
            self._options["num_gpus"] = min(1, gpus / self.jobs)

    def _submit(self, function: Callable[[Cell], _T], cell: Cell) -> Any:
        return self._library.remote(**self._options)(_called).remote(function, cell)

    def _wait(self, running: Collection[Any]) -> Iterable[Any]:
        done: list[Any] = self._library.wait(list(running))[0]
        return done

    def _result(self, future: Any) -> _T | ProcessEndedError:
        errors = self._library.exceptions
        killed = (
            errors.WorkerCrashedError,
            errors.OutOfMemoryError,
            errors.NodeDiedError,
            ProcessEndedError,
        )
        try:
            result: _T = self._library.get(future)
        except (*killed, ProcessEndedError) as error:
            return ProcessEndedError(str(error))
        return result

    def stop(self) -> None:
        for future in self._running:
            self._library.cancel(future)  # as if by Ctrl-C, in the process of the cell
        running = list(self._running)
        self._library.wait(running, num_returns=len(running), timeout=GRACE)


def _called(function: Callable[[Cell], _T], cell: Cell) -> _T:
    return function(cell)


@contextmanager
def _ray(wanted: Executor, threads: int, gpus: int) -> Iterator[Pool[Any]]:
    ray = require("ray", extra="cluster", needed_by="the engine ray")
    local = {"num_cpus": wanted.jobs_for(threads, gpus), "include_dashboard": False}
    given = local if wanted.address is None else {"address": wanted.address}
    ray.init(log_to_driver=False, **given)
    try:
        yield _Ray(ray, wanted, threads)
    finally:
        ray.shutdown()


# How each engine is started, from what is wanted of it, and the threads and GPUs of the cells.
ENGINES: dict[str, StartEngine] = {
    "local": _local,
    "dask": _dask,
    "ray": _ray,
}
