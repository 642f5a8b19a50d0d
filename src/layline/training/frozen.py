"""Features of a frozen body: extracted once, in pieces, so that a stop costs one piece."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Float
from numpy.lib.format import write_array_header_1_0

from layline.data.images.cache import CachedImages, cache_folder
from layline.data.images.files import ImageArrays
from layline.data.loading import Batches, in_order, loader
from layline.features.base import Features
from layline.files import whole_file

PIECE = 512


@torch.no_grad()
def extract(
    features: Features,
    samples: Batches,
    folder: Path,
    accelerator: Accelerator,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Float[np.ndarray, "n width"]:
    """Compute what the body says of each sample, or read it if it was computed before.

    Processes share the pieces. All of them call it together and get the same rows, memory-mapped.

    Args:
        features: Its body is applied.
        samples: As they are in testing.
        folder: Where to keep the rows; for these samples and this body only.
        accelerator: One process or many.
        batch_size: Samples at a time.
        workers: Processes that fetch batches.
        progress: Called with the number of samples that this process has done.
    """
    whole = folder / "rows.npy"
    if not whole.exists():
        features.eval().to(accelerator.device)
        _extract_pieces(features, samples, folder, accelerator, batch_size, workers, progress)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            _join(_pieces(folder, len(samples)), whole, len(samples), features.width)
    accelerator.wait_for_everyone()
    rows: Float[np.ndarray, "n width"] = np.load(whole, mmap_mode="r")
    return rows


def shared_folder(
    features: Features, inputs: Any, preparation: Any, cache: bool = False
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
    about = [images, repr(preparation), features.name, repr(features.options)]
    about.append(fingerprint(features))
    digest = hashlib.blake2b("\n".join(about).encode(), digest_size=20)
    return parent / f"features-{digest.hexdigest()}"


def fingerprint(features: Features) -> str:
    """Tell bodies apart by their tensors."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(features.state_dict().items()):
        if not name.startswith("last."):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _pieces(folder: Path, count: int) -> list[Path]:
    return [folder / f"piece-{start:09}.npy" for start in range(0, count, PIECE)]


def _extract_pieces(
    features: Features,
    samples: Batches,
    folder: Path,
    accelerator: Accelerator,
    batch_size: int,
    workers: int | None,
    progress: Callable[[int], None],
) -> None:
    """Compute the pieces of this process that are not there yet."""
    names = _pieces(folder, len(samples))
    numbers = range(accelerator.process_index, len(names), accelerator.num_processes)
    missing = [number for number in numbers if not names[number].exists()]
    batches, of_piece = [], []
    for number in missing:
        start = number * PIECE
        cut = in_order(min(PIECE, len(samples) - start), batch_size)
        batches += [[(start + index, epoch) for index, epoch in batch] for batch in cut]
        of_piece.append(len(cut))
    fetched = iter(loader(samples, batches, workers))
    done = 0
    for number, cut_into in zip(missing, of_piece, strict=True):
        rows = []
        for _ in range(cut_into):
            x, _ = next(fetched)
            rows.append(features.body(x.to(accelerator.device)).float().cpu().numpy())
            done += len(x)
            progress(done)
        with whole_file(names[number]) as part, part.open("wb") as file:
            np.save(file, np.concatenate(rows))


def _join(pieces: list[Path], whole: Path, count: int, width: int) -> None:
    """Put the pieces into one file, then remove them."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    try:
        # written, not mapped: a disk that fills up under a mapped file kills the process
        with whole_file(whole) as part, part.open("wb") as file:
            write_array_header_1_0(file, header)
            for piece in pieces:
                file.write(np.load(piece).astype("<f4").tobytes())
    except FileNotFoundError:
        if not whole.exists():  # else another run on the same images was quicker
            raise
    for piece in pieces:
        piece.unlink(missing_ok=True)
