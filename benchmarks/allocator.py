"""Frozen features by the images at a time, with and without memory that is kept.

    python benchmarks/allocator.py
    python benchmarks/allocator.py --keep

One setting holds for a whole process, so each is a run of its own.
"""

import argparse
import os
import time

import torch

from layline import backbones
from layline.utils.allocator import keep_freed_memory


def main() -> None:
    """Print images a second, and the seconds spent in the network and in the system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="keep memory that is freed")
    parser.add_argument("--size", type=int, default=160, help="pixels at a side")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256])
    given = parser.parse_args()
    if given.keep and not keep_freed_memory():
        parser.error("--keep needs glibc with its own settings")
    torch.set_num_threads(given.threads)
    network = backbones.create("tf_efficientnet_lite0", dim=512).eval()
    for size in given.batches:
        images = torch.randint(0, 255, (size, 3, given.size, given.size), dtype=torch.uint8)
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            network.body(images)
            begun, before = time.monotonic(), os.times()
            for _ in range(given.images // size):
                network.body(images)
        seconds, after = time.monotonic() - begun, os.times()
        print(
            f"{size:4} at a time  {given.images // size * size / seconds:4.0f} images/s  "
            f"user {after.user - before.user:.1f} s  system {after.system - before.system:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
