"""Save an estimator as a model file, and load it again.

The model in the file is what :func:`layline.load` opens, with the classes as strings. Its
description has a section ``estimator`` with the original labels, the parameters and the fitted
attributes. A description may come from anyone, so every value is checked.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from layline.data.labels import Array
from layline.data.tables import TableEncoding, text_of
from layline.estimator.classifier import STRUCTURE, OrdinalClassifier
from layline.geometry.decoding import check_decode
from layline.model.description import ModelDescription, first_mistake
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.utils.validation import UserError

_E = TypeVar("_E", bound=OrdinalClassifier)


class _State(BaseModel):
    """The section ``estimator`` of a description."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    labels: list[bool | int | float | str]
    labels_dtype: str
    parameters: dict[str, Any]
    columns: list[str] | None
    n_features: PositiveInt
    history: list[dict[str, int | float]]
    best_epoch: NonNegativeInt
    n_iter: NonNegativeInt
    seed: NonNegativeInt


def save_estimator(estimator: OrdinalClassifier, path: Path) -> None:
    """Write a fitted estimator to a model file."""
    built_from, labels, inputs = estimator._built_from, estimator.classes_, estimator.encoding_
    named = all(isinstance(built_from[name], str) for name in ("backbone", "method"))
    if inputs is None or not named:
        raise UserError(
            "Only an estimator with a named backbone and a named method can be saved, because the "
            "file contains no code. Pickle the estimator instead."
        )
    given = estimator.get_params(deep=False)
    if isinstance(given["class_weight"], Mapping):  # JSON has only strings as keys
        given["class_weight"] = [list(pair) for pair in given["class_weight"].items()]
    if isinstance(given["random_state"], np.random.RandomState):
        given["random_state"] = None
    given["device"] = str(given["device"])
    columns = getattr(estimator, "feature_names_in_", None)
    try:
        state = _State(
            labels=labels.tolist(),
            labels_dtype="str" if labels.dtype.kind == "U" else labels.dtype.name,
            # arrays and NumPy's numbers become lists and numbers
            parameters=json.loads(json.dumps(given, default=lambda item: item.tolist())),
            columns=None if columns is None else columns.tolist(),
            n_features=estimator.n_features_in_,
            history=estimator.history_,
            best_epoch=estimator.best_epoch_,
            n_iter=estimator.n_iter_,
            seed=estimator._seed,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"The labels or parameters cannot be saved: {error}. Pickle the estimator instead."
        ) from None
    backbone: Any = estimator.backbone_
    description = ModelDescription(
        backbone=built_from["backbone"],
        method=estimator.method_,
        dim=estimator.head_.dim,
        classes=_name_classes(labels),
        inputs=inputs,
        backbone_options=backbone.options,
        head_options=state.parameters["head_options"] or {},
        decode=check_decode(estimator.decode, len(labels)),
        calibration=estimator.calibration_,
        estimator=state.model_dump(),
    )
    OrdinalModel(description, backbone, estimator.head_).save(path)


def load_estimator(cls: type[_E], path: str | Path, device: str | torch.device) -> _E:
    """Read an estimator from a model file."""
    model = load(path, device)
    description, inputs = model.description, model.description.inputs
    if not isinstance(inputs, TableEncoding) or description.estimator is None:
        raise UserError(f"{path} is not the file of an estimator; open it with layline.load.")
    try:
        state = _State(**description.estimator)
        labels = _read_labels(state, description)
        parameters = dict(state.parameters)
        if isinstance(parameters.get("class_weight"), list):
            parameters["class_weight"] = dict(parameters["class_weight"])
        estimator = cls(**{**parameters, "device": str(torch.device(device))})
        columns = state.columns or [f"x{place}" for place in range(state.n_features)]
        if len(columns) != state.n_features or not {*inputs.names} <= {*columns}:
            raise UserError("the columns of the estimator differ from those of the model")
    except (ValueError, TypeError, OverflowError) as error:
        why = first_mistake(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} does not describe a valid estimator: {why}") from error
    estimator.method_ = description.method
    estimator._built_from = {name: getattr(estimator, name) for name in STRUCTURE}
    estimator._seed, estimator.encoding_ = state.seed, inputs
    estimator._set_fitted(labels, model)
    estimator.calibration_ = description.calibration
    estimator.history_, estimator.best_epoch_ = state.history, state.best_epoch
    estimator.n_iter_, estimator.n_features_in_ = state.n_iter, state.n_features
    if state.columns is not None:
        estimator.feature_names_in_ = np.array(state.columns, dtype=object)
    return estimator


def _read_labels(state: _State, description: ModelDescription) -> Array:
    dtype = np.dtype(state.labels_dtype)
    labels: Array = np.array(state.labels, dtype=None if dtype.kind == "U" else dtype)
    if dtype.kind not in "biufUO" or _name_classes(labels) != description.classes:
        raise UserError("the labels differ from the classes of the model")
    return labels


def _name_classes(labels: Array) -> tuple[str, ...]:
    """Convert labels to strings, as ``layline train`` names the classes of the same table."""
    return tuple(label if isinstance(label, str) else text_of(label) for label in labels.tolist())
