"""The options of the trainer, the optimizer, the learning rates, and the average of the weights."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from layline.backbones.base import Backbone
from layline.geometry.decoding import Decode, check_decode
from layline.heads import HeadSpec
from layline.heads.base import OrdinalHead
from layline.metrics import CRITERIA
from layline.utils.validation import check_above, check_at_least, check_integer, check_known

InputKind = Literal["table", "features", "images"]  # what is trained on; features are frozen


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the trainer; :class:`layline.training.config.TrainingConfig` explains them.

    A generator draws the order of each epoch and leaves the random numbers of a step to PyTorch's
    generators. Without one both follow from the seed, the epoch and the step, so that a run can be
    resumed.
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
        check_integer("batch_size", self.batch_size, 1)
        for name in ("learning_rate", "head_learning_rate"):
            check_above(name, getattr(self, name), 0, "1e-3 is usual")
        check_at_least("weight_decay", self.weight_decay, 0, "0 turns it off")
        check_decode(self.decode)
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

_LARGE_TABLE = 4000  # training samples, from which on more steps at a lower rate are better
_LARGE = 10_000  # samples of frozen features, from which on larger batches are faster and as good
_HUGE_TABLE = 50_000  # rows, from which on there are enough steps


def default_head_rate(method: HeadSpec, recipe: str) -> float:
    """Return the default learning rate of a head; only the recipe modern has one per method."""
    return 1e-2 * (method.rate_factor if recipe == "modern" else 1.0)


def choose_batch_size(count: int, kind: InputKind) -> int:
    """Choose the batch size of a table or of frozen features by the number of training samples."""
    if kind == "table" and _LARGE_TABLE <= count < _HUGE_TABLE:
        return 128
    if count >= _LARGE:
        return 512
    return min(max(1 << round(math.log2(max(count / 8, 1))), 16), 256)


def choose_epochs(count: int, batch_size: int, kind: InputKind) -> int:
    """Choose the number of epochs by the number of training samples.

    Tables have 20 to 60 epochs, large ones 30, frozen features 20, and all at least 100 steps.
    Networks for images have at least 500 steps.
    """
    per_epoch = math.ceil(count / batch_size)
    if kind == "images":
        return min(max(math.ceil(500 / per_epoch), 30), 150)
    usual = 20
    if kind == "table":
        usual = 30 if count >= _LARGE_TABLE else min(20 + count // 20, 60)
    return max(math.ceil(100 / per_epoch), usual)


def choose_learning_rate(count: int, kind: InputKind) -> float:
    """Choose the learning rate of a table by its rows, or that of a module in the estimator."""
    return 3e-3 if kind == "table" and count >= _LARGE_TABLE else 4e-3


def default_warmup(epochs: int) -> float:
    """Return the default number of warm-up epochs: a tenth of all, at most two."""
    return min(2.0, epochs / 10)


def make_optimizer(
    backbone: nn.Module, head: OrdinalHead, options: Options, *, fused: bool = False
) -> torch.optim.Optimizer:
    """Make the optimizer, with learning rates for the body, the last layers and the head."""
    body: dict[int, float] = {}
    if isinstance(backbone, Backbone):
        rate = options.backbone_learning_rate or options.learning_rate
        for distance, layer in enumerate(reversed(backbone.layer_groups())):
            body |= {id(weight): rate * options.layer_decay**distance for weight in layer}
    rates = [(p, body.get(id(p), options.learning_rate)) for p in backbone.parameters()]
    rates += [(p, options.head_learning_rate) for p in head.parameters()]
    kept = {id(head.get_parameter(name)) for name in head.no_weight_decay()}
    groups: dict[tuple[bool, float, float], list[nn.Parameter]] = {}
    for weight, rate in rates:
        if weight.requires_grad:
            spared = not options.decay_vectors and (weight.ndim <= 1 or id(weight) in kept)
            is_body = options.head_epochs > 0 and id(weight) in body
            key = is_body, rate, 0.0 if spared else options.weight_decay
            groups.setdefault(key, []).append(weight)
    given: list[dict[str, Any]] = [
        {"params": weights, "lr": rate, "initial_lr": rate, "weight_decay": decay, "body": is_body}
        for (is_body, rate, decay), weights in groups.items()
    ]
    if options.optimiser == "sgd":
        return torch.optim.SGD(given, momentum=options.momentum, fused=fused or None)
    return torch.optim.AdamW(given, fused=fused or None)


def set_learning_rates(optimizer: torch.optim.Optimizer, options: Options, passed: float) -> None:
    """Set the learning rates of a step, after ``passed`` epochs."""
    for group in optimizer.param_groups:
        start = options.head_epochs if group["body"] else 0.0
        group["lr"] = group["initial_lr"] * rate_factor(options, passed, start)


def rate_factor(options: Options, passed: float, start: float = 0.0) -> float:
    """Return the factor, after ``passed`` epochs, of parameters that learn from ``start`` on."""
    if passed < start:
        return 0.0
    warmup, factor = options.warmup_epochs, 1.0
    if passed - start < warmup:
        low = options.warmup_start
        factor = low + (1 - low) * (passed - start) / warmup
    if options.schedule == "cosine":
        share = max(passed - warmup, 0.0) / max(options.epochs - warmup, 1e-9)
        return factor * ((1 + math.cos(math.pi * min(share, 1.0))) / 2)
    if options.schedule == "steps":
        factor *= options.decay ** sum(passed >= milestone for milestone in options.milestones)
    return factor


class WeightAverage:
    """An exponential moving average (EMA) of the parameters of a network.

    Step t keeps the share ``decay`` of the average, but at most (1 + t) / (10 + t), so that the
    average of a short training does not contain the random initial weights. Buffers, such as the
    statistics of BatchNorm, are not averaged: they may be infinite or integers.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay, self._steps = decay, 0
        self._own = list(network.parameters())
        self._mean = [own.detach().clone() for own in self._own]

    @torch.no_grad()
    def update(self) -> None:
        """Include the present parameters in the average."""
        share = 1 - min(self._decay, (1 + self._steps) / (10 + self._steps)) if self._steps else 1.0
        self._steps += 1
        for mean, own in zip(self._mean, self._own, strict=True):
            mean.lerp_(own, share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the network the averaged parameters, and afterwards its own back."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state_dict(self) -> dict[str, Any]:
        """Return the average for a checkpoint."""
        return {"steps": self._steps, "mean": self._mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._steps = state["steps"]
        for mean, saved in zip(self._mean, state["mean"], strict=True):
            mean.copy_(saved)

    def _exchange(self) -> None:
        for mean, own in zip(self._mean, self._own, strict=True):
            mean.data, own.data = own.data, mean.data
