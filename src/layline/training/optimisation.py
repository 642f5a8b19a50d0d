"""The options of the training loop, the optimiser and its learning rates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from layline.arguments import check_above, check_at_least, check_integer, check_known
from layline.geometry.decoding import DECODINGS


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the loop. Those of a run are explained in ``config.TrainingConfig``.

    Attributes:
        generator: Draws the order of each epoch, one after another, and leaves the random numbers
            of a step to PyTorch's generators. Without one both follow from the seed, the epoch and
            the step, so that a run can be resumed.
        workers: Processes that fetch batches; see :func:`layline.data.loading.loader`.
        fused: Take the optimiser's fused form: a quarter faster on small networks, other digits.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    weight_decay: float
    decode: str
    patience: int | None
    optimiser: str = "adamw"
    momentum: float = 0.0
    schedule: str = "none"
    milestones: Sequence[int] = ()
    decay: float = 1.0
    warmup_epochs: float = 0.0
    warmup_start: float = 1.0
    drop_last: bool = False
    accumulation: int = 1
    seed: int = 0
    generator: torch.Generator | None = None
    workers: int | None = None
    fused: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check_integer(name, getattr(self, name), 1)
        for name in ("learning_rate", "head_learning_rate"):
            check_above(name, getattr(self, name), 0, "1e-3 is usual")
        check_at_least("weight_decay", self.weight_decay, 0, "0 turns it off")
        check_known("decode", self.decode, DECODINGS)
        if self.patience is not None:
            check_integer("patience", self.patience, 1, "None never stops early")


def make_optimiser(features: nn.Module, head: nn.Module, options: Options) -> torch.optim.Optimizer:
    """Make the optimiser, with one rate for the features and one for the head."""
    rates = {features: options.learning_rate, head: options.head_learning_rate}
    groups = [
        {
            "params": [weight for weight in module.parameters() if weight.requires_grad],
            "lr": rate,
            "initial_lr": rate,
        }
        for module, rate in rates.items()
    ]
    decay, fused = options.weight_decay, options.fused or None
    if options.optimiser == "sgd":
        return torch.optim.SGD(groups, momentum=options.momentum, weight_decay=decay, fused=fused)
    return torch.optim.AdamW(groups, weight_decay=decay, fused=fused)


def set_rates(optimiser: torch.optim.Optimizer, options: Options, passed: float) -> None:
    """Set the rates for a step.

    Args:
        optimiser: Its groups know the rates that were asked for.
        options: Warm-up and schedule.
        passed: Epochs that are over, the present one in part.
    """
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * rate_factor(options, passed)


def rate_factor(options: Options, passed: float) -> float:
    """Tell by what the rates are multiplied when so many epochs have passed."""
    if passed < options.warmup_epochs:
        start = options.warmup_start
        return start + (1 - start) * passed / options.warmup_epochs
    if options.schedule == "cosine":
        left = options.epochs - options.warmup_epochs
        return (1 + math.cos(math.pi * (passed - options.warmup_epochs) / left)) / 2
    if options.schedule == "steps":
        return options.decay ** sum(passed >= milestone for milestone in options.milestones)
    return 1.0
