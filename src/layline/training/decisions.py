"""Decisions by the machine: the network, what of it is trained, and for how long; said aloud.

What a user says is never changed. What is decided is written into the configuration of the run, so
that it can be resumed and repeated on a machine that would decide otherwise.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from layline import backbones, data
from layline.backbones.weights import choose_backbone
from layline.data.dataset import Dataset
from layline.data.loaders import ImageBatches, RowBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import Rows
from layline.heads import HEADS
from layline.model.description import ModelDescription
from layline.training.assembly import build
from layline.training.config import Config, Tree, combine
from layline.training.recipes import RECIPES, default_backbone, draft_config, resolve_config
from layline.training.start import known_inputs, load_start
from layline.utils.devices import choose_device
from layline.utils.errors import UserError
from layline.utils.validation import decode_name

Say = Callable[[str], None]
_MINUTES = 10.0  # without a GPU, if the user does not say
_FEWEST_EPOCHS = 10  # a network that is fine-tuned for fewer is behind its frozen features
_HEAD_SECONDS = 2e-4  # of a training step of the last layers, per sample
_CAREFUL_RATE = 1e-4
_TRIED = 16  # images
_TIMES = 3


def decided(tree: Mapping[str, Any], say: Say) -> Config:
    """Make the configuration of a new run, and decide what the user left open.

    Args:
        tree: The settings that the user gave, by section.
        say: Told each decision and its reason, a line each.
    """
    config = draft_config(tree)
    if config.recipe != "modern":
        if config.training.budget is not None:
            raise UserError(
                f"budget must be left out for the recipe {config.recipe}, got "
                f"{config.training.budget:g} minutes: only modern decides what fits"
            )
        return resolve_config(tree)
    chosen: Tree = {}
    device = choose_device(config.training.device)
    is_open = config.backbone.name is None
    if (
        is_open
        and default_backbone(config.data.source, RECIPES["modern"]) not in backbones.BACKBONES
    ):
        backbone = choose_backbone(device.type)
        chosen = {"backbone": {"name": backbone.name}}
        if config.backbone.weights is None:
            chosen["backbone"]["weights"] = backbone.weights
        say(f"Network: {backbone.name}, because {backbone.reason} (--backbone)")
    config = resolve_config(chosen, tree)
    chosen = combine(chosen, _plan(config, tree, device, say))
    config = resolve_config(_with_careful_rate(chosen, config, tree), tree)
    method, decode = config.head.method, decode_name(config.training.decoding)
    say(
        f"Method: {method}, {HEADS[method].summary} (--method). Epochs are chosen by "
        f"{config.training.metric} and decoded by the {decode} (--metric)"
    )
    return config


def _with_careful_rate(chosen: Tree, config: Config, tree: Mapping[str, Any]) -> Tree:
    """Give a pretrained network without batch normalisation a low rate, as its authors do.

    Convolutions between batch normalisations bear a rate ten times as high as a transformer or a
    ConvNeXt, and need it in few epochs. A rate that the user names is left alone.
    """
    is_frozen = config.backbone.freeze or chosen.get("backbone", {}).get("freeze", False)
    is_named = "learning_rate" in tree.get("training", {})
    if is_frozen or is_named or not _is_pretrained_for_images(config):
        return chosen
    with torch.random.fork_rng(devices=[]):
        network = backbones.create(str(config.backbone.name), config.head.dim)
    if any(isinstance(each, nn.BatchNorm2d) for each in network.modules()):
        return chosen
    rate = _CAREFUL_RATE * (1.0 if config.init_from is None else config.init_from.rate)
    return combine({"training": {"backbone_learning_rate": rate}}, chosen)


def _is_pretrained_for_images(config: Config) -> bool:
    """Tell whether there is a network that could be frozen or trained on."""
    kind = backbones.find(str(config.backbone.name)).kind
    return kind == "image" and (config.init_from is not None or config.backbone.weights != "none")


def _plan(config: Config, tree: Mapping[str, Any], device: torch.device, say: Say) -> Tree:
    """Decide what of the network is trained and for how many epochs."""
    wanted = tree.get("backbone", {})
    is_fixed = "freeze" in wanted or "stages" in wanted
    is_pretrained = _is_pretrained_for_images(config)
    budget = config.training.budget
    if device.type != "cpu" and budget is None:
        if is_pretrained and not is_fixed:
            say(f"Trained: all of the network, since there is a GPU, {device} (--freeze)")
        return {}
    if budget is None and (not is_pretrained or is_fixed):
        return {}
    seconds = 60 * (_MINUTES if budget is None else budget)
    start = None if config.init_from is None else load_start(config).description
    known = None if start is None else known_inputs(config, start)
    dataset = data.read(
        config.data.source,
        config.data.root,
        config.data.partition,
        known=known,
        **config.data.options,
    )
    dataset = data.draw_splits(dataset, config.data.partition)
    costs = _Costs.measure(config, dataset, device)
    plans = _plans(
        config, costs, seconds, is_pretrained and not is_fixed, "epochs" in tree.get("training", {})
    )
    plan = next((each for each in plans if each.epochs >= each.fewest), None)
    cheapest = plans[-1]
    if plan is None and budget is None:  # nobody asked for so short a time
        fit = max(int(seconds / cheapest.per_epoch), 1)
        plan = replace(cheapest, epochs=max(min(fit, config.training.epochs), cheapest.fewest))
    if plan is None:
        needed = cheapest.once + cheapest.fewest * cheapest.per_epoch
        what, cure = "an epoch", "or a smaller --size"
        if cheapest.fewest > 1:
            what, cure = f"the {cheapest.fewest} epochs that are wanted", "or fewer --epochs"
        raise UserError(
            f"budget must allow {what}, got {_duration(seconds)}: {cheapest.words} takes about "
            f"{_duration(needed)}; give --budget {math.ceil(needed / 60)}min, {cure}"
        )
    where = "No GPU" if device.type == "cpu" else f"GPU {device}"
    source = "--budget" if budget is not None else "--budget changes it"
    total = plan.once + plan.epochs * plan.per_epoch
    passed = plans[: [each.words for each in plans].index(plan.words)]
    others = "".join(
        f"; {each.words} would take {_duration(each.once + each.fewest * each.per_epoch)}"
        for each in passed[-1:]
    )
    say(
        f"{where}, {_duration(seconds)} ({source}): {plan.words}, {plan.epochs} epochs, about "
        f"{_duration(total)}{others}"
    )
    return combine(plan.settings, {"training": {"epochs": plan.epochs}})


@dataclass(frozen=True)
class _Plan:
    """A way to train, and what it costs.

    Attributes:
        words: What is trained.
        settings: What makes a run train that.
        once: Seconds before and after training.
        per_epoch: Seconds of an epoch.
        epochs: How many of them fit, or are wanted.
        fewest: With fewer of them it is not worth while.
    """

    words: str
    settings: Tree
    once: float
    per_epoch: float
    epochs: int
    fewest: int


def _plans(
    config: Config, costs: "_Costs", seconds: float, is_open: bool, epochs_given: bool
) -> list[_Plan]:
    """List the ways to train, the best one first, if there is time for it."""

    def plan(words: str, settings: Tree, once: float, per_epoch: float, fewest: int) -> _Plan:
        most = config.training.epochs
        fit = int((seconds - once) / per_epoch)
        if epochs_given:
            epochs, fewest = (most, 1) if fit >= most else (0, most)
        else:
            epochs = min(most, fit)
        return _Plan(words, settings, once, per_epoch, epochs, fewest)

    train, validation, test = costs.counts
    look = sum(costs.counts) * costs.read
    found = []
    if is_open:
        once = look + test * (costs.forward + costs.read)
        found.append(plan("all of the network", {}, once, costs.epoch, _FEWEST_EPOCHS))
    if is_open or config.backbone.freeze:
        once = look + sum(costs.counts) * (costs.read + costs.forward)
        settings: Tree = {"backbone": {"freeze": True}}
        words = "its last layers, on frozen features"
        found.append(plan(words, settings, once, (train + validation) * _HEAD_SECONDS, 1))
    if not found:
        found.append(plan("training", {}, look, costs.epoch, 1))
    return found


@dataclass(frozen=True)
class _Costs:
    """What a sample costs, in seconds, on this machine.

    Attributes:
        counts: Samples for training, for validation, and for test and calibration, which are seen
            once.
        read: To read and prepare it.
        forward: To compute its features.
        step: To train on it.
    """

    counts: tuple[int, int, int]
    read: float
    forward: float
    step: float

    @property
    def epoch(self) -> float:
        """What an epoch costs: a step on each training sample, and validation."""
        train, validation, _ = self.counts
        return train * (self.step + self.read) + validation * (self.forward + self.read)

    @classmethod
    def measure(cls, config: Config, dataset: Dataset, device: torch.device) -> "_Costs":
        """Try a few samples."""
        parts = dataset.splits
        counts = len(parts.train), len(parts.validation), len(parts.test) + len(parts.calibration)
        model = build(config, dataset)
        network = model.backbone.to(device)
        x, read = _fetched(dataset, model.description)
        x = x.to(device)
        with torch.no_grad():
            network.eval()
            forward = _seconds(lambda: network(x), len(x))
        if config.backbone.stages is not None:
            network.train_stages(config.backbone.stages)
        network.train()
        step = _seconds(lambda: network(x).sum().backward(), len(x))
        return cls(counts, read, forward, step)


def _fetched(dataset: Dataset, spec: ModelDescription) -> tuple[Tensor, float]:
    """Fetch a batch as training does, and give the seconds that each sample took."""
    count = len(dataset.inputs)
    keys = [(place, 0) for place in range(0, count, max(1, count // _TRIED))][:_TRIED]
    if isinstance(dataset.inputs, Rows):
        return RowBatches(dataset.inputs.values).__getitems__(keys)[0], 0.0
    assert isinstance(spec.inputs, ImagePreprocessing)  # as the model was built for them
    # a file that cannot be decoded is said later, by name
    images = ImageBatches(dataset.inputs, spec.inputs, keep_going=True)
    begun = time.monotonic()
    x, _ = images.__getitems__(keys)
    return x, (time.monotonic() - begun) / len(keys) / (os.cpu_count() or 1)


def _seconds(function: Callable[[], object], samples: int) -> float:
    """Give the seconds that a sample takes, the median of a few times after a first one."""
    times = []
    for _ in range(1 + _TIMES):
        begun = time.monotonic()
        function()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.monotonic() - begun)
    return statistics.median(times[1:]) / samples


def _duration(seconds: float) -> str:
    """Write a duration in words."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
