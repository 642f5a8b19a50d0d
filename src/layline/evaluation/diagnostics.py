"""What a person needs to know before using a model: how sure its numbers are, and where it fails.

Pure functions on ranks, predictions and probabilities, as in :mod:`layline.metrics`. All that they
give is fit for JSON: plain numbers, and None where something is not defined.

Two kinds of intervals are given. Those of whole metrics come from resampling the samples, or the
groups where samples belong together, such as the images of a patient. Those of shares, such as the
recall of a class, are Wilson's, which take samples as independent of each other.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from layline.evaluation.alarm_sentences import alarms
from layline.evaluation.inputs import Groups, checked_predictions
from layline.evaluation.rates import class_rates, threshold_rates, wilson_interval
from layline.evaluation.resampling import COMPARED, bootstrap_intervals, paired_differences
from layline.evaluation.selective_prediction import (
    REVIEWED,
    cases_to_review,
    certainty,
    certainty_columns,
    referral,
)
from layline.utils.errors import UserError

__all__ = [
    "COMPARED",
    "REVIEWED",
    "alarms",
    "bootstrap_intervals",
    "cases_to_review",
    "certainty",
    "certainty_columns",
    "class_rates",
    "diagnose",
    "paired_differences",
    "referral",
    "threshold_rates",
    "wilson_interval",
]


def diagnose(
    ranks: ArrayLike,
    predicted: ArrayLike,
    proba: ArrayLike,
    classes: Sequence[str],
    *,
    groups: Groups = None,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Tell how sure the numbers of a model are, and what it does to whom.

    Args:
        ranks: The true classes of n samples, from 0.
        predicted: What they are taken for.
        proba: (n, K), the probabilities of the classes.
        classes: Names of the classes, lowest first.
        groups: What samples belong to, such as a patient; None if they are independent.
        level: Of all intervals: the share of them that holds the true value.
        draws: How often the samples are resampled.
        seed: Of the resampling.

    Returns:
        ``intervals`` of the metrics, ``by_class`` recall and precision, ``thresholds`` what
        happens where a grade or more is acted on, and ``referral`` what a second look is worth.
    """
    ranks, predicted, proba = checked_predictions(ranks, predicted, proba)
    num_classes = proba.shape[1]
    if len(classes) != num_classes:
        raise UserError(
            f"classes must be {num_classes}, got {len(classes)}: proba has a column for each"
        )
    confusion = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(confusion, (ranks, predicted), 1)
    return {
        "intervals": bootstrap_intervals(
            ranks, predicted, proba, groups=groups, level=level, draws=draws, seed=seed
        ),
        "by_class": class_rates(confusion, classes, level),
        "thresholds": threshold_rates(ranks, predicted, proba, classes, level),
        "referral": referral(ranks, predicted, proba),
    }
