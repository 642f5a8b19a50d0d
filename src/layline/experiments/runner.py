"""Run the cells of a grid: what is finished stays, what fails is noted, the rest goes on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from filelock import FileLock, Timeout
from joblib import cpu_count

from layline.experiments.cells import Cell, code_version
from layline.experiments.engines import Map, engine
from layline.experiments.execution import execute, prepare
from layline.experiments.outcomes import Outcome
from layline.experiments.progress import GridProgress
from layline.experiments.store import Store

# What the engines' libraries raise when a process of theirs ends without a word.
_DEATHS = ("TerminatedWorkerError", "KilledWorker", "WorkerCrashedError", "OutOfMemoryError")


@dataclass(frozen=True)
class Place:
    """Where to run.

    Attributes:
        engine: ``local``, ``dask`` or ``ray``.
        jobs: How many cells at once; if not given, as many as fit the processors, or the cluster.
        address: Of a cluster's scheduler.
    """

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None

    def jobs_of(self, threads: int) -> int | None:
        """Say how many cells of so many threads run at once."""
        if self.jobs is not None or self.address is not None:
            return self.jobs
        return max(1, int(cpu_count()) // threads)


HERE = Place()


def run(
    cells: Sequence[Cell],
    store: Store,
    progress: GridProgress,
    place: Place = HERE,
    *,
    keep_models: bool = False,
) -> list[Cell]:
    """Run the cells that have no result yet.

    Args:
        cells: All of the grid; those with the same key are one.
        store: Where results are and come to.
        progress: Shows how far it is.
        place: Where to run.
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
                _run(todo, store, progress, place, keep_models)
    except Timeout:
        raise ValueError(
            f"out must be used by one grid at a time, got {store.folder}: wait for the other one, "
            "or take another folder"
        ) from None
    return [cell for cell in distinct if not store.is_done(cell)]


def _run(
    todo: list[Cell], store: Store, progress: GridProgress, place: Place, keep_models: bool
) -> None:
    jobs = place.jobs_of(max(cell.threads for cell in todo))
    common = store.folder.resolve(), code_version(), keep_models
    with progress, engine(place.engine, jobs, place.address) as call:
        _prepare(todo, call)
        for cell, outcome in _survive(todo, store, call, common):
            if store.find(cell) != outcome:  # the worker has another disk
                store.finish(cell, outcome)
            progress.show(cell, outcome, jobs or 1)


def _prepare(todo: Iterable[Cell], call: Map[None]) -> None:
    """Extract frozen features once, before the cells that share them.

    Where a process dies of it the cells extract them themselves, and the cause is found there.
    """
    kinds = {
        cell.config.model_dump_json(
            include={"data", "features"}, exclude={"data": {"partition"}}
        ): cell
        for cell in todo
        if cell.config.features.freeze
    }
    try:
        for _ in call(prepare, [(cell,) for cell in kinds.values()]):
            pass
    except Exception as death:
        if type(death).__name__ not in _DEATHS:
            raise


def _survive(
    todo: list[Cell], store: Store, call: Map[tuple[Cell, Outcome]], common: tuple[object, ...]
) -> Iterator[tuple[Cell, Outcome]]:
    """Give the outcomes of all cells, also if processes die under some of them.

    A death ends all cells that were being run. Those are tried again one by one; where a process
    dies with a single cell, that cell is the cause.
    """
    left = {cell.key: cell for cell in todo}
    while left:
        try:
            for cell, outcome in call(execute, [(cell, *common) for cell in left.values()]):
                del left[cell.key]
                yield cell, outcome
        except Exception as death:
            if type(death).__name__ not in _DEATHS:
                raise
            suspects = [cell for cell in left.values() if store.was_started(cell)]
            for suspect in suspects or list(left.values())[:1]:
                del left[suspect.key]
                try:
                    yield from call(execute, [(suspect, *common)])
                except Exception as again:
                    if type(again).__name__ not in _DEATHS:
                        raise
                    yield suspect, _died(suspect, again)


def _died(cell: Cell, death: Exception) -> Outcome:
    return Outcome(
        wanted=cell.wanted,
        version=code_version(),
        error=f"{type(death).__name__}: the process of this cell was ended from outside, most "
        "often because the memory was full; lower training.batch_size or run fewer at once",
        traceback=str(death),
    )
