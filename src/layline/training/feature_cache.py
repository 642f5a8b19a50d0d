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
from layline.data.array_cache import ArrayCache
from layline.data.dataset import Inputs
from layline.data.images import PILLOW
from layline.data.loaders import Batches, loader, sequential_batches
from layline.evaluation.predictions import evaluation_batch_size
from layline.training.distributed import SeveralProcesses

PIECE = 512  # samples between two commits


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

    Of several processes, the first one of each machine computes it for the others. An extraction
    that was stopped continues where it was. ``root`` is only for the list of caches; ``progress``
    is called with the number of samples that are done.
    """
    cache, count, writer = ArrayCache(), len(samples), None
    with processes.accelerator.local_main_process_first():
        if (rows := cache.open(key)) is not None:
            return rows
        about = {"kind": "features", "samples": count, "root": str(root or "")}
        try:
            writer = cache.writer(key, (count, backbone.width), np.float32, about)
            array, done = writer.array, writer.done
        except OSError as error:
            log(f"The features are kept in memory: {error.strerror or error}")
            array, done = np.empty((count, backbone.width), np.float32), 0
        size = evaluation_batch_size(samples, batch_size, processes.device)
        keys = sequential_batches(count - done, size)
        batches = [[(index + done, epoch) for index, epoch in batch] for batch in keys]
        backbone.eval().to(processes.device)
        for x, index in loader(samples, batches, workers):
            array[index.numpy()] = backbone.body(x.to(processes.device)).float().cpu().numpy()
            finished = int(index[-1]) + 1
            if writer is not None and (finished - writer.done >= PIECE or finished == count):
                writer.commit(finished)
            progress(finished)
        return array
