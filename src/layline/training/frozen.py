"""What of a model is trained, and the features of a frozen body.

Those are extracted once, in pieces, so that a stop costs one piece, and then read from a
memory-mapped file. With a cache, runs on the same images and the same body share it.

The file has the rows as NumPy writes them, then the checksum of each piece, then a seal over those.
It is verified when it is opened, and again only if the system says that it changed.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from jaxtyping import Float
from numpy.lib.format import read_array_header_1_0, read_magic, write_array_header_1_0
from rich.console import Console

from layline.backbones import BACKBONES
from layline.backbones.base import Backbone
from layline.data.array_cache import cache_folder
from layline.data.dataset import Inputs
from layline.data.decoding import PILLOW, thread_map
from layline.data.image_cache import CACHE_FORMAT
from layline.data.index import is_settled, stamp_of
from layline.data.loaders import Batches, RowBatches, loader, sequential_batches
from layline.data.preprocessing import ImagePreprocessing
from layline.evaluation.predictions import Split, evaluation_batch_size
from layline.model.model import Network
from layline.training.assembly import Assembly, assemble, batches_of
from layline.training.config import Config
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.utils.errors import UserError
from layline.utils.files import atomic_write, write_text

PIECE = 512
ROWS = "rows.npy"
_SEAL = 16
_LENGTH = 8  # bytes of a number


def prepare_features(config: Config, console: Console) -> None:
    """Decode the images and extract the frozen features of a run, if its cache shares them."""
    run = assemble(config, Reporter(console), make_accelerator(config))
    model = run.model
    place = shared_folder(
        model.backbone, run.dataset.inputs, model.description.inputs, config.data.cache
    )
    if config.backbone.freeze and place is not None:
        frozen_rows(run, place)


def trained_network(run: Assembly) -> Network:
    """Give what is trained: the whole model, its last stages, or what follows a frozen body."""
    model, wanted = run.model, run.config.backbone
    if wanted.freeze:
        model.backbone.train_stages(0)
        return Network(model.backbone.last, model.head)
    if wanted.stages is not None:
        model.backbone.train_stages(wanted.stages)
    return model


def frozen_parts(run: Assembly, parts: dict[str, Split], folder: Path) -> dict[str, Split]:
    """Put the features of the frozen body in the place of the images.

    Args:
        run: The model and its data.
        parts: What is trained, validated and tested on.
        folder: Where to keep the features if no other run can share them.
    """
    model, dataset = run.model, run.dataset
    cache = run.config.data.cache
    place = shared_folder(model.backbone, dataset.inputs, model.description.inputs, cache)
    rows = frozen_rows(run, place or folder)
    index = dataset.splits.by_name()
    return {
        name: replace(part, samples=RowBatches(rows, index[name])) for name, part in parts.items()
    }


def frozen_rows(run: Assembly, folder: Path) -> Float[np.ndarray, "n width"]:
    """Give the output of the frozen body for each sample, from the folder if it is there."""
    samples = batches_of(run.dataset.inputs, run.model.description)
    config, accelerator = run.config, run.accelerator
    starts = range(0, len(samples), PIECE)[accelerator.process_index :: accelerator.num_processes]
    share = sum(min(PIECE, len(samples) - start) for start in starts)
    with run.say.progress("Extracting frozen features", share) as count:
        return extract(
            Extraction(
                run.model.backbone,
                samples,
                folder,
                accelerator,
                evaluation_batch_size(samples, config.training.batch_size, accelerator.device),
                config.data.workers,
                count,
                run.say,
                config.data.verify,
                "" if config.data.root is None else str(config.data.root),
            )
        )


def shared_folder(
    backbone: Backbone, inputs: Inputs, preparation: object, cache: bool
) -> Path | None:
    """Name the folder that runs on the same images and body share, if a cache is wanted.

    Args:
        backbone: Whose body gives the rows.
        inputs: The images; they are known by their content.
        preparation: How they are prepared.
        cache: Whether a cache is wanted.
    """
    if not cache or not isinstance(preparation, ImagePreprocessing):
        return None
    decoder = f"cache {CACHE_FORMAT}, Pillow {PILLOW}, {preparation.at_least} pixels"
    about = [inputs.digest(), decoder, repr(preparation), backbone.name]
    about += [repr(backbone.body_options), body_fingerprint(backbone)]
    if (plugin := BACKBONES.plugin_of(backbone.name)) is not None:  # what it computes may change
        about.append(str(plugin))
    digest = hashlib.blake2b("\n".join(about).encode(), digest_size=20)
    return cache_folder() / f"backbone-{digest.hexdigest()}"


def body_fingerprint(features: Backbone) -> str:
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
        say: Tells the user what was wrong with features that were there.
        verify: Check features that are there, whatever is known of them.
        root: Where the samples come from, for a list of caches.
    """

    backbone: Backbone
    samples: Batches
    folder: Path
    accelerator: Accelerator
    batch_size: int = 64
    workers: int | None = None
    progress: Callable[[int], None] = lambda done: None
    say: Callable[[str], None] = lambda sentence: None
    verify: bool = False
    root: str = ""

    @property
    def rows(self) -> Path:
        """Name the file of all rows."""
        return self.folder / ROWS

    def pieces(self) -> list[Path]:
        """Name the files of the pieces."""
        starts = range(0, len(self.samples), PIECE)
        return [self.folder / f"piece-{start:09}.rows" for start in starts]

    def size_of(self, number: int) -> int:
        """Count the samples of a piece."""
        return min(PIECE, len(self.samples) - number * PIECE)


@torch.no_grad()
def extract(job: Extraction) -> Float[np.ndarray, "n width"]:
    """Compute the output of the body for each sample, or read it if it was computed before.

    Processes share the pieces. All of them call it together and get the same rows, memory-mapped.
    Machines that have no common disk for the folder each compute all of them.
    """
    accelerator, whole = job.accelerator, job.rows
    is_common = _is_on_common_disk(job)
    is_first = accelerator.is_main_process if is_common else accelerator.is_local_main_process
    if is_first and whole.exists():
        try:
            open_rows(whole, len(job.samples), job.backbone.width, job.verify)
        except DamagedRowsError as error:
            job.say(f"{error}; they are extracted again")
            whole.unlink()
    accelerator.wait_for_everyone()
    if not whole.exists():
        if is_common:
            numbers = range(len(job.pieces()))[
                accelerator.process_index :: accelerator.num_processes
            ]
        else:
            numbers = range(len(job.pieces()) if is_first else 0)
        job.backbone.eval().to(accelerator.device)
        _extract_pieces(job, numbers)
    accelerator.wait_for_everyone()
    if is_first and not whole.exists():
        _join(job)
    accelerator.wait_for_everyone()
    with suppress(OSError):
        os.utime(job.folder)  # the list of caches tells when each was used
    return open_rows(whole, len(job.samples), job.backbone.width, known_good=True)


def _is_on_common_disk(job: Extraction) -> bool:
    """Tell whether all processes see the same folder, by a file of the main one's."""
    accelerator = job.accelerator
    if accelerator.num_processes == 1:
        return True
    (name,) = broadcast_object_list([secrets.token_hex(8)])
    token = job.folder / f".{name}.part"
    if accelerator.is_main_process:
        token.parent.mkdir(parents=True, exist_ok=True)
        token.touch()
    accelerator.wait_for_everyone()
    sees = torch.tensor([token.exists()], device=accelerator.device, dtype=torch.int64)
    everyone = bool(accelerator.gather(sees).min().item())
    if accelerator.is_main_process:
        token.unlink(missing_ok=True)
    return everyone


def _extract_pieces(job: Extraction, numbers: Iterable[int]) -> None:
    """Compute those of some pieces that are not there yet, or are not as they were written."""
    names, width = job.pieces(), job.backbone.width
    missing = [n for n in numbers if _read_piece(names[n], job.size_of(n), width) is None]
    batches, batches_of_piece = [], []
    for number in missing:
        start = number * PIECE
        cut = sequential_batches(job.size_of(number), job.batch_size)
        batches += [[(start + index, epoch) for index, epoch in batch] for batch in cut]
        batches_of_piece.append(len(cut))
    fetched = iter(loader(job.samples, batches, job.workers))
    done = 0
    for number, cut_into in zip(missing, batches_of_piece, strict=True):
        rows = []
        for _ in range(cut_into):
            x, _ = next(fetched)
            rows.append(job.backbone.body(x.to(job.accelerator.device)).float().cpu().numpy())
            done += len(x)
            job.progress(done)
        with atomic_write(names[number]) as part:
            _write_piece(part, np.concatenate(rows))


def _write_piece(piece: Path, rows: Float[np.ndarray, "n width"]) -> None:
    data = rows.astype("<f4").tobytes()
    piece.write_bytes(data + _seal(data))


def _read_piece(piece: Path, count: int, width: int) -> bytes | None:
    """Read the rows of a piece; None if it is not there, or not as it was written."""
    try:
        data = piece.read_bytes()
    except OSError:
        return None
    data, seal = data[:-_SEAL], data[-_SEAL:]
    return data if len(data) == 4 * count * width and seal == _seal(data) else None


def _join(job: Extraction) -> None:
    """Put the pieces into one file, then remove them."""
    pieces, whole = job.pieces(), job.rows
    shape = (len(job.samples), job.backbone.width)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    checksums = []
    try:
        # written, not mapped: a disk that fills up under a mapped file kills the process
        with atomic_write(whole) as part, part.open("wb") as file:
            write_array_header_1_0(file, header)
            for number, piece in enumerate(pieces):
                data = _read_piece(piece, job.size_of(number), shape[1])
                if data is None:
                    raise FileNotFoundError(
                        f"{piece} must be whole, got another: start again, which extracts it anew"
                    )
                checksums.append(crc32(data))
                file.write(data)
            about = {"piece": PIECE, "checksums": checksums, "root": job.root}
            text = json.dumps(about).encode()
            text += len(text).to_bytes(_LENGTH, "little")
            file.write(text + _seal(text))
    except FileNotFoundError:
        if not whole.exists():  # else another run on the same images was quicker
            raise
    for piece in pieces:
        piece.unlink(missing_ok=True)


class DamagedRowsError(ValueError):
    """A file of features is not as it was written."""


def open_rows(
    file: Path, count: int, width: int, verify: bool = False, known_good: bool = False
) -> Float[np.ndarray, "n width"]:
    """Map a file of features, after a check that it is as it was written.

    Args:
        file: As :func:`extract` makes it.
        count: How many rows it must have.
        width: How long they must be.
        verify: Read all of it, even if the system says that it did not change since the last time.
        known_good: Look at its size only, since another process has just read it.

    Raises:
        DamagedRowsError: It is not; the sentence says why.
    """
    start, about = _read_ends(file, count, width)
    checked, stamp, now = file.with_suffix(".checked"), stamp_of(file), time.time_ns()
    if not known_good and (verify or _read_text(checked) != str(stamp)):
        size = 4 * width * about["piece"]

        def intact(number: int) -> bool:
            with file.open("rb") as stream:  # read, not mapped: memory stays as it is
                stream.seek(start + number * size)
                rows = min(about["piece"], count - number * about["piece"])
                return crc32(stream.read(4 * width * rows)) == int(about["checksums"][number])

        with closing(thread_map(intact, len(about["checksums"]))) as checks:
            if not all(checks):
                raise _damaged(file, "some of them changed")
        if is_settled(stamp, now):
            with suppress(OSError):  # then it is checked again the next time
                write_text(checked, str(stamp))
    rows: Float[np.ndarray, "n width"] = np.memmap(
        file, dtype="<f4", mode="r", offset=start, shape=(count, width)
    )
    return rows


def describe_rows(folder: Path) -> tuple[int, str] | None:
    """Tell of how many samples the features in a folder are, and their root; None if unfinished."""
    try:
        with (folder / ROWS).open("rb") as stream:
            read_magic(stream)
            shape, _, _ = read_array_header_1_0(stream)
            about, _ = _read_footer(stream, stream.seek(0, os.SEEK_END))
            return int(shape[0]), str(about["root"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_ends(file: Path, count: int, width: int) -> tuple[int, dict[str, Any]]:
    """Read the header and the checksums of a file of features, and where the rows start."""
    try:
        with file.open("rb") as stream:
            read_magic(stream)
            shape, fortran, dtype = read_array_header_1_0(stream)
            start, size = stream.tell(), stream.seek(0, os.SEEK_END)
            about, end = _read_footer(stream, size)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(file, "the file is empty, cut off or of an older version") from error
    if (shape, fortran, dtype.str) != ((count, width), False, "<f4"):
        raise _damaged(file, f"they are {shape}, not {(count, width)}")
    pieces = -(-count // about["piece"])
    if end - start != 4 * count * width or len(about["checksums"]) != pieces:
        raise _damaged(file, "some are missing")
    return start, about


def _read_footer(stream: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Read what stands behind the rows, and where it starts."""
    stream.seek(max(0, size - _SEAL - _LENGTH))
    tail = stream.read()
    length = int.from_bytes(tail[:_LENGTH], "little")
    end = size - _SEAL - _LENGTH - length
    if end < 0:
        raise UserError("the file is cut off")
    stream.seek(end)
    text = stream.read(length + _LENGTH)
    if _seal(text) != tail[_LENGTH:]:
        raise UserError("the seal is broken")
    about: dict[str, Any] = json.loads(text[:length])
    return about, end


def _damaged(file: Path, why: str) -> DamagedRowsError:
    return DamagedRowsError(f"The features in {file} are not as they were written: {why}")


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _seal(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_SEAL).digest()
