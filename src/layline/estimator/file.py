"""An estimator in the file of a model: what is needed beside the model itself to get it back.

The model is what :func:`layline.load` opens, with the names of the classes as texts. Under
``estimator`` its description has the labels as they were, the parameters, and what ``fit`` found.
A description may be anyone's and say anything, so whatever is wrong with it is a ``ValueError``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from layline.backbones.base import TableBackbone
from layline.data.labels import Array
from layline.data.table_encoding import NumericColumn, TableEncoding, text_of
from layline.estimator.inputs import column_names
from layline.estimator.parameters import structure_of
from layline.geometry.decoding import checked_decode
from layline.model.description import ModelDescription, first_mistake
from layline.model.model import OrdinalModel
from layline.model.model_file import load
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.estimator.classifier import OrdinalClassifier

_Kind = Literal[
    "str", "object", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
_E = TypeVar("_E", bound="OrdinalClassifier")


class _Estimator(BaseModel):
    """What a file says of an estimator.

    Attributes:
        labels: Those that it was fitted on, lowest first.
        kind: Their dtype.
        parameters: Those of the constructor.
        columns: Names of the columns of X, if they had names.
        count: How many there are.
        encoded: Whether X was a data frame.
        dtype: The precision in which columns are standardised.
        history: A record of each epoch.
        best_epoch: The one that was kept.
        n_iter: Epochs of the last fit.
        seed: What the parts were drawn by.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    labels: list[bool | int | float | str]
    kind: _Kind
    parameters: dict[str, Any]
    columns: list[str] | None
    count: PositiveInt
    encoded: bool
    dtype: Literal["float32", "float64"]
    history: list[dict[str, int | float]]
    best_epoch: NonNegativeInt
    n_iter: NonNegativeInt
    seed: NonNegativeInt


def save_estimator(estimator: "OrdinalClassifier", path: Path) -> None:
    """Write a fitted estimator to the file of a model."""
    for name, registry in (("backbone", "layline.backbones"), ("method", "layline.heads")):
        value = estimator._built_from[name]
        if not isinstance(value, str):
            raise UserError(
                f"{name} must be a name of {registry} to be saved, got {type(value).__name__}: a "
                "file that runs no code cannot rebuild what is written in code; pickle the "
                "estimator instead"
            )
    features, head, classes = estimator.backbone_, estimator.head_, estimator.classes_
    assert isinstance(features, TableBackbone)  # features of a name are
    built = _plain("head_options", estimator._built_from["head_options"] or {})
    spec = ModelDescription(
        backbone=estimator._built_from["backbone"],
        method=estimator._built_from["method"],
        dim=estimator._built_from["dim"],
        classes=_names(classes),
        inputs=estimator.encoding_ or _unnamed_columns(estimator),
        backbone_options=features.options,
        head_options=built,
        decode=checked_decode(estimator.decode, len(classes)),
        calibration=estimator.calibration_,
        estimator=_described(estimator).model_dump(),
    )
    OrdinalModel(spec, features, head).save(path)


def load_estimator(cls: type[_E], path: str | Path, device: str | torch.device) -> _E:
    """Read an estimator from the file of a model."""
    model = load(path, device)
    spec = model.description
    if not isinstance(spec.inputs, TableEncoding):
        raise UserError(
            f"{path} must be a model of a table, got one of images: layline.load opens it"
        )
    try:
        about = _Estimator(**spec.estimator) if spec.estimator else _of_run(spec, spec.inputs)
        labels = _labels(about, spec)
        parameters = _parameters(about.parameters, cls)
        _check_columns(about, spec.inputs)
    except (ValidationError, ValueError) as error:
        why = first_mistake(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} must describe its estimator, got: {why}") from error
    # the network is what the description of the model says
    parameters |= {"method": spec.method, "backbone": spec.backbone, "dim": spec.dim}
    estimator = cls(**{**parameters, "device": str(torch.device(device))})
    if about.dtype == "float32":
        for name, values in list(model.backbone.named_buffers(recurse=False)):
            if values.is_floating_point():
                setattr(model.backbone, name, values.to(torch.float32))
    estimator._built_from, estimator._seed = structure_of(estimator), about.seed
    estimator._set_fitted(labels, model.backbone, model.head)
    estimator.encoding_ = spec.inputs if about.encoded else None
    estimator.calibration_ = spec.calibration
    estimator.history_, estimator.best_epoch_ = about.history, about.best_epoch
    estimator.n_iter_, estimator.n_features_in_ = about.n_iter, about.count
    if about.columns is not None:
        estimator.feature_names_in_ = np.array(about.columns, dtype=object)
    return estimator


def _described(estimator: "OrdinalClassifier") -> _Estimator:
    labels = estimator.classes_
    kind = "str" if labels.dtype.kind == "U" else labels.dtype.name
    columns = getattr(estimator, "feature_names_in_", None)
    statistics = next(estimator.backbone_.buffers(recurse=False), torch.zeros(0).double())
    given = estimator.get_params(deep=False)
    weights = given["class_weight"]
    if isinstance(weights, Mapping):  # a list, since JSON knows texts as keys only
        given["class_weight"] = [list(pair) for pair in weights.items()]
    if isinstance(given["random_state"], np.random.RandomState):
        given["random_state"] = None  # a generator that is somewhere in its sequence
    given["device"] = str(given["device"])
    try:
        return _Estimator(
            labels=labels.tolist(),
            kind=kind,  # type: ignore[arg-type]  # checked here
            parameters={name: _plain(name, value) for name, value in given.items()},
            columns=None if columns is None else columns.tolist(),
            count=estimator.n_features_in_,
            encoded=estimator.encoding_ is not None,
            dtype="float32" if statistics.dtype == torch.float32 else "float64",
            history=estimator.history_,
            best_epoch=estimator.best_epoch_,
            n_iter=estimator.n_iter_,
            seed=estimator._seed,
        )
    except ValidationError:
        raise UserError(
            f"labels must be numbers, booleans or strings to be saved, got {kind}: turn them into "
            "strings"
        ) from None


def _of_run(spec: ModelDescription, inputs: TableEncoding) -> _Estimator:
    """Describe a model of a table that no estimator wrote."""
    return _Estimator(
        labels=list(spec.classes),
        kind="str",
        parameters={
            "classes": list(spec.classes),
            "hidden": spec.backbone_options.get("hidden"),
            "head_options": spec.head_options or None,
            "decode": spec.decode
            if isinstance(spec.decode, str)
            else np.asarray(spec.decode).tolist(),
        },
        columns=list(inputs.names),
        count=len(inputs.names),
        encoded=True,
        dtype="float64",
        history=[],
        best_epoch=0,
        n_iter=0,
        seed=0,
    )


def _names(labels: Array) -> tuple[str, ...]:
    """Call the classes by texts, as ``layline train`` calls those of the same table."""
    return tuple(label if isinstance(label, str) else text_of(label) for label in labels.tolist())


def _labels(about: _Estimator, spec: ModelDescription) -> Array:
    try:
        labels: Array = np.array(about.labels, dtype=None if about.kind == "str" else about.kind)
    except (TypeError, OverflowError) as error:
        raise UserError(f"labels of {about.kind}: {error}") from None
    if _names(labels) != spec.classes:
        raise UserError(f"labels {about.labels} of the classes {', '.join(spec.classes)}")
    return labels


def _parameters(given: Mapping[str, Any], cls: type[_E]) -> dict[str, Any]:
    unknown = sorted(set(given) - set(cls._get_param_names()))
    if unknown:
        raise UserError(f"the parameter {unknown[0]!r}, which is none")
    parameters = dict(given)
    if isinstance(parameters.get("class_weight"), list):
        try:
            parameters["class_weight"] = dict(parameters["class_weight"])
        except TypeError:
            raise UserError("class_weight that is no list of pairs") from None
    return parameters


def _check_columns(about: _Estimator, inputs: TableEncoding) -> None:
    """Refuse columns that do not fit those of the model."""
    names = [f"x{place}" for place in range(about.count)]
    names = names if about.columns is None else about.columns
    fits = {*inputs.names} <= {*names} if about.encoded else list(inputs.names) == names
    if len(names) != about.count or not fits:
        raise UserError(f"{about.count} columns, {len(inputs.names)} of them inputs, that differ")


def _unnamed_columns(estimator: "OrdinalClassifier") -> TableEncoding:
    """Describe the columns of an array, none of which has a missing value."""
    names = column_names(estimator)
    means = getattr(estimator.backbone_, "mean", torch.zeros(len(names))).tolist()
    return TableEncoding(
        tuple(NumericColumn(name, mean, False) for name, mean in zip(names, means, strict=True)), ()
    )


def _plain(name: str, value: Any) -> Any:
    """Give a parameter as JSON has it."""

    def converted(item: Any) -> Any:
        if hasattr(item, "tolist"):  # arrays, their numbers, an index of pandas
            return item.tolist()
        raise TypeError(type(item).__name__)

    try:
        return json.loads(json.dumps(value, default=converted))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} must be made of numbers, texts and lists to be saved, got {error}: "
            "pickle the estimator instead"
        ) from None
