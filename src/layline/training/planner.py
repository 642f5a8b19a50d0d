"""The planner: it chooses the network, what of it is trained, and for how many epochs.

It never changes what the user set. Its choices are written into the configuration of the run, so
that the run can be resumed and repeated on another machine.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from layline import backbones
from layline.backbones.base import Backbone, ImageBackbone
from layline.backbones.weights import choose_backbone
from layline.data.dataset import Dataset
from layline.data.loaders import ImageBatches
from layline.data.splits import FOLDS
from layline.data.tables import Rows
from layline.training.config import Config, Tree, combine
from layline.training.prepare import preprocessing_for
from layline.training.recipes import complete_length, default_backbone
from layline.utils.validation import UserError

_MINUTES = 10.0  # the default budget without a GPU
_FEWEST_EPOCHS = 10  # a network fine-tuned for fewer is worse than its frozen features
_STEP = 1.3  # batch statistics and the optimizer make a step longer than its two timed passes
_HEAD_SECONDS = 2e-4  # of a training step of the last layers, per sample
_CAREFUL_RATE = 1e-4  # for pretrained networks without batch normalization
_TRIED = 16  # samples that are timed
_REPEATS = 3  # the fastest counts: a busy machine slows some of them down


def choose_network(draft: Config, device: torch.device, log: Callable[[str], None]) -> Tree:
    """Choose the backbone, and its weights, if the user set none."""
    if draft.backbone.name is not None:
        return {}
    name = default_backbone(draft.data.source, draft.recipe)
    if draft.recipe != "modern" or name in backbones.BACKBONES:
        return {"backbone": {"name": name}}
    name, weights, reason = choose_backbone(device.type)
    log(f"Network: {name}, because {reason}.")
    return {"backbone": {"name": name, "weights": draft.backbone.weights or weights}}


def is_frozen_open(draft: Config, settings: Mapping[str, Any]) -> bool:
    """Return whether frozen features may be chosen: for pretrained networks, if nothing is set."""
    spec = backbones.find(str(draft.backbone.name))
    return (
        draft.recipe == "modern"
        and draft.init_from is None
        and spec.kind == "image"
        and (draft.backbone.weights or spec.weights) != "none"
        and not {"freeze", "stages"} & set(settings.get("backbone", {}))
    )


def plan_run(
    draft: Config,
    settings: Mapping[str, Any],
    dataset: Dataset,
    backbone: Backbone,
    device: torch.device,
    log: Callable[[str], None],
) -> Tree:
    """Choose what is trained, for how many epochs, and a careful learning rate.

    ``settings`` are what the user set; ``draft`` also has the defaults of the recipe.
    """
    spec = backbones.find(backbone.name)
    has_weights = draft.init_from is not None or (draft.backbone.weights or spec.weights) != "none"
    pretrained = spec.kind == "image" and has_weights
    is_open = pretrained and not {"freeze", "stages"} & set(settings.get("backbone", {}))
    plan: Tree = {}
    count, is_small = len(dataset.splits.train), len(dataset.splits.validation) == 0
    if draft.training.closed_form and not pretrained:
        return {}  # without epochs, there is nothing to plan
    if is_open and (is_small or draft.training.closed_form):
        log(f"With {count} labelled images, the network is frozen.")
        plan, is_open = {"backbone": {"freeze": True}}, False
        draft = _freeze(draft, True)
    if draft.training.budget is not None or (is_open and device.type == "cpu"):
        ways = _list_ways(draft, dataset, _time_samples(draft, dataset, backbone, device), is_open)
        fitted = _fit_budget(draft, "epochs" in settings.get("training", {}), ways, device, log)
        plan = combine(plan, fitted)
    elif is_open:
        log(f"The whole network is trained, on {device}.")
    freeze = plan.get("backbone", {}).get("freeze", draft.backbone.freeze)
    layers = nn.BatchNorm1d | nn.BatchNorm2d
    has_batch_norm = any(isinstance(module, layers) for module in backbone.modules())
    sets_rate = "learning_rate" in settings.get("training", {})
    if pretrained and not freeze and not sets_rate and not has_batch_norm:
        rate = _CAREFUL_RATE * (1.0 if draft.init_from is None else draft.init_from.rate)
        plan = combine({"training": {"backbone_learning_rate": rate}}, plan)
    return plan


def _freeze(config: Config, freeze: bool) -> Config:
    backbone = config.backbone.model_copy(update={"freeze": freeze})
    return config.model_copy(update={"backbone": backbone})


class _Way(NamedTuple):
    """A way to train: what is trained, its settings, and the seconds it takes."""

    text: str
    settings: Tree
    once: float
    per_epoch: float
    epochs: int  # if there is time enough
    fewest: int

    def total(self, epochs: int) -> float:
        return self.once + epochs * self.per_epoch


def _time_samples(
    draft: Config, dataset: Dataset, backbone: Backbone, device: torch.device
) -> tuple[float, float, float]:
    """Measure the seconds per sample of reading, of predicting and of training."""
    count = len(dataset.inputs)
    keys = [(place, 0) for place in range(0, count, max(1, count // _TRIED))][:_TRIED]
    begin = time.monotonic()
    if isinstance(dataset.inputs, Rows):
        x, read = torch.from_numpy(dataset.inputs.values[: len(keys)]), 0.0
    else:
        assert isinstance(backbone, ImageBackbone)
        preparation = preprocessing_for(draft, backbone, dataset.inputs)
        x, _ = ImageBatches(dataset.inputs, preparation, keep_going=True).__getitems__(keys)
        read = (time.monotonic() - begin) / len(keys) / (os.cpu_count() or 1)
    was_training = backbone.training
    backbone.eval().to(device)  # so that its batch statistics do not change
    x = x.to(device)
    passes: dict[bool, list[float]] = {False: [], True: []}
    for backward in [False, True] * _REPEATS:
        begin = time.monotonic()
        with torch.set_grad_enabled(backward):
            features = backbone(x)
        if features.requires_grad:
            features.sum().backward()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        passes[backward].append(time.monotonic() - begin)
    backbone.zero_grad()
    backbone.train(was_training)
    return read, min(passes[False]) / len(x), _STEP * min(passes[True]) / len(x)


def _list_ways(
    draft: Config, dataset: Dataset, times: tuple[float, float, float], is_open: bool
) -> list[_Way]:
    """List the ways to train, the best one first."""
    read_time, predict_time, train_time = times
    train, validation = len(dataset.splits.train), len(dataset.splits.validation)
    every = sum(map(len, dataset.splits.by_name().values()))
    look = read_time + predict_time
    once = every * read_time + (every - train - validation) * look
    epoch = train * (read_time + train_time) + validation * look
    freeze: Tree = {"backbone": {"freeze": True}}
    all_looks = every * (read_time + look)
    per_epoch = (train + validation) * _HEAD_SECONDS * (1 if validation else FOLDS)
    frozen_text, few, many = "the last layers on frozen features", 1, 1
    if is_open or draft.backbone.freeze:
        cheap = complete_length(_freeze(draft, True), dataset).training
        few = int(cheap.epochs or 1)
        if cheap.closed_form:
            freeze = combine(freeze, {"training": {"closed_form": True}})
            frozen_text = "a closed form on frozen features"
    if is_open or not draft.backbone.freeze:
        many = int(complete_length(_freeze(draft, False), dataset).training.epochs or 1)
    frozen = _Way(frozen_text, freeze, all_looks, per_epoch, few, 1)
    if is_open:
        return [_Way("all of the network", {}, once, epoch, many, _FEWEST_EPOCHS), frozen]
    return [frozen] if draft.backbone.freeze else [_Way("training", {}, once, epoch, many, 1)]


def _fit_budget(
    draft: Config,
    epochs_given: bool,
    ways: list[_Way],
    device: torch.device,
    log: Callable[[str], None],
) -> Tree:
    """Take the best way to train that fits into the budget."""
    budget = draft.training.budget
    seconds = 60 * (_MINUTES if budget is None else budget)
    passed_over = ""
    for way in ways:
        most = way.epochs
        fewest = most if epochs_given else min(way.fewest, most)
        fit = int((seconds - way.once) / way.per_epoch)
        if way is ways[-1] and budget is None and fit < fewest:  # nobody asked for so short a time
            fit = max(int(seconds / way.per_epoch), fewest)
        if fit >= fewest:
            epochs = min(most, fit)
            closed = way.settings.get("training", {}).get("closed_form")
            length = "" if closed else f", {epochs} epochs"
            log(
                f"Budget {_format(seconds)} on {device}: {way.text}{length}, about "
                f"{_format(way.total(epochs))}{passed_over}."
            )
            return combine(way.settings, {"training": {"epochs": epochs}})
        passed_over = f"; {way.text} would take {_format(way.total(fewest))}"
    needed = way.total(way.epochs if epochs_given else way.fewest)
    raise UserError(
        f"A budget of {_format(seconds)} is too short: {way.text} would take {_format(needed)}. "
        f"Set a budget of {math.ceil(needed / 60)}min, fewer epochs or a smaller size."
    )


def _format(seconds: float) -> str:
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
