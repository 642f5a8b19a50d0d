"""The options of the training loop, the optimiser, its rates, and the average of the weights."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from layline.backbones.base import Backbone
from layline.geometry.decoding import Decode, checked_decode
from layline.heads import HeadSpec
from layline.heads.base import OrdinalHead
from layline.metrics import CRITERIA
from layline.utils.validation import check_above, check_at_least, check_integer, check_known


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the loop. Those of a run are explained in ``config.TrainingConfig``.

    Attributes:
        generator: Draws the order of each epoch, one after another, and leaves the random numbers
            of a step to PyTorch's generators. Without one both follow from the seed, the epoch and
            the step, so that a run can be resumed.
        workers: Processes that fetch batches; see :func:`layline.data.loaders.loader`.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    weight_decay: float
    decode: Decode
    patience: int | None
    metric: str = "mae"
    ties: str = "first"
    optimiser: str = "adamw"
    momentum: float = 0.0
    backbone_learning_rate: float | None = None
    layer_decay: float = 1.0
    decay_vectors: bool = True
    head_epochs: float = 0.0
    clip: float = 0.0
    ema: float = 0.0
    schedule: str = "none"
    milestones: Sequence[int] = ()
    decay: float = 1.0
    warmup_epochs: float = 0.0
    warmup_start: float = 1.0
    schedule_unit: str = "epoch"
    drop_last: bool = False
    accumulation: int = 1
    seed: int = 0
    generator: torch.Generator | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check_integer(name, getattr(self, name), 1)
        for name in ("learning_rate", "head_learning_rate"):
            check_above(name, getattr(self, name), 0, "1e-3 is usual")
        check_at_least("weight_decay", self.weight_decay, 0, "0 turns it off")
        checked_decode(self.decode)
        check_known("metric", self.metric, CRITERIA)
        if self.patience is not None:
            check_integer("patience", self.patience, 1, "None never stops early")


# The part of the recipe modern that suits any network; the estimator uses it too.
MODERN: dict[str, Any] = {
    "schedule": "cosine",
    "warmup_start": 0.01,
    "decay_vectors": False,
    "clip": 5.0,
    "ema": 0.99,
    "ties": "loss",
}
HEAD_RATE = 1e-2


def default_head_rate(method: HeadSpec, recipe: str) -> float:
    """Give the rate of the head if nobody says: other recipes than modern know one for all."""
    return HEAD_RATE * (method.rate_factor if recipe == "modern" else 1.0)


def default_warmup(epochs: int) -> float:
    """Give the epochs of warm-up if nobody says: a tenth of all, two at most."""
    return min(2.0, epochs / 10)


def make_optimiser(
    features: nn.Module, head: OrdinalHead, options: Options, *, fused: bool = False
) -> torch.optim.Optimizer:
    """Make the optimiser, with a rate for the body, the last layers of the features and the head.

    Args:
        features: The features, or what of them is trained if their body is frozen.
        head: The ordinal method; it knows which of its parameters weight decay must leave alone.
        options: Rates and decay.
        fused: Take its fused form, which passes over the weights once: seven times as fast on a
            processor, other digits.
    """
    kept = {f"head.{name}" for name in head.no_weight_decay()}
    names = {id(weight): f"features.{name}" for name, weight in features.named_parameters()}
    names |= {id(weight): f"head.{name}" for name, weight in head.named_parameters()}
    groups: dict[tuple[bool, float, float], list[nn.Parameter]] = {}
    for weight, rate, is_body in _rated(features, head, options):
        spared = not options.decay_vectors and (weight.ndim <= 1 or names[id(weight)] in kept)
        key = is_body, rate, 0.0 if spared else options.weight_decay
        groups.setdefault(key, []).append(weight)
    given: list[dict[str, Any]] = [
        {"params": weights, "lr": rate, "initial_lr": rate, "weight_decay": decay, "body": is_body}
        for (is_body, rate, decay), weights in groups.items()
    ]
    if options.optimiser == "sgd":
        return torch.optim.SGD(given, momentum=options.momentum, fused=fused or None)
    return torch.optim.AdamW(given, fused=fused or None)


def _rated(
    features: nn.Module, head: OrdinalHead, options: Options
) -> Iterator[tuple[nn.Parameter, float, bool]]:
    """Give every parameter that learns, its rate, and whether it belongs to the body."""
    body: dict[int, float] = {}
    if isinstance(features, Backbone):
        rate = options.backbone_learning_rate or options.learning_rate
        layers = features.layer_groups()
        for distance, layer in enumerate(reversed(layers)):
            body |= {id(weight): rate * options.layer_decay**distance for weight in layer}
    for weight in features.parameters():
        if weight.requires_grad:
            yield weight, body.get(id(weight), options.learning_rate), id(weight) in body
    for weight in head.parameters():
        if weight.requires_grad:
            yield weight, options.head_learning_rate, False


def set_rates(optimiser: torch.optim.Optimizer, options: Options, passed: float) -> None:
    """Set the rates for a step.

    Args:
        optimiser: Its groups know the rates that were asked for.
        options: Warm-up and schedule.
        passed: Epochs that are over, the present one in part.
    """
    for group in optimiser.param_groups:
        start = options.head_epochs if group["body"] else 0.0
        group["lr"] = group["initial_lr"] * rate_factor(options, passed, start)


def rate_factor(options: Options, passed: float, start: float = 0.0) -> float:
    """Tell by what the rates are multiplied when so many epochs have passed.

    Args:
        options: Warm-up and schedule.
        passed: Epochs that are over, the present one in part.
        start: When what the rates are for begins to learn, and to warm up.
    """
    if passed < start:
        return 0.0
    return _warmup(options, passed - start) * _decay(options, passed)


def _warmup(options: Options, passed: float) -> float:
    if passed >= options.warmup_epochs:
        return 1.0
    return options.warmup_start + (1 - options.warmup_start) * passed / options.warmup_epochs


def _decay(options: Options, passed: float) -> float:
    if options.schedule == "cosine":
        left = max(options.epochs - options.warmup_epochs, 1e-9)
        share = max(passed - options.warmup_epochs, 0.0) / left
        return (1 + math.cos(math.pi * min(share, 1.0))) / 2
    if options.schedule == "steps":
        return options.decay ** sum(passed >= milestone for milestone in options.milestones)
    return 1.0


class WeightAverage(AveragedModel):
    """An exponential moving average (EMA) of the tensors of a model.

    The first steps count less than ``decay`` would let them: of step t at most (1 + t) / (10 + t)
    is kept, so that a short training is not an average with its random start.

    Args:
        model: What is averaged; statistics of BatchNorm too.
        decay: Share of the average that a step keeps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        def average(averaged: list[Tensor], current: list[Tensor], count: Tensor) -> None:
            steps = int(count)
            share = 1 - min(decay, (1 + steps) / (10 + steps))
            for mean, value in zip(averaged, current, strict=True):
                if mean.is_floating_point():
                    mean.lerp_(value, share)
                else:
                    mean.copy_(value)

        super().__init__(model, multi_avg_fn=average, use_buffers=True)  # type: ignore[arg-type]
        self.requires_grad_(False)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Give the model the average, and afterwards its own weights back."""
        self._exchange(model)
        try:
            yield
        finally:
            self._exchange(model)

    def _exchange(self, model: nn.Module) -> None:
        own = chain(model.parameters(), model.buffers())
        for one, other in zip(own, self._tensors(), strict=True):
            one.data, other.data = other.data, one.data

    def _tensors(self) -> Iterator[Tensor]:
        return chain(self.module.parameters(), self.module.buffers())
