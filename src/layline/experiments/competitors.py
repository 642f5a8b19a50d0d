"""Competitors: estimators of other libraries on the tables and frozen features of a grid.

Anything will do that has ``fit`` and ``predict_proba``, from scikit-learn, LightGBM or a peer. It
gets the rows that a model of ours gets, encoded in the same way but not standardised, and the ranks
as labels: the training part to fit, the test part to be measured on. Without ``predict_proba`` its
predictions are rounded to ranks, and there are no probabilities to be measured.
"""

import ast
import inspect
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from rich.console import Console
from torch import Tensor

from layline.arguments import find_known
from layline.data.base import groups_of
from layline.data.table import Rows
from layline.evaluation import (
    CRITERIA,
    DECODED,
    DISTRIBUTION,
    Predictions,
    evaluated,
    measure,
)
from layline.features import find as find_features
from layline.files import write_json
from layline.geometry.decoding import COST, DECODINGS, Decode, decide, decode_name
from layline.model import ModelSpec
from layline.plugins import (
    PluginError,
    distribution_of,
    full_reference,
    import_plugin,
    is_library,
    version_of,
)
from layline.source_code import hash_modules, parsed
from layline.training.assembly import Assembly, assemble, class_weights
from layline.training.config import Config, HeadConfig, Section, TrainingConfig
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.frozen import frozen_rows, shared_folder
from layline.training.run import environment_of
from layline.training.run_folder import RunFolder

_OF_LAST_LAYER = {"hidden", "dropout"}
_SEED = "random_state"
Matrix = Float[np.ndarray, "n columns"]


class Competitor(Section):
    """An estimator of another library.

    Attributes:
        name: What tables call it.
        estimator: Where its class, or a function that makes it, is: ``sklearn.svm:SVC``.
        options: What it is made with.
    """

    name: str
    estimator: str
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def _place(self) -> tuple[str, str]:
        module, colon, name = self.estimator.rpartition(":")
        if not colon or not module or not name.replace(".", "_").isidentifier():
            raise ValueError(
                f"competitor must be MODULE:NAME, got {self.estimator!r}: write "
                "sklearn.ensemble:HistGradientBoostingClassifier"
            )
        return full_reference(module), name

    def check(self) -> None:
        """Refuse what cannot be imported, made, or fitted, before anything is run."""
        self.make(0)

    def make(self, seed: int) -> Any:
        """Make it, with the seed of the run where it takes one."""
        reference, name = self._place
        try:
            found: Any = import_module(reference) if is_library(reference) else None
        except ImportError as error:
            raise PluginError(
                f"competitor must be importable, got {self.estimator}: {error}"
            ) from error
        found = found or import_plugin(reference).module
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
        library = distribution_of(reference)
        if not library or not is_library(reference):
            library = version_of(reference, library)
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
                raise ValueError("options have names")
            options = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            if "None" in options:  # ** has no name
                raise ValueError("options have names")
        except (SyntaxError, ValueError) as error:
            raise ValueError(
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
    own, training = config.features, config.training
    if find_features(str(own.name)).kind == "image" and not own.freeze:
        raise ValueError(
            f"competitors must have a table or frozen features, got images for {own.name}: set "
            "features.freeze=true, with weights"
        )
    kept = {key: value for key, value in own.options.items() if key not in _OF_LAST_LAYER}
    return config.model_copy(
        update={
            "features": own.model_copy(
                update={"options": kept if own.freeze else {}, "stages": None}
            ),
            "head": HeadConfig(),
            "training": TrainingConfig(
                **training.model_dump(
                    include={"metric", "decode", "class_weight", "seed", "device"}
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
    parts = dataset.partition
    estimator = competitor.make(config.training.seed)
    train = np.ascontiguousarray(rows[parts.train])
    _fit(competitor, estimator, train, dataset.ranks[parts.train], run)
    decode, classes = config.training.decoding, len(dataset.classes)
    checked, tested = (
        _predictions(competitor, estimator, np.ascontiguousarray(rows[index]), classes, decode)
        for index in (parts.validation, parts.test)
    )
    ranks = torch.from_numpy(dataset.ranks[parts.test])
    if tested.log_probs.isnan().any():  # there are none
        numbers: dict[str, Any] = {"part": "test", **measure(ranks, _certain(tested), decode)}
        numbers |= dict.fromkeys((*DISTRIBUTION, "unimodality_rate"))
    else:
        spec = ModelSpec(
            features=str(config.features.name),
            method=competitor.estimator,
            dim=1,
            classes=dataset.classes,
            inputs=run.model.spec.inputs,
            decode=decode,
        )
        names = dataset.inputs.subset(parts.test).names
        groups = groups_of(dataset, parts.test)
        found = evaluated("test", ranks, names, tested, spec, decode, groups)
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
    place = shared_folder(model.features, inputs, model.spec.inputs, run.config.data.cache)
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
            raise ValueError(
                f"class_weight must be off for {competitor.name}, got "
                f"{run.config.training.class_weight}: its fit takes no sample_weight"
            )
        weights["sample_weight"] = class_weights(run.config, run.dataset)[ranks]
    estimator.fit(x, ranks, **weights)


def _predictions(
    competitor: Competitor, estimator: Any, x: Matrix, num_classes: int, decode: Decode
) -> Predictions:
    """Ask for probabilities, NaN where it has none, and decide on ranks by every decoding."""
    names = [*DECODINGS, *([] if isinstance(decode, str) else [COST])]
    if hasattr(estimator, "predict_proba"):
        found = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        proba = torch.from_numpy(_by_rank(competitor, estimator, found, len(x), num_classes))
        methods: dict[str, Decode] = {name: name for name in DECODINGS}
        if not isinstance(decode, str):
            methods[COST] = decode
        return Predictions(
            proba.log(), {name: decide(proba, method) for name, method in methods.items()}
        )
    predicted = np.asarray(estimator.predict(x), dtype=np.float64).reshape(-1)
    if predicted.shape != (len(x),) or not np.isfinite(predicted).all():
        raise ValueError(
            f"{competitor.name} must predict a finite number for each sample, got others"
        )
    ranks = torch.from_numpy(np.clip(np.ceil(predicted - 0.5), 0, num_classes - 1)).long()
    missing = torch.full((len(x), num_classes), torch.nan)
    return Predictions(missing, dict.fromkeys(names, ranks))


def _by_rank(
    competitor: Competitor, estimator: Any, found: Matrix, samples: int, num_classes: int
) -> Float[np.ndarray, "n K"]:
    """Put probabilities into a column for each class; one that training had not has none."""
    columns = getattr(estimator, "classes_", None)
    places = np.arange(num_classes) if columns is None else np.asarray(columns).astype(np.int64)
    good = found.shape == (samples, len(places)) and np.isfinite(found).all()
    sums = found.sum(axis=1, keepdims=True) if good else np.zeros((1, 1))
    if not good or (found < 0).any() or not np.allclose(sums, 1, atol=1e-3):
        raise ValueError(
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
    """Measure what settings are chosen by, as for a model of ours."""
    chosen: Int[Tensor, " n"] = predictions.decisions[decode_name(config.training.decoding)]
    metric = config.training.metric
    criterion = find_known("metric", metric, CRITERIA)
    return {
        "samples": len(ranks),
        "mae": DECODED["mae"](ranks, chosen),
        "criterion": criterion.sign * DECODED[metric](ranks, chosen),
    }
