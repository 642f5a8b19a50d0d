"""Competitors: estimators of other libraries on the tables and frozen features of a grid.

Anything will do that has ``fit`` and ``predict_proba``, from scikit-learn, LightGBM or a peer. It
gets the rows that a model of ours gets, encoded in the same way but not standardised, and the ranks
as labels: the training part to fit, the test part to be measured on. Its probabilities are
calibrated as ours are, on the same parts. Without ``predict_proba`` its predictions are rounded to
ranks, and there are no probabilities to be measured.
"""

import ast
import inspect
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer
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
from layline.training.assembly import Assembly, assemble, class_weights
from layline.training.config import Config, HeadConfig, Section, TrainingConfig
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.frozen import frozen_rows, shared_folder
from layline.training.run import environment_of
from layline.training.run_folder import RunFolder
from layline.utils.errors import UserError
from layline.utils.files import write_json
from layline.utils.plugins import (
    PluginError,
    describe_plugin,
    import_reference,
    resolve_reference,
)
from layline.utils.source_code import hash_modules, parsed
from layline.utils.validation import find_known

_OF_LAST_LAYER = {"hidden", "dropout"}
_SEED = "random_state"
Matrix = Float[np.ndarray, "n columns"]
Outcome = tuple[Float[Tensor, "n K"], Int[Tensor, " n"]]
SearchSpace = dict[str, Annotated[list[Any], Field(min_length=1)]]


class Competitor(Section):
    """An estimator of another library.

    Attributes:
        name: What tables call it.
        estimator: Where its class, or a function that makes it, is: ``sklearn.svm:SVC``.
        options: What it is made with.
        tune: Options to try, each with its values. On each data set and seed the values that are
            best on validation are chosen, as for a method of ours.
    """

    name: str
    estimator: str
    options: dict[str, Any] = Field(default_factory=dict)
    tune: SearchSpace = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_empty_tune(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``tune`` where nothing is tuned, so that keys are those of earlier versions."""
        tree: dict[str, Any] = write(self)
        return tree if self.tune else {key: tree[key] for key in tree if key != "tune"}

    def settings(self) -> list[tuple[str, Self]]:
        """Give each combination of the values to tune: its label, and what is fitted."""
        found = []
        for values in product(*self.tune.values()):
            chosen = dict(zip(self.tune, values, strict=True))
            label = ", ".join(f"{key}={value}" for key, value in chosen.items())
            update = {"options": {**self.options, **chosen}, "tune": {}}
            found.append((label, self.model_copy(update=update)))
        return found

    @property
    def _place(self) -> tuple[str, str]:
        module, colon, name = self.estimator.rpartition(":")
        if not colon or not module or not name.replace(".", "_").isidentifier():
            raise UserError(
                f"competitor must be MODULE:NAME, got {self.estimator!r}: write "
                "sklearn.ensemble:HistGradientBoostingClassifier"
            )
        return resolve_reference(module), name

    def check(self) -> None:
        """Refuse what cannot be imported, made, or fitted, before anything is run."""
        for _, each in self.settings():
            each.make(0)

    def make(self, seed: int) -> Any:
        """Make it, with the seed of the run where it takes one."""
        reference, name = self._place
        found: Any = import_reference(reference)
        for part in name.split("."):
            if not hasattr(found, part):
                raise PluginError(
                    f"competitor must be in {reference}, got {self.estimator}: it is not"
                )
            found = getattr(found, part)
        if not callable(found):
            raise PluginError(
                f"competitor must be a class or a function, got {self.estimator}: it is a "
                f"{type(found).__name__}"
            )
        try:
            estimator = found(**self.options)
            if hasattr(estimator, "get_params"):
                own = estimator.get_params()
                seeds = {
                    key: seed
                    for key, value in own.items()
                    if key.split("__")[-1] == _SEED and value is None
                }
                estimator.set_params(**seeds)
        except Exception as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise PluginError(
                f"competitor must be made from its options, got an error for {self.name}: {why}"
            ) from error
        if not hasattr(estimator, "fit") or not any(
            hasattr(estimator, method) for method in ("predict_proba", "predict")
        ):
            raise PluginError(
                f"competitor must have fit and predict_proba or predict, got {self.estimator}: it "
                f"gives a {type(estimator).__name__}"
            )
        return estimator

    def version(self) -> str:
        """Name the code that runs it: the library's version, or a hash of code of your own."""
        reference, _ = self._place
        ours = hash_modules({"competitors": parsed(Path(__file__))})
        library = str(describe_plugin(import_reference(reference)))
        return f"{library} by {ours}"


def parse_competitor(text: str) -> Competitor:
    """Read ``sklearn.ensemble:HistGradientBoostingClassifier(max_iter=50)``.

    Args:
        text: A module or file, a colon, a name and perhaps options in parentheses, which are plain
            values.
    """
    place, bracket, rest = text.strip().partition("(")
    options: dict[str, Any] = {}
    if bracket:
        try:
            call = ast.parse(f"f({rest}", mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise UserError("options have names")
            options = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            if "None" in options:  # ** has no name
                raise UserError("options have names")
        except (SyntaxError, ValueError) as error:
            raise UserError(
                f"competitor must be MODULE:NAME(option=value, …), got {text!r}: {error}"
            ) from None
    name = place.rpartition(":")[2] + (bracket and bracket + rest)
    return Competitor(name=name, estimator=place, options=options)


def competitor_config(config: Config) -> Config:
    """Keep what a competitor depends on of the configuration of a run: its data and its features.

    Two runs that differ in anything else, such as a learning rate that is tuned, are one.

    Args:
        config: Resolved, with any head.
    """
    own, training = config.backbone, config.training
    if find_backbone(str(own.name)).kind == "image" and not own.freeze:
        raise UserError(
            f"competitors must have a table or frozen features, got images for {own.name}: set "
            "backbone.freeze=true, with weights"
        )
    kept = {key: value for key, value in own.options.items() if key not in _OF_LAST_LAYER}
    return config.model_copy(
        update={
            "backbone": own.model_copy(
                update={"options": kept if own.freeze else {}, "stages": None}
            ),
            "head": HeadConfig(),
            "training": TrainingConfig(
                **training.model_dump(
                    include={"metric", "decode", "class_weight", "calibrate", "seed", "device"}
                )
            ),
        }
    )


def fit_competitor(
    competitor: Competitor,
    config: Config,
    folder: RunFolder,
    console: Console,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Fit a competitor to the data of a run, test it, and write what came out into the folder.

    Args:
        competitor: What to fit.
        config: As :func:`competitor_config` gives it.
        folder: Where everything is written.
        console: Where to say what happens.
        command: What the grid was started with.

    Returns:
        The numbers of ``test.json``.
    """
    run = assemble(config, Reporter(console), make_accelerator(config))
    about = {"competitor": f"{competitor.name}: {competitor.version()}"}
    folder.open(config, environment_of(run, command) | about)
    dataset, rows = run.dataset, _rows(run, folder)
    parts = dataset.splits
    estimator = competitor.make(config.training.seed)
    train = np.ascontiguousarray(rows[parts.train])
    _fit(competitor, estimator, train, dataset.ranks[parts.train], run)
    decode, classes = config.training.decoding, len(dataset.classes)

    def predicted(index: Indices) -> Predictions:
        x = np.ascontiguousarray(rows[index])
        return _predictions(competitor, estimator, x, classes, decode)

    checked, tested = predicted(parts.validation), predicted(parts.test)
    ranks = torch.from_numpy(dataset.ranks[parts.test])
    if tested.log_probs.isnan().any():  # there are none
        numbers: dict[str, Any] = {"part": "test", **measure(ranks, _certain(tested), decode)}
        numbers |= dict.fromkeys(
            name for name, metric in METRICS.items() if metric.kind == "probabilities"
        ) | {"ranges": []}
    else:
        outcomes: list[Outcome | None] = [None, None]
        if config.training.calibrate:
            outcomes[0] = _possible(checked, dataset.ranks[parts.validation])
        if len(parts.calibration):
            unseen = predicted(parts.calibration)
            outcomes[1] = unseen.log_probs, torch.from_numpy(dataset.ranks[parts.calibration])
        calibration = Calibration.fit(*outcomes)
        spec = ModelDescription(
            backbone=str(config.backbone.name),
            method=competitor.estimator,
            dim=1,
            classes=dataset.classes,
            inputs=run.model.description.inputs,
            decode=decode,
            calibration=calibration,
        )
        names = dataset.inputs.subset(parts.test).names
        groups = groups_of(dataset, parts.test)
        tested = _decided(apply_temperature(tested.log_probs, calibration.temperature), decode)
        found = evaluate_split("test", ranks, names, tested, spec, decode, groups)
        found.write_predictions(folder.predictions)
        numbers = found.numbers
    numbers |= {
        "epoch": 0,
        "validation": _validated(config, dataset.ranks[parts.validation], checked),
    }
    write_json(folder.test, numbers)
    return numbers


def _rows(run: Assembly, folder: RunFolder) -> Matrix:
    """Give what is fitted to: the encoded rows of a table, or frozen features."""
    inputs, model = run.dataset.inputs, run.model
    if isinstance(inputs, Rows):
        return inputs.values
    place = shared_folder(model.backbone, inputs, model.description.inputs, run.config.data.cache)
    return frozen_rows(run, place or folder.frozen)


def _fit(
    competitor: Competitor,
    estimator: Any,
    x: Matrix,
    ranks: Int[np.ndarray, " n"],
    run: Assembly,
) -> None:
    weights: dict[str, Any] = {}
    if run.config.training.class_weight != "off":
        if "sample_weight" not in inspect.signature(estimator.fit).parameters:
            raise UserError(
                f"class_weight must be off for {competitor.name}, got "
                f"{run.config.training.class_weight}: its fit takes no sample_weight"
            )
        weights["sample_weight"] = class_weights(run.config, run.dataset)[ranks]
    estimator.fit(x, ranks, **weights)


def _predictions(
    competitor: Competitor, estimator: Any, x: Matrix, num_classes: int, decode: Decode
) -> Predictions:
    """Ask for probabilities, NaN where it has none, and decide on ranks by every decoding."""
    if hasattr(estimator, "predict_proba"):
        found = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        proba = torch.from_numpy(_by_rank(competitor, estimator, found, len(x), num_classes))
        return _decided(proba.log(), decode)
    predicted = np.asarray(estimator.predict(x), dtype=np.float64).reshape(-1)
    if predicted.shape != (len(x),) or not np.isfinite(predicted).all():
        raise UserError(
            f"{competitor.name} must predict a finite number for each sample, got others"
        )
    ranks = torch.from_numpy(np.clip(np.ceil(predicted - 0.5), 0, num_classes - 1)).long()
    missing = torch.full((len(x), num_classes), torch.nan)
    names = [*DECODINGS, *([] if isinstance(decode, str) else [COST])]
    return Predictions(missing, dict.fromkeys(names, ranks))


def _decided(log_probs: Float[Tensor, "n K"], decode: Decode) -> Predictions:
    """Decide on ranks by every decoding."""
    methods: dict[str, Decode] = {name: name for name in DECODINGS}
    if not isinstance(decode, str):
        methods[COST] = decode
    proba = log_probs.exp()
    return Predictions(log_probs, {name: decide(proba, each) for name, each in methods.items()})


def _possible(predictions: Predictions, ranks: Int[np.ndarray, " n"]) -> Outcome:
    """Keep the samples whose class has a probability above zero.

    A zero stays one at every temperature: it says nothing about which is best, and would decide
    alone if it counted as a very small number.
    """
    truth = torch.from_numpy(ranks)
    log_probs = predictions.log_probs
    kept = log_probs[torch.arange(len(truth)), truth].isfinite()
    return log_probs[kept], truth[kept]


def _by_rank(
    competitor: Competitor, estimator: Any, found: Matrix, samples: int, num_classes: int
) -> Float[np.ndarray, "n K"]:
    """Put probabilities into a column for each class; one that training had not has none."""
    columns = getattr(estimator, "classes_", None)
    places = np.arange(num_classes) if columns is None else np.asarray(columns).astype(np.int64)
    good = found.shape == (samples, len(places)) and np.isfinite(found).all()
    sums = found.sum(axis=1, keepdims=True) if good else np.zeros((1, 1))
    if not good or (found < 0).any() or not np.allclose(sums, 1, atol=1e-3):
        raise UserError(
            f"{competitor.name} must give each sample a probability of every class, got an array "
            f"{found.shape} that is none"
        )
    proba: Float[np.ndarray, "n K"] = np.zeros((samples, num_classes))
    proba[:, places] = found / sums
    return proba


def _certain(predictions: Predictions) -> Predictions:
    """Take decisions for certain, so that what follows from them can be measured."""
    ranks = predictions.decisions["mode"]
    certain = torch.nn.functional.one_hot(ranks, predictions.log_probs.shape[1])
    return Predictions(certain.double().log(), predictions.decisions)


def _validated(
    config: Config, ranks: Int[np.ndarray, " n"], predictions: Predictions
) -> dict[str, float]:
    """Measure what settings are chosen by, as for a model of ours: before it is calibrated."""
    chosen: Int[Tensor, " n"] = predictions.decisions[decode_name(config.training.decoding)]
    metric = config.training.metric
    criterion = find_known("metric", metric, CRITERIA)
    return {
        "samples": len(ranks),
        "mae": METRICS["mae"].function(ranks, chosen),
        "criterion": criterion.sign * criterion.function(ranks, chosen),
    }
