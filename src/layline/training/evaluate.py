"""A trained run, measured again from its model file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor

from layline.data.table import TableEncoding
from layline.devices import choose
from layline.evaluation import measure
from layline.geometry.decoding import DECODINGS
from layline.model_file import load
from layline.registry import check_known
from layline.training import assembly
from layline.training.config import Config
from layline.training.outcomes import EVALUATION_FACTOR
from layline.training.reporter import Reporter
from layline.training.run_folder import RunFolder
from layline.training.settings import configuration


@dataclass(frozen=True)
class Evaluation:
    """What a model says of a part of the data.

    Attributes:
        numbers: All metrics, as in ``test.json``.
        names: What the samples are called.
        classes: Names of the classes.
        ranks: The true ones.
        log_probs: The model's.
    """

    numbers: dict[str, Any]
    names: Sequence[str]
    classes: tuple[str, ...]
    ranks: Int[Tensor, " n"]
    log_probs: Float[Tensor, "n K"]


def evaluate_run(
    folder: RunFolder,
    part: str,
    decode: str | None,
    root: Path | None,
    console: Console,
    changes: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Measure the best model of a run on a part of its data.

    Args:
        folder: The run.
        part: ``train``, ``validation`` or ``test``.
        decode: How a rank is chosen; None as in the run.
        root: Where the data are now, if they were moved.
        console: Where to say what happens.
        changes: Settings to lay over those of the run, such as ``{"data": {"workers": 0}}``.
    """
    config = _config(folder, changes or {})
    if root is not None:
        moved = config.data.model_copy(update={"root": root.expanduser().resolve()})
        config = config.model_copy(update={"data": moved})
    check_known("part", part, ("train", "validation", "test"))
    decode = decode or config.training.decode
    check_known("decode", decode, DECODINGS)
    model = load(folder.path)
    model.to(choose(config.training.device, isinstance(model.spec.inputs, TableEncoding)))
    say = Reporter(console)
    dataset = assembly.read_data(config, say)
    if dataset.classes != model.classes:
        raise ValueError(
            f"the data must have the classes of the model, {', '.join(model.classes)}, got "
            f"{', '.join(dataset.classes)}"
        )
    _check_same_data(folder, assembly.fingerprint(dataset), root, say)
    kept = dataset.partition.parts()[part]
    inputs, ranks = dataset.inputs.subset(kept), torch.from_numpy(dataset.ranks[kept])
    size = EVALUATION_FACTOR * config.training.batch_size
    found = model.stream(assembly.samples(inputs, model.spec), size, config.data.workers)
    log_probs = torch.cat([each.log_probs for each in found])
    numbers = {"part": part, **measure(ranks, log_probs, decode)}
    return Evaluation(numbers, inputs.names, model.classes, ranks, log_probs)


def _config(folder: RunFolder, changes: Mapping[str, Any]) -> Config:
    """Read the settings of the run and change some; those of the model are in its file."""
    before = folder.read_config()
    after = configuration(before.model_dump(mode="json", exclude_none=True), changes)
    for section in ("recipe", "features", "head"):
        if getattr(after, section) != getattr(before, section):
            raise ValueError(f"{section} must stay as it was: the model was trained with it")
    return after


def _check_same_data(folder: RunFolder, now: str, root: Path | None, say: Reporter) -> None:
    """Refuse data that changed since training: a random split then mixes the parts."""
    if not folder.environment.exists():
        return  # somebody took the model and its configuration only
    if json.loads(folder.environment.read_text(encoding="utf-8"))["data"] == now:
        return
    what = "files were added, removed or renamed, so this part may hold what the model learned from"
    if root is None:
        raise ValueError(
            f"the data must be those that {folder.path} was trained on, got others: {what}; "
            "layline predict takes any images, and --root says that other data are meant"
        )
    say(f"These are not the data of training: {what}")
