"""Baselines: estimators of other libraries, fitted to the tables and frozen features of a grid.

An estimator needs ``fit`` and ``predict_proba``, as in scikit-learn and LightGBM. It gets the same
rows as our models, not standardized, and ranks as labels. Its probabilities are calibrated on the
same splits as ours. Without ``predict_proba`` its predictions are rounded to ranks, and metrics of
probabilities are missing.
"""

import ast
import inspect
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from rich.console import Console
from torch import Tensor

from layline.backbones import find as find_backbone
from layline.data.dataset import Indices, groups_of
from layline.data.stress import gap_class
from layline.data.tables import Rows
from layline.evaluation.evaluate import evaluate_split, measure, measure_gap
from layline.evaluation.predictions import Predictions
from layline.geometry.decoding import DECODINGS, Decode, decide, decode_name
from layline.metrics import METRICS, PROBABILITY_METRICS
from layline.model.calibration import Calibration, apply_temperature
from layline.training.callbacks import Reporter
from layline.training.config import Config, HeadConfig, Section, TrainingConfig
from layline.training.distributed import make_accelerator
from layline.training.prepare import extract_features, weigh
from layline.training.run import prepare_run
from layline.training.run_folder import RunFolder, describe_environment
from layline.utils.files import write_json
from layline.utils.registry import describe_plugin, import_reference, resolve_reference
from layline.utils.validation import UserError

_OF_LAST_LAYER = {"hidden", "dropout"}  # options of what comes after the frozen features
_SEED = "random_state"
Matrix = Float[np.ndarray, "n columns"]
SearchSpace = dict[str, Annotated[list[Any], Field(min_length=1)]]


class Baseline(Section):
    """An estimator of another library."""

    name: str
    estimator: str  # module and name of its class, or of a function that makes it: sklearn.svm:SVC
    options: dict[str, Any] = Field(default_factory=dict)
    # values to try; for each data set and seed, those with the best validation score are used
    tune: SearchSpace = Field(default_factory=dict)

    def make(self, seed: int) -> Any:
        """Make the estimator, with the seed of the run if it takes one."""
        _, make = self.find()
        try:
            estimator = make(**self.options)
            own = estimator.get_params() if hasattr(estimator, "get_params") else {}
            seeds = [key for key in own if key.split("__")[-1] == _SEED and own[key] is None]
            if seeds:
                estimator.set_params(**dict.fromkeys(seeds, seed))
        except Exception as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise UserError(f"Baseline {self.name} cannot be created: {why}") from error
        predicts = hasattr(estimator, "predict_proba") or hasattr(estimator, "predict")
        if not predicts or not hasattr(estimator, "fit"):
            raise UserError(f"{self.estimator} must have fit and predict_proba or predict.")
        return estimator

    def find(self) -> tuple[ModuleType, Any]:
        """Import the module and look the name up in it."""
        place, colon, name = self.estimator.rpartition(":")
        if not colon or not place or not name.replace(".", "_").isidentifier():
            example = "MODULE:NAME, such as sklearn.svm:SVC"
            raise UserError(f"A baseline is written {example}; got {self.estimator!r}.")
        module = import_reference(resolve_reference(place))
        try:
            return module, attrgetter(name)(module)
        except AttributeError:
            raise UserError(f"Baseline {self.estimator} does not exist.") from None


def parse_baseline(text: str) -> Baseline:
    """Read ``sklearn.ensemble:HistGradientBoostingClassifier(max_iter=50)``."""
    place, bracket, rest = text.strip().partition("(")
    options: dict[str, Any] = {}
    if bracket:
        try:
            call = ast.parse(f"f({rest}", mode="eval").body
            if not isinstance(call, ast.Call) or call.args or any(not k.arg for k in call.keywords):
                raise ValueError("arguments need names")
            options = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        except (SyntaxError, ValueError) as error:
            raise UserError(
                f"A baseline is written MODULE:NAME(option=value, …); got {text!r}: {error}."
            ) from None
    name = place.rpartition(":")[2] + (bracket and bracket + rest)
    return Baseline(name=name, estimator=place, options=options)


def baseline_config(config: Config) -> Config:
    """Keep the settings that a baseline depends on, so that runs that differ in others are one."""
    backbone = config.backbone
    if find_backbone(str(backbone.name)).kind == "image" and not backbone.freeze:
        raise UserError(
            f"Baselines need a table or frozen features, and {backbone.name} is trained on images; "
            "set backbone.freeze=true."
        )
    kept = {key: value for key, value in backbone.options.items() if key not in _OF_LAST_LAYER}
    changes = {"options": kept if backbone.freeze else {}, "stages": None}
    names = {"metric", "decode", "class_weight", "calibrate", "folds", "seed", "device"}
    sections = {
        "backbone": backbone.model_copy(update=changes),
        "head": HeadConfig(),
        "training": TrainingConfig(**config.training.model_dump(include=names)),
    }
    return config.model_copy(update=sections)


def fit_baseline(
    baseline: Baseline, config: Config, folder: RunFolder, console: Console, command: Sequence[str]
) -> dict[str, Any]:
    """Fit a baseline to the data of a run, test it, and return the numbers of ``test.json``."""
    run = prepare_run(config, make_accelerator(config), Reporter(console))
    about = describe_environment(config, run.dataset, run.model, run.processes, command)
    about["baseline"] = f"{baseline.name}: {describe_plugin(baseline.find()[0])}"
    folder.open(config, about)
    dataset, estimator = run.dataset, baseline.make(config.training.seed)
    splits, decode, classes = dataset.splits, config.training.decoding, len(dataset.classes)
    rows = dataset.inputs.values if isinstance(dataset.inputs, Rows) else extract_features(run)
    truth = torch.from_numpy(dataset.ranks)
    weights: dict[str, Any] = {}
    if config.training.class_weight != "off":
        if "sample_weight" not in inspect.signature(estimator.fit).parameters:
            raise UserError(
                f"{baseline.name} does not support class_weight: its fit has no sample_weight."
            )
        weights["sample_weight"] = weigh(config, dataset)[dataset.ranks[splits.train]]
    train = np.ascontiguousarray(rows[splits.train])
    estimator.fit(train, dataset.ranks[splits.train], **weights)

    def predict(index: Indices) -> Predictions:
        return _predict(baseline, estimator, np.ascontiguousarray(rows[index]), classes, decode)

    validation, test = predict(splits.validation), predict(splits.test)
    if test.log_probs.isnan().any():  # there are no probabilities
        certain = torch.nn.functional.one_hot(test.decisions["mode"], classes).double().log()
        numbers = measure(truth[splits.test], Predictions(certain, test.decisions), decode)
        numbers |= {"part": "test", **dict.fromkeys(PROBABILITY_METRICS), "ranges": []}
    else:
        known, unseen = None, None
        if config.training.calibrate:
            # a probability of zero stays zero at every temperature, so it does not help
            ranks = truth[splits.validation]
            possible = validation.log_probs[torch.arange(len(ranks)), ranks].isfinite()
            known = validation.log_probs[possible], ranks[possible]
        if len(splits.calibration):
            unseen = predict(splits.calibration).log_probs, truth[splits.calibration]
        calibration = Calibration.fit(known, unseen)
        description = replace(run.model.description, calibration=calibration)
        names = dataset.inputs.subset(splits.test).names
        groups = groups_of(dataset, splits.test)
        test = _decode(apply_temperature(test.log_probs, calibration.temperature), decode)
        draws = config.report.draws
        result = evaluate_split(
            "test", truth[splits.test], names, test, description, decode, groups, draws=draws
        )
        result.write_predictions(folder.predictions)
        numbers = result.numbers
    if config.data.stress == "gap":
        numbers["gap"] = measure_gap(truth[splits.test], test, gap_class(classes))
    # as for our models, the validation score is computed before calibration
    metric = METRICS[config.training.metric]
    chosen = validation.decisions[decode_name(decode)]
    score = metric.function(dataset.ranks[splits.validation], chosen)
    numbers |= {"epoch": 0, "criterion": metric.sign * score}
    write_json(folder.test, numbers)
    return numbers


def _predict(
    baseline: Baseline, estimator: Any, x: Matrix, num_classes: int, decode: Decode
) -> Predictions:
    """Predict probabilities, NaN if there are none, and ranks by every decoding."""
    if hasattr(estimator, "predict_proba"):
        raw = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        # classes without training samples have no column
        places = np.asarray(getattr(estimator, "classes_", range(num_classes))).astype(np.int64)
        good = raw.shape == (len(x), len(places)) and (raw >= 0).all()
        sums = raw.sum(axis=1, keepdims=True)
        if not good or not np.allclose(sums, 1, atol=1e-3):
            raise UserError(f"predict_proba of {baseline.name} did not return probabilities.")
        proba = torch.zeros(len(x), num_classes, dtype=torch.float64)
        proba[:, places] = torch.from_numpy(raw / sums)
        return _decode(proba.log(), decode)
    predicted = np.asarray(estimator.predict(x), dtype=np.float64).reshape(-1)
    if predicted.shape != (len(x),) or not np.isfinite(predicted).all():
        raise UserError(f"{baseline.name} did not predict a finite number for each sample.")
    ranks = torch.from_numpy(np.clip(np.ceil(predicted - 0.5), 0, num_classes - 1)).long()
    missing = torch.full((len(x), num_classes), torch.nan)
    return Predictions(missing, dict.fromkeys((*DECODINGS, decode_name(decode)), ranks))


def _decode(log_probs: Float[Tensor, "n K"], decode: Decode) -> Predictions:
    """Decode ranks by every decoding."""
    proba = log_probs.exp()
    decodings: tuple[Decode, ...] = (*DECODINGS, decode)
    return Predictions(log_probs, {decode_name(by): decide(proba, by) for by in decodings})
