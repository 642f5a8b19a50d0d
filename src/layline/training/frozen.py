"""What of a model is trained, and the features of a frozen body.

Those are extracted once, in pieces, so that a stop costs one piece.

Runs on the same cached images and the same body share them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from numpy.lib.format import write_array_header_1_0
from rich.console import Console

from layline.data.base import Inputs
from layline.data.file_digests import cache_folder
from layline.data.images.cache import CachedImages
from layline.data.images.files import ImageArrays
from layline.data.loading import Batches, RowBatches, loader, sequential_batches
from layline.evaluation import EVALUATION_FACTOR, Part
from layline.features.base import Features
from layline.files import atomic_write
from layline.model import Network
from layline.training.assembly import Assembly, assemble, batches_of
from layline.training.config import Config
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator

PIECE = 512


def prepare_features(config: Config, console: Console) -> None:
    """Decode the images and extract the frozen features of a run, if its cache shares them."""
    run = assemble(config, Reporter(console), make_accelerator(config))
    model = run.model
    place = shared_folder(model.features, run.dataset.inputs, model.spec.inputs, config.data.cache)
    if config.features.freeze and place is not None:
        frozen_rows(run, place)


def trained_network(run: Assembly) -> Network:
    """Give what is trained: the whole model, its last stages, or what follows a frozen body."""
    model, wanted = run.model, run.config.features
    if wanted.freeze:
        model.features.train_stages(0)
        return Network(model.features.last, model.head)
    if wanted.stages is not None:
        model.features.train_stages(wanted.stages)
    return model


def frozen_parts(run: Assembly, parts: dict[str, Part], folder: Path) -> dict[str, Part]:
    """Put the features of the frozen body in the place of the images.

    Args:
        run: The model and its data.
        parts: What is trained, validated and tested on.
        folder: Where to keep the features if no other run can share them.
    """
    model, dataset = run.model, run.dataset
    cache = run.config.data.cache
    place = shared_folder(model.features, dataset.inputs, model.spec.inputs, cache)
    rows = frozen_rows(run, place or folder)
    index = dataset.partition.parts()
    return {
        name: replace(part, samples=RowBatches(rows[index[name]])) for name, part in parts.items()
    }


def frozen_rows(run: Assembly, folder: Path) -> Float[np.ndarray, "n width"]:
    """Give the output of the frozen body for each sample, from the folder if it is there."""
    samples = batches_of(run.dataset.inputs, run.model.spec)
    accelerator = run.accelerator
    starts = range(0, len(samples), PIECE)[accelerator.process_index :: accelerator.num_processes]
    share = sum(min(PIECE, len(samples) - start) for start in starts)
    size, workers = EVALUATION_FACTOR * run.config.training.batch_size, run.config.data.workers
    with run.say.progress("Extracting frozen features", share) as count:
        return extract(
            Extraction(run.model.features, samples, folder, accelerator, size, workers, count)
        )


def shared_folder(
    features: Features, inputs: Inputs, preparation: object, cache: bool = False
) -> Path | None:
    """Name the folder that runs on the same images and body share, if the images are cached.

    Args:
        features: Whose body gives the rows.
        inputs: The images; they are known by their content.
        preparation: How they are prepared.
        cache: Whether a cache is wanted for images that are in memory and need none themselves.
    """
    if isinstance(inputs, CachedImages):
        images, parent = inputs.file.stem, inputs.file.parent
    elif cache and isinstance(inputs, ImageArrays):
        images, parent = inputs.digest(), cache_folder()
    else:
        return None
    about = [images, repr(preparation), features.name, repr(features.body_options)]
    about.append(body_fingerprint(features))
    digest = hashlib.blake2b("\n".join(about).encode(), digest_size=20)
    return parent / f"features-{digest.hexdigest()}"


def body_fingerprint(features: Features) -> str:
    """Tell bodies apart by their tensors."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(features.state_dict().items()):
        if not name.startswith("last."):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Extraction:
    """An extraction of frozen features.

    Attributes:
        features: Its body is applied.
        samples: As they are in testing.
        folder: Where to keep the rows; for these samples and this body only.
        accelerator: One process or many.
        batch_size: Samples at a time.
        workers: Processes that fetch batches.
        progress: Called with the number of samples that this process has done.
    """

    features: Features
    samples: Batches
    folder: Path
    accelerator: Accelerator
    batch_size: int = 64
    workers: int | None = None
    progress: Callable[[int], None] = lambda done: None

    def pieces(self) -> list[Path]:
        """Name the files of the pieces."""
        starts = range(0, len(self.samples), PIECE)
        return [self.folder / f"piece-{start:09}.npy" for start in starts]


@torch.no_grad()
def extract(job: Extraction) -> Float[np.ndarray, "n width"]:
    """Compute the output of the body for each sample, or read it if it was computed before.

    Processes share the pieces. All of them call it together and get the same rows, memory-mapped.
    """
    whole = job.folder / "rows.npy"
    if not whole.exists():
        job.features.eval().to(job.accelerator.device)
        _extract_pieces(job)
        job.accelerator.wait_for_everyone()
        if job.accelerator.is_main_process:
            _join(job.pieces(), whole, len(job.samples), job.features.width)
    job.accelerator.wait_for_everyone()
    rows: Float[np.ndarray, "n width"] = np.load(whole, mmap_mode="r")
    return rows


def _extract_pieces(job: Extraction) -> None:
    """Compute the pieces of this process that are not there yet."""
    names, count = job.pieces(), len(job.samples)
    numbers = range(job.accelerator.process_index, len(names), job.accelerator.num_processes)
    missing = [number for number in numbers if not names[number].exists()]
    batches, batches_of_piece = [], []
    for number in missing:
        start = number * PIECE
        cut = sequential_batches(min(PIECE, count - start), job.batch_size)
        batches += [[(start + index, epoch) for index, epoch in batch] for batch in cut]
        batches_of_piece.append(len(cut))
    fetched = iter(loader(job.samples, batches, job.workers))
    done = 0
    for number, cut_into in zip(missing, batches_of_piece, strict=True):
        rows = []
        for _ in range(cut_into):
            x, _ = next(fetched)
            rows.append(job.features.body(x.to(job.accelerator.device)).float().cpu().numpy())
            done += len(x)
            job.progress(done)
        with atomic_write(names[number]) as part, part.open("wb") as file:
            np.save(file, np.concatenate(rows))


def _join(pieces: list[Path], whole: Path, count: int, width: int) -> None:
    """Put the pieces into one file, then remove them."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    try:
        # written, not mapped: a disk that fills up under a mapped file kills the process
        with atomic_write(whole) as part, part.open("wb") as file:
            write_array_header_1_0(file, header)
            for piece in pieces:
                file.write(np.load(piece).astype("<f4").tobytes())
    except FileNotFoundError:
        if not whole.exists():  # else another run on the same images was quicker
            raise
    for piece in pieces:
        piece.unlink(missing_ok=True)
