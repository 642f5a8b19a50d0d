"""Engines that run cells: this machine, or a Dask or Ray cluster, behind the same call."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import joblib

from layline.arguments import find_known
from layline.experiments.store import Cell
from layline.optional import require

_T = TypeVar("_T")
CellMap = Callable[[Callable[[Cell], _T], Iterable[Cell]], Iterator[_T]]


@dataclass(frozen=True)
class Executor:
    """An engine, and how many cells it runs at once.

    Attributes:
        engine: ``local``, ``dask`` or ``ray``.
        jobs: How many cells at once; if not given, as many as fit the processors, or the cluster.
        address: Of a cluster's scheduler; without one a cluster is started here.
    """

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None

    def jobs_for(self, threads: int) -> int | None:
        """Say how many cells of so many threads run at once; None is all that a cluster has."""
        if self.jobs is not None or self.address is not None:
            return self.jobs
        return max(1, int(joblib.cpu_count()) // threads)

    @contextmanager
    def start(self, threads: int = 1) -> Iterator[CellMap[Any]]:
        """Give a function that calls another one on many cells of so many threads, many at once.

        It yields what they return, in any order. If a process is killed it raises what its library
        raises.
        """
        start_engine = find_known("engine", self.engine, ENGINES)
        if self.engine == "local" and self.address is not None:
            raise ValueError(f"address must be left out for the local engine, got {self.address}")
        jobs = self.jobs_for(threads)
        backend = "loky" if self.engine == "local" else self.engine
        with start_engine(jobs, self.address), joblib.parallel_config(backend=backend):

            def call(function: Callable[[Cell], _T], cells: Iterable[Cell]) -> Iterator[_T]:
                parallel = joblib.Parallel(
                    n_jobs=-1 if jobs is None else jobs,
                    batch_size=1,
                    pre_dispatch="all" if self.engine == "dask" else "2*n_jobs",
                    # Ray's backend gives its results in the end, all at once
                    return_as="list" if self.engine == "ray" else "generator_unordered",
                )
                yield from parallel(joblib.delayed(function)(cell) for cell in cells)

            yield call


LOCAL = Executor()


@contextmanager
def _dask(jobs: int | None, address: str | None) -> Iterator[None]:
    distributed = require("distributed", extra="cluster", needed_by="the engine dask")
    if address is not None:
        with distributed.Client(address):
            yield
        return
    cluster = distributed.LocalCluster(
        n_workers=jobs or joblib.cpu_count(), threads_per_worker=1, dashboard_address=None
    )
    with cluster, distributed.Client(cluster):
        yield


@contextmanager
def _ray(jobs: int | None, address: str | None) -> Iterator[None]:
    ray = require("ray", extra="cluster", needed_by="the engine ray")
    backend = require("ray.util.joblib", extra="cluster", needed_by="the engine ray")
    local = {"num_cpus": jobs, "include_dashboard": False}
    ray.init(log_to_driver=False, **(local if address is None else {"address": address}))
    backend.register_ray()
    try:
        yield
    finally:
        ray.shutdown()


# How each engine is started, from the number of jobs and the address of a scheduler.
ENGINES: dict[str, Callable[[int | None, str | None], AbstractContextManager[Any]]] = {
    "local": lambda jobs, address: nullcontext(),
    "dask": _dask,
    "ray": _ray,
}
