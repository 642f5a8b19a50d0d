"""Training an estimator: its seed, its display, and the best weights kept in memory."""

import copy
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from layline.evaluation.predictions import Predictions
from layline.model.model import Network
from layline.training.trainer import Callback, Trainer, describe_epoch

_FIT_LOCK = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's generators for a while. All threads share them, so one fit at a time."""
    with _FIT_LOCK, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


class BestInMemory(Callback):
    """Remember the weights of the best epoch of a network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._best: dict[str, Any] = {}

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Keep the weights of the best epoch on the CPU, where they do not fill the device."""
        if is_best:
            self._best = {
                name: value.detach().to("cpu", copy=True)
                if isinstance(value, Tensor)
                else copy.deepcopy(value)
                for name, value in self._network.state_dict().items()
            }

    def restore(self) -> None:
        """Put the network back into its best epoch; the last one if nothing was validated."""
        if self._best:
            self._network.load_state_dict(self._best)
        self._network.eval()


class _PlainDisplay(Callback):
    """A line on stderr per epoch, where rich is not installed."""

    def on_epoch_end(self, trainer: Trainer, validation: Predictions | None, is_best: bool) -> None:
        """Show the epoch that just ended."""
        sys.stderr.write(describe_epoch(trainer) + "\n")


def display(epochs: int) -> Callback:
    """Show the epochs as a run does, or plainly where rich or accelerate is not installed."""
    try:
        from rich.console import Console

        from layline.training.callbacks import ProgressDisplay
    except ModuleNotFoundError:
        return _PlainDisplay()
    return ProgressDisplay(epochs, Console(stderr=True))
