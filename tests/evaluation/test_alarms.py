"""Warnings about a model."""

import numpy as np
import pytest

from layline.evaluation.evaluate import find_alarms

CLASSES = ["none", "mild", "moderate", "severe", "worst"]
FINE = np.diag([30, 30, 30])


def alarms(confusion, counts=None, **numbers):
    """Find the alarms of a confusion matrix, by default with enough samples in every split."""
    confusion = np.array(confusion)
    classes = CLASSES[: len(confusion)]
    enough = dict.fromkeys(("train", "validation", "test"), [100] * len(classes))
    return find_alarms({"confusion": confusion.tolist(), **numbers}, counts or enough, classes)


def test_a_good_model_has_none():
    assert alarms(FINE) == []
    assert alarms(FINE, mae=0.3, samples=90, intervals={"mae": [0.2, 0.4]}) == []
    assert alarms([[30, 0, 0], [0, 0, 0], [0, 0, 30]]) == []  # “mild” has no samples
    assert alarms([[30, 5], [5, 30]]) == []  # two classes are neighbors


def test_a_class_that_is_never_predicted():
    (alarm,) = alarms([[30, 0, 0], [12, 0, 0], [0, 0, 30]])
    assert alarm.startswith("Never predicted: “mild” (12).")


def test_duplicates_across_splits_and_with_contradicting_labels():
    facts = {"in_training": {"validation": 3, "test": 12}, "contradicting": 2}
    leaked, contradicting = alarms(FINE, duplicates=facts)
    assert leaked.startswith("12 of 90 test images have a duplicate in the training split")
    assert "different labels: 2 groups" in contradicting
    assert alarms(FINE, duplicates={"in_training": {"test": 0}, "contradicting": 0}) == []


def test_confused_ends_of_the_scale():
    (alarm,) = alarms([[30, 0, 2], [0, 30, 0], [1, 0, 30]])
    assert "2 of 32 samples of “none” predicted as “moderate”" in alarm
    assert "1 of 31 samples of “moderate” predicted as “none”" in alarm


@pytest.mark.parametrize(
    ("validation", "samples", "is_alarm"),
    [
        (0.30, 1000, True),
        (0.42, 1000, False),  # less than a fifth worse
        (0.30, 10, False),  # ten samples may be chance
        (0.60, 1000, False),
    ],
)
def test_a_test_result_much_worse_than_validation(validation, samples, is_alarm):
    outcome = {"mae": validation, "samples": samples}
    interval = {"mae": [0.42, 0.58]}
    found = alarms(FINE, mae=0.5, samples=90, intervals=interval, validation=outcome)
    assert len(found) == is_alarm


def test_other_data_with_a_worse_result_than_the_runs_own_test():
    numbers = {"mae": 0.8, "intervals": {"mae": [0.7, 0.9]}}
    own = {"mae": 0.4, "interval": [0.3, 0.5], "samples": 100}
    (alarm,) = alarms(FINE, run_test=own, **numbers)
    assert "MAE 0.800 instead of 0.400" in alarm
    assert alarms(FINE, run_test=own | {"mae": 0.75}, **numbers) == []


@pytest.mark.parametrize(("measured", "is_alarm"), [(0.85, True), (0.9, False), (0.99, False)])
def test_ranges_with_too_low_coverage(measured, is_alarm):
    ranges = [
        {"coverage": share, "measured": value, "expected": [share - 0.03, share + 0.03]}
        for share, value in ((0.8, 0.8), (0.9, measured))
    ]
    assert len(alarms(FINE, ranges=ranges)) == is_alarm


def test_few_samples_of_a_class():
    counts = {"train": [19, 20, 500], "validation": [1, 1, 1], "test": [20, 3, 1]}
    train, test = alarms(FINE, counts)
    assert train.startswith("Fewer than 20 training samples: “none” (19). ")
    assert test.startswith("Fewer than 20 test samples: “mild” (3), “moderate” (1). ")
    (alarm,) = find_alarms({"confusion": [[5, 0], [0, 30]], "part": "all"}, {}, ["a", "b"])
    assert alarm.startswith("Fewer than 20 samples: “a” (5).")
