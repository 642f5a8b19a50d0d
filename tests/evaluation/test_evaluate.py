"""Predictions for a split, and their evaluation."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from layline import metrics
from layline.data.loaders import RowBatches
from layline.data.tables import TableEncoding
from layline.evaluation.evaluate import evaluate_split, find_alarms, measure
from layline.evaluation.predictions import Predictions, Split, predict_split
from layline.geometry.decoding import DECODINGS
from layline.model.calibration import Calibration
from layline.model.description import ModelDescription
from layline.utils.devices import Processes

CLASSES = ("low", "mid", "high", "top")
COUNT = 25
ALONE = Processes(torch.device("cpu"))


def outcome(n=40, num_classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.randint(num_classes, (n,), generator=generator)
    log_probs = torch.randn(n, num_classes, generator=generator).mul(2).log_softmax(dim=-1)
    proba = log_probs.double().softmax(dim=-1)
    decisions = {name: choose(proba) for name, choose in DECODINGS.items()}
    return ranks, Predictions(log_probs, decisions)


@pytest.mark.parametrize("decode", DECODINGS)
def test_every_metric_is_that_of_layline_metrics(decode):
    ranks, predictions = outcome()
    found = measure(ranks, predictions, decode)
    proba = predictions.log_probs.double().softmax(dim=-1)
    chosen = DECODINGS[decode](proba)
    expected = {
        name: metric.function(ranks, chosen if metric.kind == "ranks" else proba)
        for name, metric in metrics.METRICS.items()
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert list(found["by_decoding"]) == ["mode", "median", "mean"]
    assert found["by_decoding"][decode] == {name: found[name] for name in metrics.RANK_METRICS}
    assert (found["decode"], found["samples"]) == (decode, 40)
    confusion = sklearn.metrics.confusion_matrix(ranks, chosen, labels=range(4))
    assert found["confusion"] == confusion.tolist()


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(2, 6))
def test_the_numbers_can_always_be_written_as_json(seed, n, num_classes):
    found = measure(*outcome(n, num_classes, seed), "mean")
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.fixture(scope="module")
def description():
    encoding = TableEncoding.fit(pd.DataFrame({"a": ["1", "2"], "b": ["3", "5"]}), np.array([0, 1]))
    options = {"in_features": 2, "hidden": [8]}
    return ModelDescription("mlp", "hard-linear", 3, CLASSES, encoding, options)


def test_an_evaluation_has_intervals_rates_ranges_and_alarms(description):
    unseen_ranks, unseen = outcome(200, seed=1)
    calibration = Calibration.fit(None, (unseen.log_probs, unseen_ranks))
    ranks, predictions = outcome(100)
    described = replace(description, calibration=calibration)
    facts = {"validation": {"mae": 0.0, "samples": 10_000}}
    groups = [i // 2 for i in range(100)]
    found = evaluate_split(
        "test", ranks, list("a" * 100), predictions, described, "median", groups, facts
    )
    numbers = found.numbers
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert numbers["intervals"]["over"] == "groups"
    low, high = numbers["intervals"]["mae"]
    assert low < numbers["mae"] < high
    assert [row["class"] for row in numbers["by_class"]] == list(CLASSES)
    assert [row["from"] for row in numbers["thresholds"]] == list(CLASSES[1:])
    assert [each["coverage"] for each in numbers["ranges"]] == [0.8, 0.9, 0.95]
    assert numbers["validation"] == facts["validation"]
    assert any("than on validation samples" in alarm for alarm in numbers["alarms"])
    low, high = found.ranges
    assert ((low <= found.chosen.numpy()) & (found.chosen.numpy() <= high)).all()


def test_a_single_sample_can_be_evaluated(description):
    ranks, predictions = outcome(1)
    numbers = evaluate_split("test", ranks, ["a"], predictions, description, "mode").numbers
    assert numbers["intervals"]["mae"] is None
    assert numbers["thresholds"][2]["auc"] is None
    json.dumps(numbers, allow_nan=False)


@pytest.fixture(scope="module")
def model(description):
    torch.manual_seed(0)
    return replace(description, classes=CLASSES[:3]).build()


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    return Split(
        RowBatches(rng.normal(size=(COUNT, 2)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 3, COUNT)),
        torch.from_numpy(rng.uniform(0.5, 2, COUNT).astype(np.float32)),
    )


@given(batch_size=st.integers(1, COUNT + 5), keep=st.sets(st.integers(0, COUNT - 1)))
def test_predictions_are_in_order_and_the_loss_is_a_weighted_mean(model, split, batch_size, keep):
    wanted = torch.tensor(sorted(keep), dtype=torch.int64)
    batches = split.batches(ALONE, batch_size)
    found = predict_split(model, split, batches, ALONE, keep=wanted)
    x, _ = split.samples.__getitems__([(index, 0) for index in range(COUNT)])
    model.eval()
    with torch.no_grad():
        vectors = model.backbone(x)
        losses = [model.head.loss(vectors[i : i + 1], split.ranks[i : i + 1]) for i in range(COUNT)]
        log_probs = model.head.log_probs(vectors)
        chosen = {name: model.head.predict(vectors, name) for name in DECODINGS}
    torch.testing.assert_close(found.log_probs, log_probs)
    torch.testing.assert_close(found.features, vectors[wanted])
    assert all(torch.equal(found.decisions[name], chosen[name]) for name in DECODINGS)
    mean = (torch.stack(losses) @ split.weight / split.weight.sum()).item()
    assert found.loss == pytest.approx(mean, rel=1e-5)


# --- alarms

FINE = np.diag([30, 30, 30])
RESULT = {"part": "test", "samples": 90, "mae": 0.5, "intervals": {"mae": [0.42, 0.58]}}


def alarms(confusion=FINE, train_counts=(), **numbers):
    """Find the alarms of a confusion matrix, with the other numbers of a good model."""
    known = {**RESULT, "confusion": np.array(confusion).tolist(), "ranges": [], **numbers}
    return find_alarms(known, train_counts, CLASSES[: len(confusion)])


def test_a_good_model_has_none():
    assert alarms() == []
    assert alarms([[30, 5], [5, 30]]) == []  # two classes are neighbors


def test_a_class_that_is_never_predicted():
    (alarm,) = alarms([[30, 0, 0], [22, 0, 0], [0, 0, 30]])
    assert alarm.startswith("Never predicted: “mid” (22).")


def test_duplicates_across_splits_and_with_contradicting_labels():
    facts = {"in_training": {"validation": 3, "test": 12}, "contradicting": 2}
    leaked, contradicting = alarms(duplicates=facts)
    assert leaked.startswith("12 of 90 test images have a duplicate in the training split")
    assert "different labels: 2 groups" in contradicting
    assert alarms(duplicates={"in_training": {"test": 0}, "contradicting": 0}) == []


def test_confused_ends_of_the_scale():
    (alarm,) = alarms([[30, 0, 2], [0, 30, 0], [1, 0, 30]])
    assert "2 of 32 samples of “low” predicted as “high”" in alarm
    assert "1 of 31 samples of “high” predicted as “low”" in alarm


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
    assert len(alarms(validation={"mae": validation, "samples": samples})) == is_alarm


def test_other_data_with_a_worse_result_than_the_runs_own_test():
    own = {"mae": 0.2, "interval": [0.1, 0.3], "samples": 100}
    (alarm,) = alarms(run_test=own)
    assert "MAE 0.500 instead of 0.200" in alarm
    assert alarms(run_test=own | {"mae": 0.45, "interval": [0.4, 0.5]}) == []


@pytest.mark.parametrize(("measured", "is_alarm"), [(0.85, True), (0.9, False), (0.99, False)])
def test_ranges_with_too_low_coverage(measured, is_alarm):
    ranges = [
        {"coverage": share, "measured": value, "expected": [share - 0.03, share + 0.03]}
        for share, value in ((0.8, 0.8), (0.9, measured))
    ]
    assert len(alarms(ranges=ranges)) == is_alarm


def test_few_samples_of_a_class():
    train, test = alarms(np.diag([20, 3, 1]), train_counts=[19, 20, 500])
    assert train.startswith("Fewer than 20 training samples: “low” (19). ")
    assert test.startswith("Fewer than 20 test samples: “mid” (3), “high” (1). ")
    (alarm,) = alarms(np.diag([5, 30]), part="all")
    assert alarm.startswith("Fewer than 20 samples: “low” (5).")
