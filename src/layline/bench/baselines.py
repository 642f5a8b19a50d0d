"""Baselines: estimators of other libraries, fitted to the tables and frozen features of a grid.

An estimator needs ``fit`` and ``predict_proba``, as in scikit-learn and LightGBM. It gets the same
rows as our models, not standardized, and ranks as labels. Its probabilities are calibrated on the
same splits as ours. Without ``predict_proba`` its predictions are rounded to ranks, and metrics of
probabilities are missing.
"""

import ast
import inspect
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from rich.console import Console
from torch import Tensor

from layline.backbones import find as find_backbone
from layline.data.dataset import Indices, groups_of
from layline.data.table_encoding import Rows
from layline.evaluation.evaluate import evaluate_split, measure
from layline.evaluation.predictions import Predictions
from layline.geometry.decoding import COST, DECODINGS, Decode, decide, decode_name
from layline.metrics import CRITERIA, METRICS
from layline.model.calibration import Calibration, apply_temperature
from layline.model.description import ModelDescription
from layline.training.config import Config, HeadConfig, Section, TrainingConfig
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.prepare import weigh
from layline.training.recipes import is_for_tables
from layline.training.run import (
    PreparedRun,
    describe_environment,
    frozen_features,
    prepare_run,
)
from layline.training.run_folder import RunFolder
from layline.utils.errors import UserError
from layline.utils.files import write_json
from layline.utils.plugins import describe_plugin, import_reference, resolve_reference

_OF_LAST_LAYER = {"hidden", "dropout"}
_SEED = "random_state"
Matrix = Float[np.ndarray, "n columns"]
Outcome = tuple[Float[Tensor, "n K"], Int[Tensor, " n"]]
SearchSpace = dict[str, Annotated[list[Any], Field(min_length=1)]]


class Baseline(Section):
    """An estimator of another library.

    Attributes:
        name: Its name in tables.
        estimator: Module and name of its class, or of a function that makes it:
            ``sklearn.svm:SVC``.
        options: Its arguments.
        tune: Arguments to tune, each with its values. For each data set and seed, the values with
            the best validation score are used.
    """

    name: str
    estimator: str
    options: dict[str, Any] = Field(default_factory=dict)
    tune: SearchSpace = Field(default_factory=dict)

    def check(self) -> None:
        """Make every estimator once, so that errors are reported before any run."""
        for values in product(*self.tune.values()):
            chosen = dict(zip(self.tune, values, strict=True))
            self.model_copy(update={"options": {**self.options, **chosen}}).make(0)

    def make(self, seed: int) -> Any:
        """Make the estimator, with the seed of the run if it takes one."""
        _, found = self._find()
        if not callable(found):
            raise UserError(f"Baseline {self.estimator} is neither a class nor a function.")
        try:
            estimator = found(**self.options)
            if hasattr(estimator, "get_params"):
                own = estimator.get_params()
                seeds = [key for key in own if key.split("__")[-1] == _SEED and own[key] is None]
                estimator.set_params(**dict.fromkeys(seeds, seed))
        except Exception as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise UserError(f"Baseline {self.name} cannot be created: {why}") from error
        if not hasattr(estimator, "fit") or not (
            hasattr(estimator, "predict_proba") or hasattr(estimator, "predict")
        ):
            raise UserError(
                f"Baseline {self.estimator} must have fit and predict_proba or predict."
            )
        return estimator

    def version(self) -> str:
        """Name its library, with the version."""
        return str(describe_plugin(self._find()[0]))

    def _find(self) -> tuple[Any, Any]:
        """Import the module and look the name up in it."""
        module, colon, name = self.estimator.rpartition(":")
        if not colon or not module or not name.replace(".", "_").isidentifier():
            raise UserError(
                f"A baseline is written MODULE:NAME, such as sklearn.svm:SVC; got "
                f"{self.estimator!r}."
            )
        found = imported = import_reference(resolve_reference(module))
        for part in name.split("."):
            if not hasattr(found, part):
                raise UserError(f"Baseline {self.estimator} does not exist: no {part} in {module}.")
            found = getattr(found, part)
        return imported, found


def parse_baseline(text: str) -> Baseline:
    """Read ``sklearn.ensemble:HistGradientBoostingClassifier(max_iter=50)``.

    Args:
        text: A module or file, a colon, and a name, with optional keyword arguments.
    """
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
    """Keep the settings that a baseline depends on: its data and its backbone.

    Runs that differ in anything else, such as a tuned learning rate, become one.
    """
    own, training = config.backbone, config.training
    if find_backbone(str(own.name)).kind == "image" and not own.freeze:
        raise UserError(
            f"Baselines need a table or frozen features, and {own.name} is trained on images; set "
            "backbone.freeze=true."
        )
    kept = {key: value for key, value in own.options.items() if key not in _OF_LAST_LAYER}
    names = {"metric", "decode", "class_weight", "calibrate", "seed", "device"}
    return config.model_copy(
        update={
            "backbone": own.model_copy(
                update={"options": kept if own.freeze else {}, "stages": None}
            ),
            "head": HeadConfig(),
            "training": TrainingConfig(**training.model_dump(include=names)),
        }
    )


def fit_baseline(
    baseline: Baseline,
    config: Config,
    folder: RunFolder,
    console: Console,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Fit a baseline to the data of a run, test it, and write the results to the folder.

    Args:
        baseline: The estimator.
        config: The result of :func:`baseline_config`.
        folder: The folder of the run.
        console: For messages.
        command: The command that started the grid.

    Returns:
        The numbers of ``test.json``.
    """
    accelerator = make_accelerator(config, is_for_tables(config))
    run = prepare_run(config, accelerator, Reporter(console))
    about = {"baseline": f"{baseline.name}: {baseline.version()}"}
    folder.open(config, describe_environment(run, command) | about)
    dataset, rows = run.dataset, _rows(run)
    splits = dataset.splits
    estimator = baseline.make(config.training.seed)
    train = np.ascontiguousarray(rows[splits.train])
    _fit(baseline, estimator, train, dataset.ranks[splits.train], run)
    decode, classes = config.training.decoding, len(dataset.classes)

    def predict(index: Indices) -> Predictions:
        x = np.ascontiguousarray(rows[index])
        return _predict(baseline, estimator, x, classes, decode)

    validation, test = predict(splits.validation), predict(splits.test)
    ranks = torch.from_numpy(dataset.ranks[splits.test])
    if test.log_probs.isnan().any():  # there are no probabilities
        numbers: dict[str, Any] = {"part": "test", **measure(ranks, _one_hot(test), decode)}
        of_proba = [name for name, each in METRICS.items() if each.kind == "probabilities"]
        numbers |= {**dict.fromkeys(of_proba), "ranges": []}
    else:
        outcomes: list[Outcome | None] = [None, None]
        if config.training.calibrate:
            outcomes[0] = _possible(validation, dataset.ranks[splits.validation])
        if len(splits.calibration):
            unseen = predict(splits.calibration)
            outcomes[1] = unseen.log_probs, torch.from_numpy(dataset.ranks[splits.calibration])
        calibration = Calibration.fit(*outcomes)
        description = ModelDescription(
            backbone=str(config.backbone.name),
            method=baseline.estimator,
            dim=1,
            classes=dataset.classes,
            inputs=run.model.description.inputs,
            decode=decode,
            calibration=calibration,
        )
        names = dataset.inputs.subset(splits.test).names
        groups = groups_of(dataset, splits.test)
        test = _decode(apply_temperature(test.log_probs, calibration.temperature), decode)
        found = evaluate_split("test", ranks, names, test, description, decode, groups)
        found.write_predictions(folder.predictions)
        numbers = found.numbers
    # as for our models, the validation score is computed before calibration
    criterion = CRITERIA[config.training.metric]
    chosen = validation.decisions[decode_name(decode)]
    score = criterion.function(dataset.ranks[splits.validation], chosen)
    numbers |= {"epoch": 0, "criterion": criterion.sign * score}
    write_json(folder.test, numbers)
    return numbers


def _rows(run: PreparedRun) -> Matrix:
    """Give the encoded rows of a table, or frozen features."""
    inputs = run.dataset.inputs
    return inputs.values if isinstance(inputs, Rows) else frozen_features(run)


def _fit(
    baseline: Baseline, estimator: Any, x: Matrix, ranks: Int[np.ndarray, " n"], run: PreparedRun
) -> None:
    weights: dict[str, Any] = {}
    if run.config.training.class_weight != "off":
        if "sample_weight" not in inspect.signature(estimator.fit).parameters:
            raise UserError(
                f"{baseline.name} does not support class_weight: its fit has no sample_weight."
            )
        weights["sample_weight"] = weigh(run.config, run.dataset)[ranks]
    estimator.fit(x, ranks, **weights)


def _predict(
    baseline: Baseline, estimator: Any, x: Matrix, num_classes: int, decode: Decode
) -> Predictions:
    """Predict probabilities, NaN if there are none, and ranks by every decoding."""
    if hasattr(estimator, "predict_proba"):
        found = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        proba = torch.from_numpy(_by_rank(baseline, estimator, found, len(x), num_classes))
        return _decode(proba.log(), decode)
    predicted = np.asarray(estimator.predict(x), dtype=np.float64).reshape(-1)
    if predicted.shape != (len(x),) or not np.isfinite(predicted).all():
        raise UserError(f"{baseline.name} did not predict a finite number for each sample.")
    ranks = torch.from_numpy(np.clip(np.ceil(predicted - 0.5), 0, num_classes - 1)).long()
    missing = torch.full((len(x), num_classes), torch.nan)
    return Predictions(missing, dict.fromkeys(_decodings(decode), ranks))


def _decodings(decode: Decode) -> dict[str, Decode]:
    named: dict[str, Decode] = {name: name for name in DECODINGS}
    return named if isinstance(decode, str) else named | {COST: decode}


def _decode(log_probs: Float[Tensor, "n K"], decode: Decode) -> Predictions:
    """Decode ranks by every decoding."""
    proba = log_probs.exp()
    decisions = {name: decide(proba, each) for name, each in _decodings(decode).items()}
    return Predictions(log_probs, decisions)


def _possible(predictions: Predictions, ranks: Int[np.ndarray, " n"]) -> Outcome:
    """Keep the samples whose true class has a positive probability.

    A probability of zero stays zero at every temperature, so it does not help to choose one.
    """
    truth, log_probs = torch.from_numpy(ranks), predictions.log_probs
    kept = log_probs[torch.arange(len(truth)), truth].isfinite()
    return log_probs[kept], truth[kept]


def _by_rank(
    baseline: Baseline, estimator: Any, found: Matrix, samples: int, num_classes: int
) -> Float[np.ndarray, "n K"]:
    """Put probabilities into a column per class; classes without training samples get zero."""
    columns = getattr(estimator, "classes_", None)
    places = np.arange(num_classes) if columns is None else np.asarray(columns).astype(np.int64)
    good = found.shape == (samples, len(places)) and np.isfinite(found).all()
    sums = found.sum(axis=1, keepdims=True) if good else np.zeros((1, 1))
    if not good or (found < 0).any() or not np.allclose(sums, 1, atol=1e-3):
        raise UserError(f"predict_proba of {baseline.name} did not return probabilities.")
    proba: Float[np.ndarray, "n K"] = np.zeros((samples, num_classes))
    proba[:, places] = found / sums
    return proba


def _one_hot(predictions: Predictions) -> Predictions:
    """Give the decoded ranks a probability of one."""
    ranks = predictions.decisions["mode"]
    certain = torch.nn.functional.one_hot(ranks, predictions.log_probs.shape[1])
    return Predictions(certain.double().log(), predictions.decisions)
