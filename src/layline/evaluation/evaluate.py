"""Evaluation of a model on a split: metrics, calibration, ranges, intervals and alarms.

Alarms are plain sentences for the person who is about to use the model.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor

from layline.data.dataset import format_list
from layline.evaluation import diagnostics
from layline.evaluation.prediction_file import certainty_columns, write_predictions
from layline.evaluation.predictions import Predictions
from layline.geometry.decoding import Decode, decode_name
from layline.heads.base import probabilities
from layline.metrics import METRICS, PROBABILITY_METRICS, RANK_METRICS
from layline.model.calibration import Range
from layline.model.description import ModelDescription

CALIBRATED = ("rps", "nll", "ece")  # the metrics that a temperature changes
FEW = 20  # samples of a class; with fewer, a 95 % interval of its recall is over 40 points wide
_MUCH_WORSE = 1.2  # times the validation error


def compute_metrics(
    names: Sequence[str], ranks: ArrayLike, predicted: ArrayLike
) -> dict[str, float | None]:
    """Compute some metrics of one kind; None where one is undefined, as JSON has no NaN."""
    values = {name: METRICS[name].function(ranks, predicted) for name in names}
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def measure(ranks: Int[Tensor, " n"], predictions: Predictions, decode: Decode) -> dict[str, Any]:
    """Compute all metrics and the confusion matrix; ``by_decoding`` has those of all decodings."""
    proba, chosen = predictions.proba, decode_name(decode)
    by_decoding = {
        name: compute_metrics(RANK_METRICS, ranks, predicted)
        for name, predicted in predictions.decisions.items()
    }
    confusion = np.zeros((proba.shape[1], proba.shape[1]), dtype=int)
    np.add.at(confusion, (ranks.numpy(), predictions.decisions[chosen].numpy()), 1)
    numbers: dict[str, Any] = {"samples": len(ranks), "decode": chosen}
    if not isinstance(decode, str):
        numbers["cost"] = float((confusion * decode).sum() / len(ranks))
    numbers |= by_decoding[chosen] | compute_metrics(PROBABILITY_METRICS, ranks, proba)
    return numbers | {"by_decoding": by_decoding, "confusion": confusion.tolist()}


def measure_gap(
    ranks: Int[Tensor, " n"], predictions: Predictions, missing: int
) -> dict[str, dict[str, float | None]]:
    """Compute recall and MAE on the samples of a class without labels, for each decoding."""
    own = ranks == missing
    errors = {by: (chosen[own] - missing).abs() for by, chosen in predictions.decisions.items()}
    if not own.any():
        return {by: {"gap_recall": None, "gap_mae": None} for by in errors}
    return {
        by: {
            "gap_recall": (each == 0).double().mean().item(),
            "gap_mae": each.double().mean().item(),
        }
        for by, each in errors.items()
    }


@dataclass(frozen=True)
class Evaluation:
    """The result of a model on a split."""

    numbers: dict[str, Any]  # as in test.json
    names: Sequence[str]
    classes: Sequence[str]
    ranks: Int[Tensor, " n"]
    predictions: Predictions
    ranges: Range | None = None  # if the model is calibrated
    paths: bool = True  # whether the names are paths of files
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
        write_predictions(path, columns, self.classes, proba, self.paths)


def evaluate_split(
    part: str,
    ranks: Int[Tensor, " n"],
    names: Sequence[str],
    predictions: Predictions,
    description: ModelDescription,
    decode: Decode,
    groups: Sequence[Hashable] | None = None,
    facts: Mapping[str, Any] | None = None,
    train_counts: Sequence[int] = (),
    draws: int = 1000,
) -> Evaluation:
    """Evaluate the calibrated predictions for a split.

    This is the only evaluation: for the test at the end of training, ``layline evaluate`` and the
    report, which shows its numbers. ``facts`` are further entries of the numbers, such as
    ``validation``, and ``train_counts`` the training samples of each class; alarms use both.
    ``draws`` is the number of bootstrap draws of the intervals.
    """
    calibration, classes, proba = description.calibration, description.classes, predictions.proba
    numbers: dict[str, Any] = {"part": part, **measure(ranks, predictions, decode)}
    raw = probabilities(predictions.log_probs.double() * calibration.temperature).numpy()
    numbers["calibration"] = {
        "temperature": calibration.temperature,
        "samples": len(calibration.scores),
        "before": compute_metrics(CALIBRATED, ranks, raw),
        "after": {name: numbers[name] for name in CALIBRATED},
    }
    truth, chosen = ranks.numpy(), predictions.decisions[decode_name(decode)].numpy()
    numbers["ranges"] = diagnostics.measure_ranges(calibration, truth, chosen, proba)
    numbers["intervals"] = diagnostics.bootstrap_intervals(truth, chosen, proba, groups, draws)
    numbers["by_class"] = diagnostics.class_rates(numbers["confusion"], classes)
    numbers["thresholds"] = diagnostics.threshold_rates(truth, chosen, proba, classes)
    numbers["referral"] = diagnostics.referral(truth, chosen, proba)
    numbers |= facts or {}
    numbers["alarms"] = find_alarms(numbers, train_counts, classes)
    coverage = calibration.default_coverage
    ranges = None if coverage is None else calibration.ranges(proba, chosen, coverage)
    paths = not description.is_table
    return Evaluation(numbers, names, classes, ranks, predictions, ranges, paths, groups)


def find_alarms(
    numbers: Mapping[str, Any], train_counts: Sequence[int], classes: Sequence[str]
) -> list[str]:
    """List what a person should know before using a model; see :func:`evaluate_split`."""
    confusion = np.asarray(numbers["confusion"])
    samples, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    alarms = []
    if missing := np.flatnonzero((samples > 0) & (predicted == 0)).tolist():
        names = format_list(f"“{classes[k]}” ({samples[k]})" for k in missing)
        alarms.append(
            f"Never predicted: {names}. Train longer, add training samples, use "
            "balanced class weights if they are rare, or merge neighboring classes."
        )
    if confused := [
        f"{confusion[true, chosen]} of {samples[true]} samples of “{classes[true]}” predicted as "
        f"“{classes[chosen]}”"
        for true, chosen in ((0, -1), (-1, 0))
        if confusion[true, chosen] and len(classes) > 2
    ]:
        alarms.append(
            f"The two ends of the scale are confused: {' and '.join(confused)}. Look at these "
            "samples among the worst mistakes: their labels may be wrong."
        )
    alarms += _compare_errors(numbers)
    if low := [
        f"{each['measured']:.1%} instead of {each['coverage']:.0%} (by chance at least "
        f"{each['expected'][0]:.1%})"
        for each in numbers["ranges"]
        if each["measured"] < each["expected"][0]
    ]:
        alarms.append(
            f"Ranges contain the true class too rarely: {', '.join(low)}. The calibration samples "
            "differ in kind. Calibrate on data like those that the model will see."
        )
    duplicates = numbers.get("duplicates", {"in_training": {}, "contradicting": 0})
    if leaked := duplicates["in_training"].get("test"):
        alarms.append(
            f"{leaked} of {samples.sum()} test images have a duplicate in the training split: the "
            "results are too good. Remove the duplicates, or draw a new split."
        )
    if contradicting := duplicates["contradicting"]:
        alarms.append(
            f"Duplicate images with different labels: {contradicting} groups. "
            "`layline data check` lists them."
        )
    name = "" if numbers["part"] == "all" else f"{numbers['part']} "
    for split, per_class, advice in (
        ("training ", train_counts, "Add some."),
        (name, samples.tolist(), "Their numbers are uncertain."),
    ):
        if few := [f"“{k}” ({n})" for k, n in zip(classes, per_class, strict=False) if n < FEW]:
            alarms.append(f"Fewer than {FEW} {split}samples: {format_list(few)}. {advice}")
    return alarms


def _compare_errors(numbers: Mapping[str, Any]) -> list[str]:
    """Compare the MAE with that on validation samples, and on other data with the run's test."""
    now, interval = numbers["mae"], numbers["intervals"]["mae"]
    if interval is None:
        return []
    alarms, reach = [], now - interval[0]
    if (validation := numbers.get("validation")) is not None:
        before = validation["mae"]
        # the interval is widened, because the validation MAE varies, too
        wider = reach * np.sqrt(1 + numbers["samples"] / validation["samples"])
        if now - before > wider and now > _MUCH_WORSE * before:
            alarms.append(
                f"Much worse on test than on validation samples: MAE {now:.3f} instead of "
                f"{before:.3f}, more than chance explains. The test samples differ in kind, or the "
                "validation split contains duplicates of training samples. Expect the test result."
            )
    if (own := numbers.get("run_test")) is not None and own["interval"] is not None:
        before = own["mae"]
        if now - before > np.hypot(reach, own["interval"][1] - before):
            alarms.append(
                f"Worse than on the run's own test samples: MAE {now:.3f} instead of {before:.3f}, "
                "more than chance explains. These data differ in kind: look at the mistakes, "
                "calibrate on such data, or train further on some of them."
            )
    return alarms
