"""Evaluation of a model on a split: metrics, calibration, ranges, intervals and alarms."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor

from layline.evaluation.alarms import find_alarms
from layline.evaluation.diagnostics import certainty_columns, class_rates, referral, threshold_rates
from layline.evaluation.prediction_file import write_predictions
from layline.evaluation.predictions import Predictions
from layline.evaluation.resampling import bootstrap_intervals
from layline.geometry.decoding import Decode, decode_name
from layline.metrics import METRICS
from layline.model.calibration import Range, measure_ranges, shown_coverage
from layline.model.description import ModelDescription
from layline.model.model import to_probabilities

CALIBRATED = ("rps", "nll", "ece")  # the metrics that a temperature changes


def compute_metrics(
    names: Sequence[str], ranks: ArrayLike, predicted: ArrayLike
) -> dict[str, float | None]:
    """Compute some metrics of one kind; None where one is undefined, as JSON has no NaN."""
    values = {name: METRICS[name].function(ranks, predicted) for name in names}
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def measure(ranks: Int[Tensor, " n"], predictions: Predictions, decode: Decode) -> dict[str, Any]:
    """Compute all metrics and the confusion matrix.

    Args:
        ranks: The true ranks.
        predictions: The predictions of a model.
        decode: The chosen decoding; the metrics of the others are in ``by_decoding``.
    """
    proba, chosen = predictions.proba, decode_name(decode)
    of_ranks = [name for name, metric in METRICS.items() if metric.kind == "ranks"]
    of_proba = [name for name, metric in METRICS.items() if metric.kind == "probabilities"]
    by_decoding = {
        name: compute_metrics(of_ranks, ranks, predicted)
        for name, predicted in predictions.decisions.items()
    }
    confusion = np.zeros((proba.shape[1], proba.shape[1]), dtype=int)
    np.add.at(confusion, (ranks.numpy(), predictions.decisions[chosen].numpy()), 1)
    cost = (
        {} if isinstance(decode, str) else {"cost": float((confusion * decode).sum() / len(ranks))}
    )
    return {
        "samples": len(ranks),
        "decode": chosen,
        **cost,
        **by_decoding[chosen],
        **compute_metrics(of_proba, ranks, proba),
        "by_decoding": by_decoding,
        "confusion": confusion.tolist(),
    }


@dataclass(frozen=True)
class Evaluation:
    """The result of a model on a split.

    Attributes:
        numbers: All metrics, as in ``test.json``.
        names: Names of the samples.
        classes: Names of the classes, lowest first.
        ranks: The true ranks.
        predictions: The predictions of the model.
        ranges: Lowest and highest rank of each conformal range, if the model is calibrated.
        paths: Whether the names are paths of files.
        groups: The group of each sample, such as a patient, if known.
    """

    numbers: dict[str, Any]
    names: Sequence[str]
    classes: Sequence[str]
    ranks: Int[Tensor, " n"]
    predictions: Predictions
    ranges: Range | None = None
    paths: bool = True
    groups: Sequence[Hashable] | None = None

    @property
    def chosen(self) -> Int[Tensor, " n"]:
        """The predicted ranks, by the chosen decoding."""
        return self.predictions.decisions[self.numbers["decode"]]

    def write_predictions(self, path: Path) -> None:
        """Write a line per sample to a ``.csv`` or ``.jsonl`` file."""
        proba, chosen = self.predictions.proba, self.chosen.numpy()
        columns = {
            "path": list(self.names),
            "true": [self.classes[rank] for rank in self.ranks.tolist()],
            "predicted": [self.classes[rank] for rank in chosen.tolist()],
            **certainty_columns(proba, chosen, self.classes, self.ranges),
        }
        if self.groups is not None:  # a comparison of runs keeps groups together
            columns["group"] = [str(group) for group in self.groups]
        rows = zip(zip(*columns.values(), strict=True), proba.tolist(), strict=True)
        write_predictions(path, list(columns), self.classes, rows, self.paths)


def evaluate_split(
    part: str,
    ranks: Int[Tensor, " n"],
    names: Sequence[str],
    predictions: Predictions,
    description: ModelDescription,
    decode: Decode,
    groups: Sequence[Hashable] | None = None,
    facts: Mapping[str, Any] | None = None,
    counts: Mapping[str, Sequence[int]] | None = None,
) -> Evaluation:
    """Evaluate predictions for a split.

    This is the only evaluation: for the test at the end of training, ``layline evaluate`` and the
    report, which shows its numbers.

    Args:
        part: Name of the split.
        ranks: The true ranks.
        names: Names of the samples.
        predictions: The calibrated predictions of the model.
        description: The model.
        decode: The chosen decoding, checked.
        groups: The group of each sample, such as a patient, if known.
        facts: Further entries of the numbers, such as ``validation``, which alarms may use.
        counts: Samples by split and class, for alarms.
    """
    calibration, classes, proba = description.calibration, description.classes, predictions.proba
    numbers: dict[str, Any] = {"part": part, **measure(ranks, predictions, decode)}
    raw = to_probabilities(predictions.log_probs.double() * calibration.temperature)
    numbers["calibration"] = {
        "temperature": calibration.temperature,
        "samples": len(calibration.scores),
        "before": compute_metrics(CALIBRATED, ranks, raw),
        "after": {name: numbers[name] for name in CALIBRATED},
    }
    truth, chosen = ranks.numpy(), predictions.decisions[decode_name(decode)].numpy()
    numbers["ranges"] = measure_ranges(calibration, truth, proba, chosen)
    numbers["intervals"] = bootstrap_intervals(truth, chosen, proba, groups=groups)
    numbers["by_class"] = class_rates(numbers["confusion"], classes)
    numbers["thresholds"] = threshold_rates(truth, chosen, proba, classes)
    numbers["referral"] = referral(truth, chosen, proba)
    numbers |= facts or {}
    numbers["alarms"] = find_alarms(numbers, counts or {}, classes)
    ranges = None
    if numbers["ranges"]:
        ranges = calibration.ranges(proba, chosen, shown_coverage(len(calibration.scores)))
    paths = not description.is_table
    return Evaluation(numbers, names, classes, ranks, predictions, ranges, paths, groups)
