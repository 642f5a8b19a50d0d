"""What a model predicts of a part, and its numbers as layline.metrics has them."""

import csv
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layline import metrics
from layline.data.images import ImageArrays
from layline.data.loaders import ImageBatches, RowBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import TableEncoding
from layline.evaluation.evaluate import Evaluation, measure
from layline.evaluation.predictions import Predictions, Split, evaluation_batch_size, predict_split
from layline.geometry.decoding import DECODINGS
from layline.model.description import ModelDescription
from layline.model.model import to_probabilities
from layline.utils.devices import Processes
from layline.utils.files import write_json

CLASSES = ("low", "mid", "high", "top")
COUNT = 25
ALONE = Processes(torch.device("cpu"))


def outcome(n=40, num_classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.randint(num_classes, (n,), generator=generator)
    return ranks, said(torch.randn(n, num_classes, generator=generator).mul(2).log_softmax(dim=-1))


def said(log_probs):
    """What a model says that has these probabilities and decides by them."""
    proba = log_probs.double().softmax(dim=-1)
    return Predictions(log_probs, {name: choose(proba) for name, choose in DECODINGS.items()})


def test_a_processor_takes_few_images_at_a_time_and_many_rows():
    images = ImageBatches(
        ImageArrays(np.zeros((3, 8, 8, 3), np.uint8)), ImagePreprocessing(8, 8, False, "bilinear")
    )
    rows = RowBatches(np.zeros((3, 2), np.float32))
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    sizes = [evaluation_batch_size(images, 128, device) for device in (cpu, gpu)]
    assert sizes == [64, 512]
    assert evaluation_batch_size(images, 8, cpu) == 32
    assert evaluation_batch_size(rows, 128, cpu) == 512


@pytest.mark.parametrize("decode", DECODINGS)
def test_every_metric_is_that_of_layline_metrics(decode):
    ranks, predictions = outcome()
    found = measure(ranks, predictions, decode)
    proba = predictions.log_probs.double().exp()
    proba = proba / proba.sum(dim=-1, keepdim=True)
    chosen = DECODINGS[decode](proba)
    expected = {
        "accuracy": metrics.accuracy(ranks, chosen),
        "mae": metrics.mean_absolute_error(ranks, chosen),
        "macro_mae": metrics.macro_mean_absolute_error(ranks, chosen),
        "maximum_mae": metrics.maximum_mean_absolute_error(ranks, chosen),
        "within_one": metrics.accuracy_within(ranks, chosen),
        "qwk": metrics.quadratic_weighted_kappa(ranks, chosen),
        "spearman": metrics.spearman(ranks, chosen),
        "kendall": metrics.kendall(ranks, chosen),
    }
    assert found["by_decoding"][decode] == pytest.approx(expected)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["rps"] == pytest.approx(metrics.ranked_probability_score(ranks, proba))
    assert found["ece"] == pytest.approx(metrics.expected_calibration_error(ranks, proba))
    assert found["unimodality_rate"] == pytest.approx(metrics.unimodality_rate(proba))
    assert (found["decode"], found["samples"]) == (decode, 40)


def test_plain_arithmetic_gives_the_same():
    ranks, predictions = outcome()
    found = measure(ranks, predictions, "mode")
    error = (predictions.log_probs.argmax(dim=-1) - ranks).abs().numpy()
    assert found["accuracy"] == pytest.approx((error == 0).mean())
    assert found["mae"] == pytest.approx(error.mean())
    assert found["within_one"] == pytest.approx((error <= 1).mean())
    assert found["maximum_mae"] == pytest.approx(
        max(error[ranks.numpy() == k].mean() for k in range(4))
    )


def test_the_other_decodings_stand_beside_the_chosen_one():
    found = measure(*outcome(), "median")
    assert list(found["by_decoding"]) == list(DECODINGS) == ["mode", "median", "mean"]
    assert all(
        list(values) == [name for name, metric in metrics.METRICS.items() if metric.kind == "ranks"]
        for values in found["by_decoding"].values()
    )
    assert found["by_decoding"]["mode"] != found["by_decoding"]["median"]


@pytest.mark.parametrize("decode", DECODINGS)
def test_the_confusion_has_true_classes_as_rows_and_is_of_the_chosen_decoding(decode):
    ranks, predictions = outcome()
    confusion = np.array(measure(ranks, predictions, decode)["confusion"])
    chosen = DECODINGS[decode](predictions.log_probs.exp())
    for true in range(4):
        for predicted in range(4):
            both = (ranks == true) & (chosen == predicted)
            assert confusion[true, predicted] == both.sum()


@pytest.mark.parametrize("n", [1, 2])
def test_a_number_that_does_not_exist_is_null(tmp_path, n):
    ranks = torch.full((n,), 2)
    found = measure(ranks, said(torch.eye(4)[ranks].log_softmax(dim=-1)), "mode")
    assert math.isnan(metrics.spearman(ranks, ranks))
    assert (found["spearman"], found["kendall"]) == (None, None)
    write_json(tmp_path / "test.json", found)
    text = (tmp_path / "test.json").read_text()
    assert "NaN" not in text
    assert json.loads(text) == found


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(2, 6))
def test_whatever_the_outcome_the_numbers_can_be_written_as_json(seed, n, num_classes):
    found = measure(*outcome(n, num_classes, seed), "mean")
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_rows_sum_to_one_in_double_precision_and_certainty_stays_finite():
    log_probs = torch.tensor([[0.0, -200.0, -torch.inf], [-1e30, 0.0, -1e30]])
    proba = to_probabilities(log_probs)
    assert proba.dtype == np.float64
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose(proba, [[1, 0, 0], [0, 1, 0]], atol=1e-80)


@pytest.mark.parametrize("decode", DECODINGS)
def test_predictions_have_a_line_per_sample_that_agrees_with_the_numbers(tmp_path, decode):
    ranks, predictions = outcome()
    names = [f"folder/{i}.jpg" for i in range(40)]
    tested = Evaluation({"decode": decode}, names, CLASSES, ranks, predictions)
    tested.write_predictions(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == names
    assert [row["true"] for row in rows] == [CLASSES[rank] for rank in ranks]
    right = np.mean([row["true"] == row["predicted"] for row in rows])
    assert right == pytest.approx(measure(ranks, predictions, decode)["accuracy"])
    written = np.array([[float(row[f"p_{name}"]) for name in CLASSES] for row in rows])
    np.testing.assert_allclose(written, predictions.proba, atol=1e-7)
    tested.write_predictions(tmp_path / "p.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["predicted"] for line in lines] == [row["predicted"] for row in rows]


def test_another_ending_is_refused_and_leaves_no_file(tmp_path):
    tested = Evaluation({"decode": "mode"}, ["a"], CLASSES, *outcome(1))
    with pytest.raises(ValueError, match=r"the ending of predictions must be .*got '\.txt'"):
        tested.write_predictions(tmp_path / "p.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    encoding = TableEncoding.fit(pd.DataFrame({"a": ["1", "2"], "b": ["3", "5"]}), np.array([0, 1]))
    options = {"in_features": 2, "hidden": [8]}
    return ModelDescription("mlp", "hard-linear", 3, ("x", "y", "z"), encoding, options).build()


@pytest.fixture(scope="module")
def part():
    rng = np.random.default_rng(0)
    return Split(
        RowBatches(rng.normal(size=(COUNT, 2)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 3, COUNT)),
        torch.from_numpy(rng.uniform(0.5, 2, COUNT).astype(np.float32)),
    )


def predicted(model, part, batch_size=8, **options):
    return predict_split(model, part, part.batches(ALONE, batch_size), ALONE, **options)


@given(batch_size=st.integers(1, COUNT + 5))
def test_they_are_in_order_and_the_loss_is_a_weighted_mean(model, part, batch_size):
    found = predicted(model, part, batch_size)
    x, _ = part.samples.__getitems__([(index, 0) for index in range(COUNT)])
    model.eval()
    with torch.no_grad():
        vectors = model.backbone(x)
        losses = [model.head.loss(vectors[i : i + 1], part.ranks[i : i + 1]) for i in range(COUNT)]
        log_probs = model.head.log_probs(vectors)
        decided = {name: model.head.predict(vectors, name) for name in DECODINGS}
    torch.testing.assert_close(found.log_probs, log_probs)
    assert all(torch.equal(found.decisions[name], decided[name]) for name in DECODINGS)
    mean = (torch.stack(losses) @ part.weight / part.weight.sum()).item()
    assert found.loss == pytest.approx(mean, rel=1e-5)


def test_nothing_is_remembered_for_a_gradient(model, part):
    assert not predicted(model, part).log_probs.requires_grad


def test_the_model_is_asked_as_in_testing(model, part):
    model.train()
    predicted(model, part)
    assert not model.training


@given(batch_size=st.integers(1, COUNT + 5), keep=st.sets(st.integers(0, COUNT - 1)))
def test_features_are_kept_of_those_that_are_asked_for(model, part, batch_size, keep):
    wanted = torch.tensor(sorted(keep), dtype=torch.int64)
    found = predicted(model, part, batch_size, keep=wanted)
    x, _ = part.samples.__getitems__([(index, 0) for index in range(COUNT)])
    with torch.no_grad():
        torch.testing.assert_close(found.features, model.backbone(x)[wanted])


def test_batches_can_be_gone_over_again(model, part):
    batches = part.batches(ALONE, 2)
    first, second = (predict_split(model, part, batches, ALONE).log_probs for _ in range(2))
    assert torch.equal(first, second)


def test_without_asking_no_features_are_kept(model, part):
    assert predicted(model, part).features.shape == (0, 3)
