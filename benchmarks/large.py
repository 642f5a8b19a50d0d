"""What a start costs with many files, and what stays in memory.

Each figure is of a process of its own, on data that are made in the folder given: 100,000 small
images in ten class folders, a million rows of frozen features, 36 photographs of 12 megapixels. The
plain competitor is torchvision's ImageFolder, which lists the same files and knows nothing of them.

    python benchmarks/large.py /scratch/large
    python benchmarks/large.py /scratch/large --images 2000 --rows 20000      a quick try
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

BACKBONES = 1280
PHOTOGRAPH = (3000, 4000)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="for the data and the caches; it is kept")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--photographs", type=int, default=36)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure one step, or start a process for each."""
    given = options()
    if given.step:
        print(json.dumps(STEPS[given.step](given)))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    make_images(given.folder / f"images-{given.images}", given.images)
    make_photographs(given.folder / f"photographs-{given.photographs}", given.photographs)
    for step in STEPS:
        print(step.ljust(12), json.dumps(measured(given, step)), flush=True)


def measured(given: argparse.Namespace, step: str) -> dict[str, Any]:
    """Run a step in a process of its own, with caches of its own."""
    command = [sys.executable, __file__, str(given.folder), "--step", step]
    for name in ("images", "rows", "photographs"):
        command += [f"--{name}", str(getattr(given, name))]
    environment = {**os.environ, "LAYLINE_CACHE": str(given.folder / "cache")}
    if step == "first":
        for file in (given.folder / "cache").glob("*.index"):
            file.unlink()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def make_images(root: Path, count: int) -> None:
    """Write small photographs: pieces of one of scikit-learn's, which compress as such do."""
    if (root / "done").exists():
        return
    from PIL import Image
    from sklearn.datasets import load_sample_image

    photograph, rng = load_sample_image("china.jpg"), np.random.default_rng(0)
    for number in range(count):
        folder = root / str(number % 10)
        if number < 10:
            folder.mkdir(parents=True, exist_ok=True)
        y, x = rng.integers(0, photograph.shape[0] - 48), rng.integers(0, photograph.shape[1] - 48)
        piece = photograph[y : y + 48, x : x + 48]
        Image.fromarray(piece).save(folder / f"image-{number:07}.jpg", quality=85)
    (root / "done").touch()


def make_photographs(root: Path, count: int) -> None:
    """Write photographs of 12 megapixels: enlarged, with the grain of a sensor."""
    if (root / "done").exists():
        return
    from PIL import Image
    from sklearn.datasets import load_sample_image

    rng = np.random.default_rng(0)
    for number in range(count):
        image = load_sample_image(("china.jpg", "flower.jpg")[number % 2])
        top = number * 2
        large = Image.fromarray(image[top : top + 300, :400]).resize(PHOTOGRAPH[::-1], 3)
        grain = rng.normal(0, 4, (*PHOTOGRAPH, 1))
        pixels = np.clip(np.asarray(large) + grain, 0, 255).astype(np.uint8)
        folder = root / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number:02}.jpg", quality=80)
    (root / "done").touch()


def memory(pid: int | str = "self") -> dict[str, float]:
    """Give the megabytes of a process: all that is resident, its own, and mapped from files."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        fields[name.rstrip(":")] = int(value) / 1e3
    own = fields["Private_Clean"] + fields["Private_Dirty"]
    return {"resident_mb": round(fields["Rss"]), "anonymous_mb": round(fields["Anonymous"])} | {
        "own_mb": round(own)
    }


def plain(given: argparse.Namespace) -> dict[str, Any]:
    """Scan the folder as torchvision does."""
    from torchvision.datasets import ImageFolder

    before, begun = memory(), time.perf_counter()
    data = ImageFolder(given.folder / f"images-{given.images}")
    seconds = time.perf_counter() - begun
    assert len(data) == given.images
    return {"seconds": round(seconds, 2), "before": before, "after": memory()}


def start(given: argparse.Namespace) -> dict[str, Any]:
    """Read the data as a run does, up to the first batch of a worker."""
    from rich.console import Console

    from layline.data.preprocessing import ImagePreprocessing
    from layline.data.loaders import ImageBatches, loader, sequential_batches
    from layline.training.assembly import data_fingerprint, read_data
    from layline.training.display import Reporter
    from layline.training.recipes import resolve_config

    root = given.folder / f"images-{given.images}"
    config = resolve_config({"data": {"source": "folder", "root": root}})
    before, begun = memory(), time.perf_counter()
    dataset = read_data(config, Reporter(Console(quiet=True)))
    data_fingerprint(dataset)
    dataset.inputs.digest()
    seconds, after = time.perf_counter() - begun, memory()
    train = dataset.inputs.subset(dataset.splits.train)
    samples = ImageBatches(train, ImagePreprocessing(48, 48))
    batches = iter(loader(samples, sequential_batches(len(train), 64), workers=1))
    for _ in range(20):
        next(batches)
    (worker,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-1:]
    kept = sum(file.stat().st_size for file in (given.folder / "cache").glob("*.index"))
    return {
        "seconds": round(seconds, 2),
        "before": before,
        "after": after,
        "worker": memory(worker),
        "index_mb": round(kept / 1e6, 1),
    }


class Wide:
    """Stands for a network: a row of features for each number."""

    width = BACKBONES

    def eval(self) -> "Wide":
        """Do nothing."""
        return self

    def to(self, device: Any) -> "Wide":
        """Do nothing."""
        return self

    def body(self, x: Any) -> Any:
        """Give rows that differ."""
        return x.repeat(1, BACKBONES)


def features(given: argparse.Namespace) -> dict[str, Any]:
    """Extract features, which are read from a file from then on."""
    from accelerate import Accelerator

    from layline.data.loaders import RowBatches
    from layline.training.frozen import Extraction, extract

    place = given.folder / "cache" / f"features-{given.rows}"
    numbers = np.arange(given.rows, dtype=np.float32)[:, None]
    job: Any = Extraction(Wide(), RowBatches(numbers), place, Accelerator(cpu=True), 512)
    before, begun = memory(), time.perf_counter()
    rows = extract(job)
    seconds, opened = time.perf_counter() - begun, memory()
    part = RowBatches(rows, np.random.default_rng(0).permutation(given.rows)[: given.rows // 2])
    begun = time.perf_counter()
    for first in range(0, min(len(part), 64_000), 128):
        x, _ = part.__getitems__([(i, 0) for i in range(first, min(first + 128, len(part)))])
        assert x.shape[1] == BACKBONES
    return {
        "seconds": round(seconds, 2),
        "before": before,
        "opened": opened,
        "after_500_batches": memory(),
        "seconds_of_batches": round(time.perf_counter() - begun, 2),
        "file_gb": round((place / "rows.npy").stat().st_size / 1e9, 2),
    }


def photographs(given: argparse.Namespace) -> dict[str, Any]:
    """Cache photographs for a recipe of 224 pixels, and fetch an epoch of crops from each place."""
    from layline.data.file_digests import cache_folder
    from layline.data.image_cache import cache_images
    from layline.data.decoding import decode
    from layline.data.images import ImageArrays, ImageFiles, list_names
    from layline.data.preprocessing import ImagePreprocessing, smallest_part
    from layline.data.loaders import ImageBatches

    root = given.folder / f"photographs-{given.photographs}"
    images = ImageFiles(root, list_names(root))
    found: dict[str, Any] = {
        "files_mb": round(sum(images.path(i).stat().st_size for i in range(len(images))) / 1e6, 1)
    }
    for augmentation in ("mild", "crop", "flip"):
        part = smallest_part(augmentation, for_cache=True)
        squares = ImagePreprocessing(224, 256, smallest_part=part, shrink=True)
        begun = time.perf_counter()
        cache = cache_images(images, squares.at_least, cache_folder())
        built = time.perf_counter() - begun
        # as it was kept before: a JPEG at the next fraction of its size, never resized
        old = squares.at_least if augmentation == "mild" else 915
        before = ImageArrays(np.stack([decode(images.path(i), old) for i in range(len(images))]))
        places = {"cache": cache, "before": before}
        seconds: dict[str, list[float]] = {name: [] for name in places}
        for epoch in range(8):
            for name, place in places.items():
                wanted = replace(squares, shrink=name == "cache")
                samples = ImageBatches(place, wanted, augmentation)
                begun = time.perf_counter()
                samples.__getitems__([(i, epoch) for i in range(len(images))])
                seconds[name].append(time.perf_counter() - begun)
        found[augmentation] = {
            "side": squares.at_least,
            "cache_mb": round(cache.file.stat().st_size / 1e6, 1),
            "before_mb": round(before._array.nbytes / 1e6, 1),
            "built_s": round(built, 1),
            "epoch_s": round(float(np.median(seconds["cache"])), 3),
            "epoch_before_s": round(float(np.median(seconds["before"])), 3),
        }
    return found


STEPS = {
    "plain": plain,
    "first": start,
    "second": start,
    "backbone": features,
    "again": features,
    "third": features,
    "photographs": photographs,
}

if __name__ == "__main__":
    main()
