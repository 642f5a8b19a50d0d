"""Which samples make a step: the same whatever the number of processes, and after a restart."""

import math
from collections.abc import Iterator

import torch

from layline.data.loading import Key, mixed_seed
from layline.training.config import Training


class EpochBatches:
    """The batches of one process, epoch by epoch.

    Every step takes ``batch_size`` samples over all processes. Each process takes its share of them
    in ``accumulation`` parts. The order depends on the seed and the epoch alone. Batches are nearly
    equal: a rest of one would stop a BatchNorm.

    Attributes:
        steps: Steps in an epoch.
        sizes: Samples in each step, over all processes.

    Args:
        count: Number of training samples.
        options: Sizes and seed.
        process: Which process this is.
        processes: How many there are.
    """

    def __init__(self, count: int, options: Training, process: int = 0, processes: int = 1) -> None:
        self._count = count
        self._seed = options.seed
        self._parts = processes * options.accumulation
        self._mine = range(process * options.accumulation, (process + 1) * options.accumulation)
        size = options.batch_size
        if size < self._parts:
            raise ValueError(
                f"batch_size must be at least processes × accumulation = {self._parts}, got "
                f"{size}: every part of a batch needs a sample"
            )
        if options.drop_last and count < size:
            raise ValueError(
                f"drop_last must be false for {count} training samples, got true: with a "
                f"batch_size of {size} none would be left"
            )
        self._used = count // size * size if options.drop_last else count
        self.steps = math.ceil(self._used / size)
        if size > 1:  # an odd number of samples in pairs ends with three together
            self.steps = max(1, min(self.steps, self._used // 2))
        self.sizes = [len(part) for part in torch.arange(self._used).tensor_split(self.steps)]
        if min(self.sizes) < self._parts:
            raise ValueError(
                f"a batch must have at least {self._parts} samples, got {min(self.sizes)}: every "
                "process and accumulated part needs one, so give more samples or fewer parts"
            )
        self.epoch, self.first_step = 1, 0

    def start(self, epoch: int, first_step: int = 0) -> None:
        """Choose the epoch, counted from 1, and how many of its steps to leave out."""
        self.epoch, self.first_step = epoch, first_step

    def __len__(self) -> int:
        return (self.steps - self.first_step) * len(self._mine)

    def __iter__(self) -> Iterator[list[Key]]:
        """Give the samples of each part, in the order of the steps."""
        generator = torch.Generator().manual_seed(mixed_seed(self._seed, self.epoch))
        order = torch.randperm(self._count, generator=generator)[: self._used]
        for batch in order.tensor_split(self.steps)[self.first_step :]:
            parts = batch.tensor_split(self._parts)
            for mine in self._mine:
                yield [(index, self.epoch) for index in parts[mine].tolist()]
