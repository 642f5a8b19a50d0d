"""Means, spreads and intervals over runs, recomputed by pandas, numpy and scipy."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from layline.bench.summaries import (
    METRICS,
    UNDEFINED,
    find_metric,
    intervals,
    means,
    measured,
    select_decoding,
    student_interval,
    summary,
)
from layline.evaluation.evaluate import measure
from layline.evaluation.predictions import Predictions
from layline.metrics import CRITERIA


def perfect_and_poor():
    """Metrics of sure and right predictions, and of sure and wrong ones with two modes."""
    ranks = torch.tensor([0, 1, 2, 3] * 5)
    right = torch.eye(4)[ranks] * 0.94 + 0.015
    wrong = torch.full((4, 4), 0.05).scatter(1, torch.tensor([[2, 0], [3, 0], [0, 3], [0, 2]]), 0.4)
    wrong += torch.eye(4)[[2, 3, 0, 0]] * 0.1
    return (
        measure(ranks, Predictions(p.log(), {"mode": p.argmax(dim=-1)}), "mode")
        for p in (right, wrong[ranks])
    )


def test_the_better_end_is_where_a_perfect_model_is():
    perfect, poor = perfect_and_poor()
    elsewhere = {"range_width", "seconds"}  # not measured on probabilities alone
    for metric, known in METRICS.items():
        if metric in elsewhere:
            assert known.lower_is_better
            continue
        assert (perfect[metric] < poor[metric]) == known.lower_is_better, metric
        assert perfect[metric] != poor[metric], metric


def test_the_decoding_that_a_metric_asks_for_is_the_one_that_models_are_chosen_with():
    for metric, criterion in CRITERIA.items():
        assert METRICS[metric].decode == criterion.decode
    assert METRICS["mae"].own_decoding(["mode", "median"]) == "median"
    assert METRICS["mae"].own_decoding(["mode"]) == METRICS["rps"].own_decoding(["mode"]) == "mode"


def test_what_no_run_has_is_not_measured(long_frame):
    frame = long_frame().assign(nll=np.nan)
    assert {"mae", "rps"} <= set(measured(frame))
    assert not {"nll", "seconds"} & set(measured(frame))


def test_shares_are_per_cent_and_say_so():
    for known in METRICS.values():
        assert (known.scale == 100) == ("%" in known.title)
    assert find_metric("accuracy").shown(0.57284) == 57.28
    assert find_metric("mae").shown(np.float64(0.4126)) == 0.413


def test_an_unknown_metric_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="metric must be a known name, got 'acuracy': did you"):
        find_metric("acuracy")


BY = ("data", "method", "decode")
numbers = st.floats(-100, 100, allow_nan=False)


def test_summary_is_what_numpy_says_of_each_group(long_frame):
    frame = long_frame()
    found = summary(frame, "mae", BY)
    assert len(found) == 3 * 3 * 2
    for (data, method, decode), line in found.iterrows():
        chosen = (frame.data == data) & (frame.method == method) & (frame.decode == decode)
        values = frame[chosen].mae.to_numpy()
        assert line["mean"] == pytest.approx(values.mean())
        assert line["sd"] == pytest.approx(values.std())
        assert (line["n"], line["failed"], line["error"]) == (4, 0, "")


def test_failed_runs_are_counted_and_named_and_never_averaged(long_frame):
    failed = {("lev", "arc", "1"), *(("era", "arc", str(seed)) for seed in range(4))}
    frame = long_frame(failed=failed)
    found = summary(frame, "mae", BY).xs("mode", level="decode")
    kept = frame[(frame.data == "lev") & (frame.method == "arc") & (frame.decode == "mode")]
    one, all_of_them = found.loc[("lev", "arc")], found.loc[("era", "arc")]
    assert (one["n"], one["failed"], one["error"]) == (3, 1, "FloatingPointError")
    assert one["mean"] == pytest.approx(np.nanmean(kept.mae))
    assert (all_of_them["n"], all_of_them["failed"]) == (0, 4)
    assert math.isnan(all_of_them["mean"])


def test_a_number_beside_an_error_is_not_used(long_frame):
    frame = long_frame(failed={("lev", "arc", "1")})
    frame.loc[frame.error != "", "mae"] = 1e6
    assert summary(frame, "mae", BY)["mean"].max() < 2


def test_a_finished_run_without_this_number_is_undefined(long_frame):
    frame = long_frame(seeds=2)
    frame.loc[frame.method == "arc", "qwk"] = np.nan
    found = summary(frame, "qwk", BY).loc[("lev", "arc", "mode")]
    assert (found["n"], found["failed"], found["error"]) == (0, 2, UNDEFINED)


def test_the_commonest_error_is_named(long_frame):
    frame = long_frame(data=("lev",), methods=("arc",), seeds=3)
    frame["mae"] = np.nan
    frame["error"] = ["B: x", "B: x", "A", "A", "B", "B"]
    assert summary(frame, "mae", by=("method",)).loc["arc", "error"] == "B"


def test_a_run_that_failed_before_it_was_decoded_counts_for_every_decoding(long_frame):
    frame = long_frame(seeds=2, failed={("lev", "arc", "0")})
    lost = frame.error != ""
    frame = pd.concat([frame[~lost], frame[lost].head(1).assign(decode="")], ignore_index=True)
    for decode in ("mode", "median"):
        found = summary(select_decoding(frame, decode), "mae", by=("data", "method"))
        assert tuple(found.loc[("lev", "arc"), ["n", "failed"]]) == (1, 1)


def test_an_unknown_decoding_is_answered_with_the_known_ones(long_frame):
    with pytest.raises(ValueError, match="decode must be a known name, got 'modus': did you mean"):
        select_decoding(long_frame(), "modus")


def test_means_are_a_pivot_in_the_order_of_the_frame(long_frame):
    frame = long_frame(failed={("era", "arc", str(seed)) for seed in range(4)})
    found = means(frame, "mae", "median")
    oracle = frame[frame.decode == "median"].pivot_table("mae", "data", "method", dropna=False)
    assert list(found.index) == ["lev", "era", "swd"]
    assert list(found.columns) == ["line", "arc", "sord"]
    pd.testing.assert_frame_equal(found.sort_index().sort_index(axis=1), oracle)
    assert math.isnan(found.loc["era", "arc"])


@given(st.lists(numbers, min_size=2, max_size=8), st.sampled_from([0.5, 0.95]))
def test_intervals_are_those_of_a_paired_t_test(values, confidence):
    if np.ptp(values) > 1e-6:
        oracle = scipy.stats.ttest_1samp(values, 0).confidence_interval(confidence)
        assert student_interval(np.array(values), confidence) == pytest.approx(oracle)


def test_intervals_of_five_seeds_hold_the_mean_as_often_as_they_say():
    drawn = np.random.default_rng(0).normal(3, 2, size=(2000, 5))
    ends = [student_interval(seeds) for seeds in drawn]
    held = np.mean([low <= 3 <= high for low, high in ends])
    assert scipy.stats.binomtest(round(held * 2000), 2000, 0.95).pvalue > 1e-3


@pytest.mark.parametrize("values", [[0.3], [0.1, 0.1, 0.1]])
def test_one_seed_or_equal_ones_give_a_point(values):
    assert student_interval(np.array(values)) == (values[0], values[0])


def test_no_values_give_no_interval():
    assert all(math.isnan(end) for end in student_interval(np.array([])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1.0, math.nan]}, r"values must be finite, got \[1.0, nan\]"),
        ({"values": [1.0, 2.0], "confidence": 95}, "confidence must be between 0 and 1, got 95"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        student_interval(**arguments)


def test_intervals_hold_their_means_and_leave_out_failed_runs(long_frame):
    frame = long_frame(failed={("lev", "arc", "1")})
    found = intervals(frame, "mae", "mode")
    oracle = frame[frame.decode == "mode"].groupby(["data", "method"])["mae"].agg(["mean", "count"])
    assert ((found["low"] <= found["mean"]) & (found["mean"] <= found["high"])).all()
    np.testing.assert_allclose(found["mean"], oracle.loc[found.index, "mean"])
    assert found["n"].to_dict() == oracle["count"].to_dict()


def test_pooled_intervals_average_each_seed_over_all_data_sets(long_frame):
    frame = long_frame(failed={("lev", "arc", "1")})
    found = intervals(frame, "mae", "mode", pooled=True).loc["all"]
    runs = frame[(frame.decode == "mode") & (frame.method == "arc") & (frame.seed != "1")]
    assert found.loc["arc", "n"] == 3
    assert found.loc["arc", "mean"] == pytest.approx(runs.groupby("seed")["mae"].mean().mean())
    assert found.loc["line", "n"] == 4


def test_a_mean_with_a_failed_seed_is_not_compared(long_frame):
    frame = long_frame(failed=[("lev", "arc", "1")])
    table = means(frame, "mae", "mode")
    assert table.isna().sum().sum() == 1
    assert np.isnan(table.loc["lev", "arc"])
