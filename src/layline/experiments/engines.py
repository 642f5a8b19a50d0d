"""Where cells run: on this machine, or on a Dask or Ray cluster, behind the same call."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import joblib

from layline.optional import require
from layline.registry import find

T = TypeVar("T")
Map = Callable[[Callable[..., T], Iterable[tuple[Any, ...]]], Iterator[T]]


@contextmanager
def engine(name: str, jobs: int | None, address: str | None) -> Iterator[Map[Any]]:
    """Give a function that calls another one on many arguments, many at once.

    It yields what they return, in any order. If a process dies it raises what its library raises.

    Args:
        name: ``local``, ``dask`` or ``ray``.
        jobs: How many at once; with a cluster that is there already, all it has if not given.
        address: Of the cluster's scheduler; without one a cluster is started here.
    """
    start = find("engine", name, ENGINES)
    if name == "local" and address is not None:
        raise ValueError(f"address must be left out for the local engine, got {address}")
    with start(jobs, address), joblib.parallel_config(backend=_BACKENDS[name]):

        def call(function: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[T]:
            # Ray's backend gives its results in the end, all at once
            how = "list" if name == "ray" else "generator_unordered"
            parallel = joblib.Parallel(
                n_jobs=-1 if jobs is None else jobs,
                batch_size=1,
                pre_dispatch="all" if name == "dask" else "2*n_jobs",
                return_as=how,
            )
            yield from parallel(joblib.delayed(function)(*each) for each in arguments)

        yield call


def _local(jobs: int | None, address: str | None) -> AbstractContextManager[Any]:
    return nullcontext()


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
    if address is None:
        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=address, log_to_driver=False)
    backend.register_ray()
    try:
        yield
    finally:
        ray.shutdown()


ENGINES: dict[str, Callable[[int | None, str | None], AbstractContextManager[Any]]] = {
    "local": _local,
    "dask": _dask,
    "ray": _ray,
}
_BACKENDS = {"local": "loky", "dask": "dask", "ray": "ray"}
