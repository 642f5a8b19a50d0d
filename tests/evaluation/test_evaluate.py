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
from layline.evaluation.evaluate import Evaluation, evaluate_split, measure
from layline.evaluation.prediction_file import read_predictions
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
    return ranks, predict_with(
        torch.randn(n, num_classes, generator=generator).mul(2).log_softmax(dim=-1)
    )


def predict_with(log_probs):
    """The predictions of a model with these log probabilities."""
    proba = log_probs.double().softmax(dim=-1)
    return Predictions(log_probs, {name: choose(proba) for name, choose in DECODINGS.items()})


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
    of_ranks = [name for name, metric in metrics.METRICS.items() if metric.kind == "ranks"]
    assert found["by_decoding"][decode] == {name: found[name] for name in of_ranks}
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


@pytest.mark.parametrize("decode", DECODINGS)
def test_predictions_have_a_line_per_sample_that_agrees_with_the_numbers(tmp_path, decode):
    ranks, predictions = outcome()
    names = [f"folder/{i}.jpg" for i in range(40)]
    tested = Evaluation({"decode": decode}, names, CLASSES, ranks, predictions)
    tested.write_predictions(tmp_path / "p.csv")
    found = read_predictions(tmp_path / "p.csv")
    assert (found.names, found.classes) == (names, list(CLASSES))
    assert found.ranks.tolist() == ranks.tolist()
    assert found.predicted.tolist() == tested.chosen.tolist()
    np.testing.assert_allclose(found.proba, predictions.proba, atol=1e-7)
    tested.write_predictions(tmp_path / "p.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["predicted"] for line in lines] == [CLASSES[rank] for rank in found.predicted]


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


def predicted(model, split, batch_size=8, **options):
    return predict_split(model, split, split.batches(ALONE, batch_size), ALONE, **options)


@given(batch_size=st.integers(1, COUNT + 5))
def test_predictions_are_in_order_and_the_loss_is_a_weighted_mean(model, split, batch_size):
    found = predicted(model, split, batch_size)
    x, _ = split.samples.__getitems__([(index, 0) for index in range(COUNT)])
    model.eval()
    with torch.no_grad():
        vectors = model.backbone(x)
        losses = [model.head.loss(vectors[i : i + 1], split.ranks[i : i + 1]) for i in range(COUNT)]
        log_probs = model.head.log_probs(vectors)
        chosen = {name: model.head.predict(vectors, name) for name in DECODINGS}
    torch.testing.assert_close(found.log_probs, log_probs)
    assert all(torch.equal(found.decisions[name], chosen[name]) for name in DECODINGS)
    mean = (torch.stack(losses) @ split.weight / split.weight.sum()).item()
    assert found.loss == pytest.approx(mean, rel=1e-5)


@given(batch_size=st.integers(1, COUNT + 5), keep=st.sets(st.integers(0, COUNT - 1)))
def test_features_of_the_requested_samples_are_returned(model, split, batch_size, keep):
    wanted = torch.tensor(sorted(keep), dtype=torch.int64)
    found = predicted(model, split, batch_size, keep=wanted)
    x, _ = split.samples.__getitems__([(index, 0) for index in range(COUNT)])
    with torch.no_grad():
        torch.testing.assert_close(found.features, model.backbone(x)[wanted])
