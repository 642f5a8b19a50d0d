"""Batches of tensors from inputs, in worker processes if there is something to decode.

How a sample is augmented in an epoch depends on the seed, the epoch and the sample alone: not on
the number of workers or processes, nor on interruptions of the run.
"""

import atexit
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import joblib
import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from layline.data.array_cache import check_not_truncated
from layline.data.dataset import Images, Indices
from layline.data.preprocessing import ImagePreprocessing
from layline.utils.validation import UserError

Key = tuple[int, int]  # a sample, and the epoch it is drawn for
Batch = tuple[Tensor, Int[Tensor, " n"]]  # the input of the network, and which samples they are
_SMALL_IMAGE = 64  # pixels of a side


class Batches(Protocol):
    """Samples that can be fetched a batch at a time."""

    @property
    def workers_help(self) -> bool:
        """Whether worker processes make it faster."""

    def __len__(self) -> int: ...

    def __getitems__(self, keys: list[Key]) -> Batch: ...


@dataclass(eq=False)
class ImageBatches(Dataset[Batch]):
    """Images, preprocessed.

    With ``keep_going``, an image that cannot be decoded is black, and its index i becomes ``~i``.
    """

    images: Images
    preprocessing: ImagePreprocessing
    augmentation: str = "none"
    seed: int = 0
    keep_going: bool = False

    def __post_init__(self) -> None:
        # resizing a small image costs less than sending it between processes
        self.workers_help = not self.images.decoded or self.preprocessing.size > _SMALL_IMAGE

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Decode, augment and stack images: bytes, (n, 3, size, size), channels last in memory."""
        index = torch.tensor([index for index, _ in keys])
        side = self.preprocessing.size
        rows = torch.zeros(len(keys), side, side, 3, dtype=torch.uint8)
        for place, (sample, epoch) in enumerate(keys):
            try:
                pixels = self.preprocessing.load(self.images, sample)
                seed = mixed_seed(self.seed, epoch, sample)
                image = self.preprocessing.for_training(pixels, self.augmentation, seed)
                rows[place] = image.permute(1, 2, 0)
            except Exception:  # Pillow raises almost anything for damaged files
                if not self.keep_going:
                    raise
                index[place] = ~sample
        return rows.permute(0, 3, 1, 2), index


@dataclass(eq=False, repr=False)
class RowBatches(Dataset[Batch]):
    """Samples that need no preparation; ``keep`` selects some rows of the array, in its order."""

    rows: NDArray[Any] | Tensor
    keep: Indices | None = None

    workers_help = False

    def __len__(self) -> int:
        return len(self.rows if self.keep is None else self.keep)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Copy the rows of a batch."""
        check_not_truncated(self.rows)
        index = np.array([index for index, _ in keys])
        rows = self.rows[index if self.keep is None else self.keep[index]]
        return torch.as_tensor(rows), torch.from_numpy(index)


@dataclass(eq=False, repr=False)
class SelectedBatches(Dataset[Batch]):
    """Some of other samples, in the order of ``keep``."""

    samples: Batches
    keep: list[int]

    @property
    def workers_help(self) -> bool:
        """Whether worker processes make it faster."""
        return self.samples.workers_help

    def __len__(self) -> int:
        return len(self.keep)

    def __getitems__(self, keys: list[Key]) -> Batch:
        """Fetch a batch of the other samples."""
        x, _ = self.samples.__getitems__([(self.keep[index], epoch) for index, epoch in keys])
        return x, torch.tensor([index for index, _ in keys])


class _WorkerSamples(Dataset[Any]):
    """Samples in a worker: errors are returned, since torch would wrap their text."""

    def __init__(self, samples: Batches) -> None:
        self._samples = samples

    def __getitems__(self, keys: list[Key]) -> "Batch | Exception":
        try:
            return self._samples.__getitems__(keys)
        except (ValueError, OSError) as error:
            return error


class _Loader(DataLoader[Any]):
    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return _raise_errors(super().__iter__())  # workers start now, while the process is small


def _raise_errors(batches: Iterator[Any]) -> Iterator[Any]:
    try:
        for batch in batches:
            if isinstance(batch, Exception):
                raise batch
            yield batch
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):  # an error of the samples
            raise
        cure = "Use fewer workers or a smaller batch size."
        raise UserError(f"A data-loading worker died, perhaps out of memory. {cure}") from error


def _ignore_signals(worker: int) -> None:
    """Leave signals, which terminals and schedulers send to all processes, to the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@atexit.register
def _kill_workers() -> None:
    """Kill workers that are left: they ignore SIGTERM, so Python would wait for them forever."""
    workers = [child for child in multiprocessing.active_children() if child.daemon]
    if workers and hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch raises that they were killed
    for worker in workers:
        worker.kill()


@dataclass(frozen=True)
class _InMemory:
    """Batches of samples that are already in memory, without the overhead of a DataLoader."""

    samples: Batches
    batches: Iterable[list[Key]]

    def __iter__(self) -> Iterator[Batch]:
        return map(self.samples.__getitems__, self.batches)


def loader(
    samples: Batches, batches: Iterable[list[Key]], workers: int | None, pin_memory: bool = False
) -> Iterable[Batch]:
    """Fetch batches, in workers where they help: by default one per core of this process."""
    if not samples.workers_help and not pin_memory:
        return _InMemory(samples, batches)
    own = multiprocessing.get_all_start_methods()
    # DataLoader cannot use the start method of joblib's processes
    method = None if multiprocessing.get_start_method() in own else own[0]
    if workers is None:
        processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        cores = int(joblib.cpu_count()) // max(1, processes)
        workers = max(1, cores) if method is None else torch.get_num_threads()
    options: dict[str, Any] = {}
    if workers and samples.workers_help:
        options = {
            "num_workers": workers,
            "multiprocessing_context": method,
            "persistent_workers": True,
            "worker_init_fn": _ignore_signals,
        }
    return _Loader(
        _WorkerSamples(samples) if options else samples,  # type: ignore[arg-type]
        batch_sampler=batches,
        collate_fn=_identity,  # __getitems__ has stacked it already
        pin_memory=pin_memory,
        generator=torch.Generator(),  # otherwise each pass uses a number of the global one
        **options,
    )


def _identity(batch: Any) -> Any:
    return batch


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; a GPU does not wait for it."""
    return tensor.to(device, non_blocking=device.type == "cuda")


def sequential_batches(
    count: int, size: int, process: int = 0, processes: int = 1
) -> list[list[Key]]:
    """Divide samples into batches in their order, and select those of a process.

    A batch has the same samples for any number of processes, so that results are equal.
    """
    starts = range(process * size, count, processes * size)
    return [[(index, 0) for index in range(a, min(a + size, count))] for a in starts]


def mixed_seed(*numbers: int) -> int:
    """Combine several numbers, such as a seed, an epoch and a step, into one seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
