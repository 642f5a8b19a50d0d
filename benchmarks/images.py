"""What the way from files to the network costs, against the network's own time.

Three ratios of medians, the two sides taking turns: an epoch of training with the cache against the
same epoch on tensors that are in memory already; ``layline predict`` against the forward pass on
such tensors; ``import layline`` against ``import torch``.

    python benchmarks/images.py --root utkface8
"""

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console

from layline.data.loaders import Key, loader, sequential_batches
from layline.training.assembly import assemble, parts_of
from layline.training.checkpoint import Checkpoints
from layline.training.display import Reporter
from layline.training.distributed import SeveralProcesses
from layline.training.loop import Hooks, Loop
from layline.training.recipes import resolve_config


class Ready:
    """Images that were prepared before, as one tensor of bytes."""

    workers_help = False

    def __init__(self, samples: Any, epoch: int) -> None:
        batches = [[(i, epoch) for i, _ in batch] for batch in sequential_batches(len(samples), 64)]
        parts = [x for x, _ in loader(samples, batches, workers=None)]
        self.pixels = torch.cat(parts).contiguous(memory_format=torch.channels_last)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitems__(self, keys: list[Key]) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.tensor([index for index, _ in keys])
        return self.pixels[index], index


class Saving(Hooks):
    """Save the state after the epoch, as a run does."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.save = checkpoints.save


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="a folder of graded images")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    every = ["import", "predict", "epoch"]
    parser.add_argument("--measure", choices=every, nargs="+", default=every)
    parser.add_argument("--epoch", choices=["cache", "memory"], help="only print its seconds")
    return parser.parse_args()


def prepare(given: argparse.Namespace, say: Reporter, accelerator: Accelerator) -> tuple[Any, ...]:
    """Read the data, decode them into the cache, and make a model."""
    wanted = {
        "data": {"source": "folder", "root": given.root, "size": given.size, "cache": True},
        "backbone": {"name": given.features, "weights": "none"},
        "training": {"epochs": 1, "batch_size": given.batch_size, "device": "cpu"},
    }
    config = resolve_config(wanted)
    run = assemble(config, say, accelerator)
    return config, run.model, parts_of(config, run.dataset, run.model.description)


def epoch(config: Any, model: Any, parts: dict[str, Any], accelerator: Accelerator) -> float:
    """Time an epoch: its steps, validation, checkpoint, and the start of the workers."""
    processes = SeveralProcesses(accelerator)
    with TemporaryDirectory() as folder:
        loop = Loop(
            model,
            parts["train"],
            parts["validation"],
            config.training.options(),
            processes,
            Saving(Checkpoints(Path(folder), processes)),
        )
        start = time.perf_counter()
        loop.run()
        return time.perf_counter() - start


def in_memory(parts: dict[str, Any]) -> dict[str, Any]:
    """Put ready tensors in the place of images."""
    return {name: replace(part, samples=Ready(part.samples, 1)) for name, part in parts.items()}


@torch.inference_mode()
def forward(model: Any, pixels: torch.Tensor, size: int) -> float:
    """Time the model on ready tensors."""
    model.eval()
    start = time.perf_counter()
    for x in pixels.split(size):
        model.head.predict_proba(model.backbone(x))
    return time.perf_counter() - start


def command(*arguments: Any) -> tuple[float, str]:
    """Time a command of this Python, from start to end, and give what it printed."""
    start = time.perf_counter()
    given = [sys.executable, *map(str, arguments)]
    done = subprocess.run(given, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - start, done.stdout


def compare(what: str, rounds: int, **sides: Any) -> None:
    """Let two sides take turns, and print the ratio of their medians."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            seconds[name].append(side())
    first, second = (median(each) for each in seconds.values())
    names = " against ".join(name.replace("_", " ") for name in sides)
    print(f"{what}: {names}: {first:.2f} s / {second:.2f} s = {first / second:.3f}×", flush=True)


def measure_prediction(given: argparse.Namespace, model: Any, parts: dict[str, Any]) -> None:
    """Compare the command, from its start to its end, with the forward pass."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        model.save(file)
        pixels = torch.cat([part.samples.pixels for part in in_memory(parts).values()])
        predict = ("-m", "layline", "predict", file, given.root, "--out", Path(folder) / "out.csv")
        compare(
            f"{len(pixels)} images",
            given.rounds,
            layline_predict=lambda: command(*predict)[0],
            forward=lambda: forward(model, pixels, given.batch_size),
        )


def main() -> None:
    """Measure the three ratios."""
    given = options()
    torch.set_num_threads(given.threads)
    accelerator = Accelerator(cpu=True)
    say = Reporter(Console(stderr=True, quiet=given.epoch is not None))
    config, model, parts = prepare(given, say, accelerator)
    if given.epoch:
        parts = in_memory(parts) if given.epoch == "memory" else parts
        print(epoch(config, model, parts, accelerator))
        return

    if "import" in given.measure:
        compare(
            "import",
            10,
            layline=lambda: command("-c", "import layline")[0],
            torch=lambda: command("-c", "import torch")[0],
        )
    if "predict" in given.measure:
        measure_prediction(given, model, parts)
    if "epoch" in given.measure:
        again = (__file__, *sys.argv[1:], "--epoch")  # each in a process of its own, as a run is
        compare(
            f"an epoch of {len(parts['train'].ranks)} images",
            given.rounds,
            cache=lambda: float(command(*again, "cache")[1]),
            tensors_in_memory=lambda: float(command(*again, "memory")[1]),
        )


if __name__ == "__main__":
    main()
