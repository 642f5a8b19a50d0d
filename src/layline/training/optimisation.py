"""The optimiser, and how its rates change."""

import math

import torch
from torch import nn

from layline.training.config import Training


def optimiser(features: nn.Module, head: nn.Module, options: Training) -> torch.optim.Optimizer:
    """Make the optimiser, with one rate for the features and one for the head."""
    groups = [
        {"params": _trainable(features), "lr": options.learning_rate},
        {"params": _trainable(head), "lr": options.head_learning_rate},
    ]
    for group in groups:
        group["initial_lr"] = group["lr"]
    if options.optimiser == "sgd":
        return torch.optim.SGD(groups, momentum=options.momentum, weight_decay=options.weight_decay)
    return torch.optim.AdamW(groups, weight_decay=options.weight_decay)


def set_rates(optimiser: torch.optim.Optimizer, options: Training, passed: float) -> None:
    """Set the rates for a step.

    Args:
        optimiser: Its groups know the rates that were asked for.
        options: Warm-up and schedule.
        passed: Epochs that are over, the present one in part.
    """
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * rate_factor(options, passed)


def rate_factor(options: Training, passed: float) -> float:
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


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
