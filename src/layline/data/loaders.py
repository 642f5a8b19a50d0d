"""From inputs to batches of tensors, in worker processes if there is something to decode.

What a sample looks like in an epoch depends on the seed, the epoch and the sample alone: not on the
number of workers or processes, nor on how often a run was interrupted.
"""

import atexit
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import joblib
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from layline.data.dataset import Images, Indices
from layline.data.preprocessing import ImagePreprocessing
from layline.utils.errors import UserError

Key = tuple[int, int]  # a sample, and the epoch it is drawn for
Batch = tuple[Tensor, Int[Tensor, " n"]]  # what the network takes, and which samples they are
_KILLED_WORKER = re.compile(
    r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal: (?P<signal>[^.]*)|exited)"
)
_SMALL_FILE = 1 << 30  # bytes: all of it may be mapped
_SMALL_IMAGE = 64  # pixels at a side


class Batches(Protocol):
    """Samples that can be fetched a batch at a time."""

    workers_help: bool

    def __len__(self) -> int: ...

    def __getitems__(self, keys: list[Key]) -> Batch: ...


class ImageBatches(Dataset[Batch]):
    """Images, preprocessed.

    Args:
        images: What to decode.
        preprocessing: How they become squares.
        augmentation: How training images vary.
        seed: Of the augmentation.
        keep_going: An image that cannot be decoded is black, and its index i becomes ``~i``.
    """

    def __init__(
        self,
        images: Images,
        preprocessing: ImagePreprocessing,
        augmentation: str = "none",
        seed: int = 0,
        *,
        keep_going: bool = False,
    ) -> None:
        self.images = images
        self._preprocessing = preprocessing
        self._augmentation = augmentation
        self._seed = seed
        self._keep_going = keep_going
        # resizing a small image costs less than sending it between processes
        self.workers_help = not images.decoded or preprocessing.size > _SMALL_IMAGE

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Decode, augment and stack the images of a batch: bytes, (n, 3, size, size).

        Pixels stay together in memory, as they were in the image and as convolutions want them.
        """
        index = torch.tensor([index for index, _ in keys])
        batch = []
        for place, key in enumerate(keys):
            try:
                batch.append(self._load(*key))
            except Exception:  # garbage makes Pillow raise almost anything
                if not self._keep_going:
                    raise
                side = self._preprocessing.size
                batch.append(torch.zeros(3, side, side, dtype=torch.uint8))
                index[place] = ~index[place]
        rows = torch.stack([image.permute(1, 2, 0) for image in batch])
        return rows.permute(0, 3, 1, 2), index

    def _load(self, index: int, epoch: int) -> Tensor:
        pixels = self._preprocessing.load(self.images, index)
        if self._augmentation == "none":
            return self._preprocessing.for_testing(pixels)
        seed = mixed_seed(self._seed, epoch, index)
        return self._preprocessing.for_training(pixels, self._augmentation, seed)


class RowBatches(Dataset[Batch]):
    """Rows of a table, or features that were extracted before; they may be memory-mapped.

    Args:
        rows: All of them; a memory-mapped file is neither copied nor sent to other processes.
        keep: Which of them are meant, in this order; all if not given.
    """

    workers_help = False

    def __init__(self, rows: Float[np.ndarray, "n columns"], keep: Indices | None = None) -> None:
        self._rows, self._keep = rows, keep

    def __len__(self) -> int:
        return len(self._rows if self._keep is None else self._keep)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Take the rows of a batch."""
        index = np.array([index for index, _ in keys])
        place = index if self._keep is None else self._keep[index]
        rows = self._rows
        if isinstance(rows, np.memmap) and rows.nbytes > _SMALL_FILE and hasattr(os, "preadv"):
            found = _read_rows(rows, place)
        else:
            found = np.asarray(rows[place])
        return torch.from_numpy(found), torch.from_numpy(index)

    def __getstate__(self) -> dict[str, Any]:
        state, rows = self.__dict__.copy(), self._rows
        if isinstance(rows, np.memmap) and isinstance(rows.base, mmap):
            place = {"offset": rows.offset, "shape": rows.shape, "dtype": rows.dtype.str}
            state["_rows"] = {"filename": rows.filename, **place}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_rows"], dict):
            state = {**state, "_rows": np.memmap(mode="r", **state["_rows"])}
        self.__dict__.update(state)


class PreparedBatches(Dataset[Batch]):
    """Samples that are as the network takes them already.

    Args:
        x: All of them, fetched in their order.
    """

    workers_help = False

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __len__(self) -> int:
        return len(self._x)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Take the samples of a batch, which is not copied."""
        index = torch.tensor([index for index, _ in keys])
        return self._x[index[0] : index[-1] + 1], index


def _read_rows(rows: "np.memmap[Any, Any]", place: Indices) -> Float[np.ndarray, "n columns"]:
    """Read rows of a large file, all of which would else be mapped into this process in time."""
    found = np.empty((len(place), rows.shape[1]), rows.dtype)
    with Path(str(rows.filename)).open("rb") as file:
        for row, number in zip(found, place.tolist(), strict=True):
            read = os.preadv(file.fileno(), [row.data], rows.offset + number * row.nbytes)
            if read < row.nbytes:
                raise UserError(f"{rows.filename} must keep its length, got it cut off")
    return found


_WORKERS: "WeakSet[Any]" = WeakSet()  # of all passes over samples


class WorkerError(OSError):
    """A process that fetches batches ended before its work was done."""


@dataclass(frozen=True)
class _Failure:
    """What went wrong in a worker, as the main process is to raise it."""

    error: Exception


class _Workers(Dataset[Any]):
    """Samples as workers fetch them: a mistake in the data is sent home, not wrapped."""

    def __init__(self, samples: Batches) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitems__(self, keys: list[Key]) -> "Batch | _Failure":
        try:
            return self._samples.__getitems__(keys)
        except (ValueError, OSError) as error:
            error.__traceback__ = None
            return _Failure(error)


class _Loader(DataLoader[Any]):
    """Raises what workers ran into as they would have raised it themselves."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = super().__iter__()  # at once: workers start while the process is small
        _WORKERS.update(getattr(batches, "_workers", ()))
        return _checked(batches)


def _checked(batches: Iterator[Any]) -> Iterator[Any]:
    with workers_explained():
        for batch in batches:
            if isinstance(batch, _Failure):
                # here, and not by the garbage collector, whose order would leave them waiting
                getattr(batches, "_shutdown_workers", lambda: None)()
                raise batch.error
            yield batch


@contextmanager
def workers_explained() -> Iterator[None]:
    """Say in a sentence that a worker was killed.

    Torch notices it by a signal, and raises wherever the process happens to be.
    """
    try:
        yield
    except RuntimeError as error:
        explained = explain_killed(error)
        if explained is None:
            raise
        raise explained from error


def explain_killed(error: BaseException) -> WorkerError | None:
    """Say of an error that a worker was killed, and end the others; None if it was not that."""
    found = _KILLED_WORKER.match(str(error)) if isinstance(error, RuntimeError) else None
    if found is None:
        return None
    _end_workers()
    signal_name = (found["signal"] or "").strip()
    return WorkerError(
        f"workers must live as long as the run, got one that "
        f"{f'was ended by the signal {signal_name}' if signal_name else 'ended'}: most often "
        "the memory was full, or /dev/shm; set data.workers or training.batch_size lower"
    )


@atexit.register  # after torch has ended those that it can
def _end_workers() -> None:
    """Kill the workers that are left: they ignore SIGTERM, and Python would wait for them for ever.

    One may also wait for what another held that was killed.
    """
    left = [worker for worker in _WORKERS if worker.is_alive()]
    is_main = threading.current_thread() is threading.main_thread()
    if left and is_main and hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch raises that they were killed
    for worker in left:
        worker.kill()


def loader(
    samples: Batches,
    batches: Iterable[list[Key]],
    workers: int | None,
    pin_memory: bool = False,
    ahead: int = 2,
) -> DataLoader[Any]:
    """Fetch batches, ahead of time where workers help.

    Args:
        samples: Where to fetch from.
        batches: The samples of each batch.
        workers: Processes; None for one per core, shared by the processes of a run on a machine.
            Samples in memory need none.
        pin_memory: For a quicker way to a GPU, which need not wait for it.
        ahead: Batches that each worker prepares before they are asked for.
    """
    count = _cores() if workers is None else workers
    count = count if samples.workers_help else 0
    return _Loader(
        _Workers(samples) if count > 0 else samples,  # type: ignore[arg-type]
        batch_sampler=batches,
        num_workers=count,
        multiprocessing_context=_start_method() if count > 0 else None,
        persistent_workers=count > 0,
        prefetch_factor=ahead if count > 0 else None,
        collate_fn=_uncollated,
        pin_memory=pin_memory,
        worker_init_fn=_ignore_signals,
        generator=torch.Generator(),  # else each pass would take a number from the global one
    )


def _cores() -> int:
    """Count the cores that this process may keep busy."""
    if _start_method() is not None:  # one of joblib's processes, which share the cores
        return torch.get_num_threads()
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, int(joblib.cpu_count()) // max(1, processes))


def _start_method() -> str | None:
    """Name how to start workers within joblib's processes, whose own way DataLoader cannot use."""
    usual = multiprocessing.get_all_start_methods()
    return None if multiprocessing.get_start_method() in usual else usual[0]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Send a tensor; a GPU does not wait for it, since it comes from pinned memory there."""
    return tensor.to(device, non_blocking=device.type == "cuda")


def sequential_batches(
    count: int, size: int, process: int = 0, processes: int = 1
) -> list[list[Key]]:
    """Cut samples into batches in their order, and give each process its share of them.

    A batch has the same samples however many processes there are, so that results do not differ.
    """
    starts = range(process * size, count, processes * size)
    return [[(index, 0) for index in range(a, min(a + size, count))] for a in starts]


def mixed_seed(*numbers: int) -> int:
    """Make one seed of several numbers, such as a seed, an epoch and a step."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _ignore_signals(worker: int) -> None:
    """Leave signals to the main process, which may still want batches and ends the workers itself.

    A terminal, a launcher or a scheduler sends them to all processes of a run.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _uncollated(batch: Any) -> Any:
    return batch  # __getitems__ has made a batch of it already
