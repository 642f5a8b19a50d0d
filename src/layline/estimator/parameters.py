"""The parameters of an estimator: what can be judged of them without data."""

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from layline import backbones, heads
from layline.training.optim import MODERN, Options, default_head_rate, default_warmup
from layline.utils.devices import check_device, choose_device
from layline.utils.errors import UserError
from layline.utils.validation import check_integer, check_known

if TYPE_CHECKING:
    from layline.estimator.classifier import OrdinalClassifier

# What a network is built from, and warm_start cannot change.
_STRUCTURE = ("method", "backbone", "dim", "hidden", "head_options")


def training_options(estimator: "OrdinalClassifier", *, has_validation: bool) -> Options:
    """Check the parameters, and give those of the training loop.

    Args:
        estimator: Fitted or not.
        has_validation: Whether there are samples to choose the epoch by beside X.
    """
    if not isinstance(estimator.backbone, str | nn.Module) and not callable(estimator.backbone):
        raise UserError(
            f"features must be a name or an nn.Module, got {estimator.backbone!r}: names are "
            f"{', '.join(backbones.names('table'))}; what makes a module will do too"
        )
    if isinstance(estimator.backbone, str):
        check_known("backbone", estimator.backbone, backbones.names("table"))
    _, method = heads.find(estimator.method)
    check_integer("dim", estimator.dim, 1, "it is the length of a feature")
    fraction, apart = estimator.validation_fraction, estimator.calibration_fraction
    if not (isinstance(fraction, Real) and 0 <= fraction < 1):
        raise UserError(
            f"validation_fraction must be a number in [0, 1), got {fraction!r}: 0 holds nothing out"
        )
    if apart is not None and not (isinstance(apart, Real) and 0 <= apart < 1):
        raise UserError(
            f"calibration_fraction must be a number in [0, 1) or None, got {apart!r}: "
            "0 keeps nothing apart"
        )
    if estimator.patience is not None and fraction == 0 and not has_validation:
        raise UserError(
            f"patience must be None if validation_fraction is 0, got {estimator.patience!r}: "
            "without validation there is nothing to wait for"
        )
    if estimator.hidden is not None and not isinstance(estimator.backbone, str):
        raise UserError(
            f"hidden must be None if features is a module or makes one, got {estimator.hidden!r}: "
            "the module has its own layers"
        )
    if not isinstance(estimator.head_options, Mapping | None):
        raise UserError(
            f"head_options must be a dict, got {estimator.head_options!r}: write {{'alpha': 2.0}}"
        )
    taken = sorted({"num_classes", "dim"} & set(estimator.head_options or {}))
    if taken:
        raise UserError(
            f"head_options must be the method's own options, got {taken[0]!r}: "
            "dim is an argument of its own, and num_classes follows from the labels"
        )
    check_integer("verbose", estimator.verbose, 0)
    if not isinstance(estimator.warm_start, bool | np.bool_):
        raise UserError(
            f"warm_start must be True or False, got {estimator.warm_start!r}: the epochs to go on "
            "for are epochs"
        )
    check_known("recipe", estimator.recipe, ("modern", "paper"))
    check_integer("epochs", estimator.epochs, 1)
    modern = MODERN | {"warmup_epochs": default_warmup(estimator.epochs)}
    head_rate = estimator.head_learning_rate
    return Options(
        **(modern if estimator.recipe == "modern" else {}),
        epochs=estimator.epochs,
        batch_size=estimator.batch_size,
        learning_rate=estimator.learning_rate,
        head_learning_rate=(
            default_head_rate(method, estimator.recipe) if head_rate is None else head_rate
        ),
        weight_decay=estimator.weight_decay,
        decode=estimator.decode,
        patience=estimator.patience,
    )


def chosen_device(estimator: "OrdinalClassifier") -> torch.device:
    """Give the device to train on."""
    if isinstance(estimator.device, str) and estimator.device == "auto":
        return choose_device("auto", needs_double=estimator._takes_table)
    return check_device(estimator.device)


def structure_of(estimator: "OrdinalClassifier") -> dict[str, Any]:
    """Give the parameters that the network is built from."""
    return {name: getattr(estimator, name) for name in _STRUCTURE}


def check_same_structure(estimator: "OrdinalClassifier") -> None:
    """Refuse to go on with another network than the one that is fitted."""
    for name, now in structure_of(estimator).items():
        before = estimator._built_from[name]
        if before is not now and before != now:
            raise UserError(
                f"{name} must be {before!r} as before with warm_start, got {now!r}: it goes on "
                "from fitted weights, so set warm_start=False to begin anew"
            )
