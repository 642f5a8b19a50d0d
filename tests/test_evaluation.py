"""The numbers of a model: all of them, each with its decoding, as layline.metrics has them."""

import csv
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layline import metrics
from layline.evaluation import DECODED, measure, normalised, write_json, write_predictions
from layline.geometry.decoding import DECODINGS

CLASSES = ("low", "mid", "high", "top")


def outcome(n=40, num_classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.randint(num_classes, (n,), generator=generator)
    return ranks, torch.randn(n, num_classes, generator=generator).mul(2).log_softmax(dim=-1)


@pytest.mark.parametrize("decode", DECODINGS)
def test_every_metric_is_that_of_layline_metrics(decode):
    ranks, log_probs = outcome()
    found = measure(ranks, log_probs, decode)
    proba = log_probs.double().exp()
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
    ranks, log_probs = outcome()
    found = measure(ranks, log_probs, "mode")
    error = (log_probs.argmax(dim=-1) - ranks).abs().numpy()
    assert found["accuracy"] == pytest.approx((error == 0).mean())
    assert found["mae"] == pytest.approx(error.mean())
    assert found["within_one"] == pytest.approx((error <= 1).mean())
    assert found["maximum_mae"] == pytest.approx(
        max(error[ranks.numpy() == k].mean() for k in range(4))
    )


def test_the_other_decodings_stand_beside_the_chosen_one():
    found = measure(*outcome(), "median")
    assert list(found["by_decoding"]) == list(DECODINGS) == ["mode", "median", "mean"]
    assert all(list(values) == list(DECODED) for values in found["by_decoding"].values())
    assert found["by_decoding"]["mode"] != found["by_decoding"]["median"]


@pytest.mark.parametrize("decode", DECODINGS)
def test_the_confusion_has_true_classes_as_rows_and_is_of_the_chosen_decoding(decode):
    ranks, log_probs = outcome()
    confusion = np.array(measure(ranks, log_probs, decode)["confusion"])
    chosen = DECODINGS[decode](log_probs.exp())
    for true in range(4):
        for predicted in range(4):
            both = (ranks == true) & (chosen == predicted)
            assert confusion[true, predicted] == both.sum()


@pytest.mark.parametrize("n", [1, 2])
def test_a_number_that_does_not_exist_is_null(tmp_path, n):
    ranks = torch.full((n,), 2)
    found = measure(ranks, torch.eye(4)[ranks].log_softmax(dim=-1), "mode")
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
    proba = normalised(log_probs)
    assert proba.dtype == np.float64
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose(proba, [[1, 0, 0], [0, 1, 0]], atol=1e-80)


@pytest.mark.parametrize("decode", DECODINGS)
def test_predictions_have_a_line_per_sample_that_agrees_with_the_numbers(tmp_path, decode):
    ranks, log_probs = outcome()
    names = [f"folder/{i}.jpg" for i in range(40)]
    write_predictions(tmp_path / "p.csv", names, CLASSES, log_probs, decode, ranks)
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == names
    assert [row["true"] for row in rows] == [CLASSES[rank] for rank in ranks]
    right = np.mean([row["true"] == row["predicted"] for row in rows])
    assert right == pytest.approx(measure(ranks, log_probs, decode)["accuracy"])
    written = np.array([[float(row[f"p_{name}"]) for name in CLASSES] for row in rows])
    np.testing.assert_allclose(written, normalised(log_probs), atol=1e-7)
    write_predictions(tmp_path / "p.jsonl", names, CLASSES, log_probs, decode, ranks)
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["predicted"] for line in lines] == [row["predicted"] for row in rows]


def test_another_ending_is_refused_and_leaves_no_file(tmp_path):
    ranks, log_probs = outcome(1)
    with pytest.raises(ValueError, match=r"the ending of predictions must be .*got '\.txt'"):
        write_predictions(tmp_path / "p.txt", ["a"], CLASSES, log_probs, "mode", ranks)
    assert list(tmp_path.iterdir()) == []
