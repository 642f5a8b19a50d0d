"""The features of a frozen backbone: extracted once, and shared by all runs on the same data.

They are kept in the array cache under a key of everything they depend on: the samples, their
preparation, and the weights of the backbone.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object
from jaxtyping import Float

from layline.backbones import BACKBONES
from layline.backbones.base import Backbone
from layline.data.array_cache import ArrayCache
from layline.data.dataset import Inputs
from layline.data.images import PILLOW
from layline.data.loaders import Batches, loader
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
    cache, count, device = ArrayCache(), len(samples), processes.device
    rows = cache.open(key)
    if not processes.any(rows is None):
        assert rows is not None
        return rows
    writer, failed = None, False
    if processes.accelerator.is_local_main_process:
        about = {"kind": "features", "samples": count, "root": str(root or "")}
        try:
            writer = cache.writer(key, (count, backbone.width), np.float32, about)
        except OSError as error:
            log(f"The features are kept in memory: {error.strerror or error}")
            failed = True
    in_memory = processes.any(failed)  # then in every process, and from the beginning
    array = None if writer is None else writer.array
    if in_memory:
        writer, array = None, np.empty((count, backbone.width), np.float32)
    done = 0 if in_memory else min(gather_object([count if writer is None else writer.done]))

    size = evaluation_batch_size(samples, batch_size, device)
    step = PIECE * processes.count
    pieces: list[list[range]] = []  # the batches of this process between two commits
    for start in range(done, count, step):
        first = start + processes.index * PIECE
        end = min(first + PIECE, count)
        pieces.append([range(at, min(at + size, end)) for at in range(first, end, size)])
    keys = [[(index, 0) for index in batch] for piece in pieces for batch in piece]
    fetched = iter(loader(samples, keys, workers))
    backbone.eval().to(device)
    for piece in pieces:
        # a process without samples in the last piece has none to give
        index, parts = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, backbone.width)]
        for _ in piece:
            x, places = next(fetched)
            index.append(places)
            parts.append(backbone.body(x.to(device)).float().cpu())
        places, features = processes.gather(
            torch.cat(index).to(device), torch.cat(parts).to(device)
        )
        if array is not None:
            array[places.cpu().numpy()] = features.cpu().numpy()
        done = min(done + step, count)
        if writer is not None:
            writer.commit(done)
        progress(done)
    if writer is not None:
        writer.finish()
    processes.accelerator.wait_for_everyone()
    rows = array if array is not None else cache.open(key)
    assert rows is not None  # written by the first process of this machine
    return rows
