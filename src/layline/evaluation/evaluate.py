"""Evaluation of a model on a split: metrics, calibration, conformal ranges and their intervals."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor

from layline.data.table_encoding import TableEncoding
from layline.evaluation.diagnostics import REVIEWED, certainty_columns, diagnose
from layline.evaluation.prediction_file import prediction_lines
from layline.evaluation.predictions import Predictions
from layline.geometry.decoding import Decode, decode_name
from layline.metrics import METRICS
from layline.model.calibration import Range, measure_ranges, shown_coverage
from layline.model.description import ModelDescription
from layline.model.model import to_probabilities

CALIBRATED = ("rps", "nll", "ece")  # what a temperature changes


def measure(ranks: Int[Tensor, " n"], predictions: Predictions, decode: Decode) -> dict[str, Any]:
    """Compute all metrics.

    Args:
        ranks: The true classes.
        predictions: Those of a model.
        decode: The decoding that was chosen; the others are given beside it.
    """
    proba, chosen_by = predictions.proba, decode_name(decode)
    of_ranks = [name for name, metric in METRICS.items() if metric.kind == "ranks"]
    of_proba = [name for name, metric in METRICS.items() if metric.kind == "probabilities"]
    by_decoding = {
        name: compute_metrics(of_ranks, ranks, chosen)
        for name, chosen in predictions.decisions.items()
    }
    confusion = np.zeros((proba.shape[1], proba.shape[1]), dtype=int)
    np.add.at(confusion, (ranks.numpy(), predictions.decisions[chosen_by].numpy()), 1)
    paid = (
        {} if isinstance(decode, str) else {"cost": float((confusion * decode).sum() / len(ranks))}
    )
    return {
        "samples": len(ranks),
        "decode": chosen_by,
        **paid,
        **by_decoding[chosen_by],
        **compute_metrics(of_proba, ranks, proba),
        "by_decoding": by_decoding,
        "confusion": confusion.tolist(),
    }


def compute_metrics(
    names: Sequence[str], ranks: ArrayLike, predicted: ArrayLike
) -> dict[str, float | None]:
    """Compute some metrics of one kind; None where one is undefined, as JSON has no NaN."""
    values = {name: METRICS[name].function(ranks, predicted) for name in names}
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


@dataclass(frozen=True)
class Evaluation:
    """A model measured on a part of the data.

    Attributes:
        numbers: All metrics, as in ``test.json``.
        names: What the samples are called.
        classes: Names of the classes, lowest first.
        ranks: The true ones.
        predictions: Those of the model.
        ranges: The lowest and the highest rank that is possible, if the model is calibrated.
        paths: Whether the samples are called by their paths.
        groups: What each sample belongs to, such as a patient, if that is known.
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
        """The ranks that were decided for."""
        return self.predictions.decisions[self.numbers["decode"]]

    def write_predictions(self, path: Path) -> None:
        """Write a line per sample to a ``.csv`` or ``.jsonl`` file."""
        proba, chosen = self.predictions.proba, self.chosen.numpy()
        columns = certainty_columns(proba, chosen, self.classes, self.ranges, REVIEWED)
        if self.groups is not None:  # what belongs together stays so when runs are compared
            columns["group"] = [str(group) for group in self.groups]
        truth = [self.classes[rank] for rank in self.ranks.tolist()]
        with prediction_lines(
            path, self.classes, with_truth=True, more=list(columns), paths=self.paths
        ) as write:
            for i, name in enumerate(self.names):
                more = {column: values[i] for column, values in columns.items()}
                write(name, self.classes[chosen[i]], proba[i].tolist(), truth[i], more)


def evaluate_split(
    part: str,
    ranks: Int[Tensor, " n"],
    names: Sequence[str],
    predictions: Predictions,
    spec: ModelDescription,
    decode: Decode,
    groups: Sequence[Hashable] | None = None,
) -> Evaluation:
    """Measure all there is to measure: errors, probabilities before and after calibration, ranges.

    Args:
        part: What the samples are called together.
        ranks: Their classes.
        names: What each is called.
        predictions: Those of a model, calibrated.
        spec: The model.
        decode: The decoding that was chosen, checked.
        groups: What each sample belongs to, such as a patient, if that is known.
    """
    numbers: dict[str, Any] = {"part": part, **measure(ranks, predictions, decode)}
    calibration, proba = spec.calibration, predictions.proba
    # what a temperature did can be undone
    raw = to_probabilities(predictions.log_probs.double() * calibration.temperature)
    numbers["calibration"] = {
        "temperature": calibration.temperature,
        "samples": len(calibration.scores),
        "before": compute_metrics(CALIBRATED, ranks, raw),
        "after": compute_metrics(CALIBRATED, ranks, proba),
    }
    chosen = predictions.decisions[decode_name(decode)].numpy()
    numbers["ranges"] = measure_ranges(calibration, ranks.numpy(), proba, chosen)
    numbers |= diagnose(ranks.numpy(), chosen, proba, spec.classes, groups=groups)
    ranges = None
    if numbers["ranges"]:
        ranges = calibration.ranges(proba, chosen, shown_coverage(len(calibration.scores)))
    paths = not isinstance(spec.inputs, TableEncoding)
    return Evaluation(numbers, names, spec.classes, ranks, predictions, ranges, paths, groups)
