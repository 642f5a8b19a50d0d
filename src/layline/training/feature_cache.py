"""The features of a frozen backbone: extracted once, and shared by all runs on the same data.

They are kept in the array cache under a key of everything they depend on: the samples, their
preparation, and the weights of the backbone.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from layline.backbones import BACKBONES
from layline.backbones.base import Backbone
from layline.data.array_cache import ArrayCache, Writer
from layline.data.dataset import Inputs
from layline.data.images import PILLOW
from layline.data.loaders import Batches, loader, sequential_batches
from layline.evaluation.predictions import evaluation_batch_size
from layline.training.distributed import SeveralProcesses

PIECE = 512  # samples of each process between two commits


def fingerprint_body(backbone: Backbone) -> str:
    """Hash the tensors of a backbone without its last layer."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(backbone.body_state().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def feature_key(backbone: Backbone, inputs: Inputs, preparation: object) -> str:
    """Name the features of a frozen backbone in the cache."""
    about = [inputs.digest(), f"Pillow {PILLOW}", repr(preparation), backbone.name]
    about += [repr(backbone.body_options), fingerprint_body(backbone)]
    about.append(str(BACKBONES.plugin_of(backbone.name)))
    return "features-" + hashlib.blake2b("\n".join(about).encode(), digest_size=16).hexdigest()


@torch.no_grad()
def extract_features(
    backbone: Backbone,
    samples: Batches,
    key: str,
    root: Path | None,
    processes: SeveralProcesses,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    log: Callable[[str], None] = lambda text: None,
) -> Float[np.ndarray, "n width"]:
    """Compute the output of the body for each sample, or open it if it is in the cache.

    All processes call it together and get all rows. They share the work; one process per machine
    writes. An extraction that was stopped continues where it was.

    Args:
        backbone: Its body is applied, in evaluation mode.
        samples: Prepared as for testing.
        key: From :func:`feature_key`.
        root: Where the data are, for the list of caches.
        processes: One or several.
        batch_size: Samples per training step.
        workers: Processes that fetch batches.
        progress: Called with the number of samples that are done.
        log: Shows a message if the features do not fit into the cache.
    """
    cache, shape = ArrayCache(), (len(samples), backbone.width)
    rows = cache.open(key)
    if not processes.any(rows is None):
        assert rows is not None
        return rows
    writer = None
    if processes.accelerator.is_local_main_process:
        writer = _open_writer(cache, key, shape, root, log)
    done = processes.lowest(shape[0] if writer is None else writer.done)
    # without a place in the cache, every process keeps all rows in memory
    in_memory = processes.any(processes.accelerator.is_local_main_process and writer is None)
    if in_memory:
        writer, done = None, 0
    array = np.empty(shape, np.float32) if in_memory else None if writer is None else writer.array
    size = evaluation_batch_size(samples, batch_size, processes.device)
    step = PIECE * processes.count
    starts = range(done, len(samples), step)
    mine = [
        [(start + processes.index * PIECE + i, epoch) for i, epoch in batch]
        for start in starts
        for batch in sequential_batches(_piece(start, len(samples), processes.index), size)
    ]
    fetched = iter(loader(samples, mine, workers))
    backbone.eval().to(processes.device)
    for start in starts:
        index, parts = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, backbone.width)]
        for _ in range(-(-_piece(start, len(samples), processes.index) // size)):
            x, places = next(fetched)
            index.append(places)
            parts.append(backbone.body(x.to(processes.device)).float().cpu())
        device = processes.device
        places, features = processes.gather(
            torch.cat(index).to(device), torch.cat(parts).to(device)
        )
        if array is not None:
            array[places.cpu().numpy()] = features.cpu().numpy()
        done = min(start + step, len(samples))
        if writer is not None:
            writer.commit(done)
        progress(done)
    if writer is not None:
        writer.finish()
    processes.accelerator.wait_for_everyone()
    rows = array if array is not None else cache.open(key)
    assert rows is not None  # written by the first process of this machine
    return rows


def _piece(start: int, count: int, process: int) -> int:
    """Count the samples that a process computes of those from ``start`` on."""
    return max(0, min(PIECE, count - start - process * PIECE))


def _open_writer(
    cache: ArrayCache,
    key: str,
    shape: tuple[int, int],
    root: Path | None,
    log: Callable[[str], None],
) -> Writer | None:
    about = {"kind": "features", "samples": shape[0], "root": str(root or "")}
    try:
        return cache.writer(key, shape, np.float32, about)
    except OSError as error:
        log(f"The features are kept in memory: {error.strerror or error}")
        return None
