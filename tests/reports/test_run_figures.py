"""The figures of a run's report, against the metrics and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, mean_absolute_error

from layline import metrics
from layline.evaluation.diagnostics import class_rates, threshold_rates
from layline.reports.run_figures import (
    BINS,
    MOST_WITH_COUNTS,
    MOST_WITH_SHARES,
    class_errors,
    class_errors_figure,
    class_rates_figure,
    confusion_figure,
    count_modes,
    error_counts,
    error_sizes_figure,
    learning_curves,
    modes_figure,
    referral_figure,
    reliability_bins,
    reliability_figure,
    roc_figure,
    row_shares,
    similarity_figures,
    uncalibrated,
)

RNG = np.random.default_rng(0)
HISTORY = [{"epoch": 1, "a": 3.0, "b": 2.0}, {"epoch": 2, "a": 1.0}]


def random_confusion(num_classes, samples=200):
    true, said = RNG.integers(0, num_classes, (2, samples))
    labels = np.arange(num_classes)
    return true, said, confusion_matrix(true, said, labels=labels)


def class_names(num_classes):
    return [f"class {rank}" for rank in range(num_classes)]


@pytest.mark.parametrize("num_classes", [2, 5, 100])
def test_rows_sum_to_one_and_counts_to_the_samples(num_classes):
    _, _, confusion = random_confusion(num_classes, 3000)
    np.testing.assert_allclose(row_shares(confusion).sum(axis=1), 1)
    (heat,) = confusion_figure(confusion, class_names(num_classes))["data"]
    counts = [[cell[0] for cell in row] for row in heat["customdata"]]
    np.testing.assert_array_equal(counts, confusion)
    np.testing.assert_allclose(heat["z"], row_shares(confusion), atol=1e-4)


def test_a_class_without_samples_has_a_row_of_zeros():
    assert row_shares(np.array([[0, 0], [1, 3]])).tolist() == [[0, 0], [0.25, 0.75]]


def test_true_classes_go_down_and_predicted_ones_to_the_right():
    (heat,) = confusion_figure(np.array([[5, 1], [0, 4]]), ["a", "b"])["data"]
    assert heat["text"] == [["5<br>83%", "1<br>17%"], ["", "4<br>100%"]]
    assert heat["customdata"][0][1] == [1, "a", "b"]


@pytest.mark.parametrize("num_classes", [2, MOST_WITH_SHARES, MOST_WITH_COUNTS, 17, 100])
def test_many_classes_have_no_text_in_their_cells(num_classes):
    figure = confusion_figure(random_confusion(num_classes, 5000)[2], class_names(num_classes))
    (heat,) = figure["data"]
    assert ("text" in heat) == (num_classes <= MOST_WITH_COUNTS)
    assert heat["showscale"] == (num_classes > MOST_WITH_COUNTS)
    assert len(figure["layout"]["xaxis"]["tickvals"]) <= 20


@pytest.mark.parametrize("num_classes", [2, 6, 30])
def test_errors_by_class_are_those_of_scikit_learn(num_classes):
    true, said, confusion = random_confusion(num_classes)
    for rank, error in enumerate(class_errors(confusion)):
        samples = true == rank
        expected = mean_absolute_error(true[samples], said[samples]) if samples.any() else np.nan
        assert error == pytest.approx(expected, nan_ok=True)


def test_a_class_without_samples_has_no_bar():
    (bars,) = class_errors_figure(np.array([[0, 0], [1, 3]]), ["a", "b"])["data"]
    assert bars["y"] == [None, 0.25]
    assert bars["text"] == ["n=0", "n=4"]


@pytest.mark.parametrize("num_classes", [2, 9])
def test_sizes_of_errors_are_counted(num_classes):
    true, said, confusion = random_confusion(num_classes)
    np.testing.assert_array_equal(error_counts(confusion), np.bincount(np.abs(true - said)))
    (bars,) = error_sizes_figure(confusion)["data"]
    assert sum(bars["y"]) == pytest.approx(1, abs=1e-5)


def test_without_an_error_all_are_zero_off():
    assert error_counts(np.diag([3, 4])).tolist() == [7]


def test_a_number_that_is_missing_leaves_a_gap():
    first, second = learning_curves(HISTORY, {"a": "one", "b": "two"}, 2, "Both")["data"]
    assert (first["x"], first["y"], first["name"]) == ([1, 2], [3.0, 1.0], "one")
    assert second["y"] == [2.0, None]
    assert first["line"].get("dash") != second["line"].get("dash")  # not by hue alone


def test_the_kept_epoch_is_marked():
    layout = learning_curves(HISTORY, {"a": "one"}, 2, "One")["layout"]
    assert layout["shapes"][0]["x0"] == layout["shapes"][0]["x1"] == 2
    assert layout["annotations"][0]["text"] == "kept: 2"


def test_a_single_epoch_is_a_point():
    (trace,) = learning_curves(HISTORY[:1], {"a": "one"}, 1, "One")["data"]
    assert "markers" in trace["mode"]


@pytest.mark.parametrize("num_classes", [2, 10, 40])
def test_q_and_u_share_a_scale_and_their_difference_is_centred(num_classes):
    rng = np.random.default_rng(0)
    q, u = rng.dirichlet(np.ones(num_classes), (2, num_classes))
    found = similarity_figures(q, u, [str(k) for k in range(num_classes)])
    heat = {name: figure["data"][0] for name, figure in found.items()}
    assert set(heat) == {"q", "u", "difference"}
    assert heat["q"]["zmax"] == heat["u"]["zmax"] == max(q.max(), u.max())
    assert heat["difference"]["zmin"] == -heat["difference"]["zmax"]
    np.testing.assert_allclose(heat["difference"]["z"], q - u, atol=1e-5)
    assert ("texttemplate" in heat["q"]) == (num_classes <= 10)


def test_without_a_smoothing_there_is_q_alone():
    assert set(similarity_figures(np.eye(3), None, ["a", "b", "c"])) == {"q"}


def random_proba(seed, num_classes, samples=300):
    rng = np.random.default_rng(seed)
    proba = softmax(rng.normal(0, 2, (samples, num_classes)), axis=1)
    return rng.integers(0, num_classes, samples), proba


@given(seed=st.integers(0, 50), num_classes=st.sampled_from([2, 3, 8]))
def test_the_bins_add_up_to_the_calibration_error(seed, num_classes):
    ranks, proba = random_proba(seed, num_classes)
    bins = reliability_bins(ranks, proba)
    assert bins.counts.sum() == len(ranks)
    gaps = np.nan_to_num(np.abs(bins.accuracy - bins.confidence))
    expected = metrics.expected_calibration_error(ranks, proba, bins=BINS)
    assert (bins.counts * gaps).sum() / len(ranks) == pytest.approx(expected, abs=1e-12)


def test_the_curve_is_that_of_scikit_learn():
    ranks, proba = random_proba(3, 4)
    bins = reliability_bins(ranks, proba)
    right = proba.argmax(axis=1) == ranks
    shares, means = calibration_curve(right, proba.max(axis=1), n_bins=BINS)
    filled = bins.counts > 0
    np.testing.assert_allclose(bins.accuracy[filled], shares)
    np.testing.assert_allclose(bins.confidence[filled], means)


def test_empty_bins_are_not_random_proba():
    _, curve, histogram = reliability_figure(reliability_bins(np.array([0, 1]), np.eye(2)))["data"]
    assert (curve["x"], curve["y"], curve["customdata"]) == ([1.0], [1.0], [2])
    assert histogram["y"] == [0] * (BINS - 1) + [2]


def test_calibration_can_be_taken_back():
    _, raw = random_proba(0, 5)
    calibrated = softmax(np.log(raw) / 1.7, axis=1)
    np.testing.assert_allclose(uncalibrated(calibrated, 1.7), raw)


def test_the_legend_of_the_curves_is_below_them():
    legend = learning_curves(HISTORY, {"a": "one", "b": "two"}, 2, "Two")["layout"]["legend"]
    assert legend["y"] < 0


def test_rates_of_classes_have_their_intervals_and_leave_out_what_has_none():
    rows = class_rates([[8, 2, 0], [5, 5, 0], [3, 0, 0]], ["a", "b", "c"])
    recall, precision = class_rates_figure(rows, ["a", "b", "c"])["data"]
    assert recall["y"] == [0.8, 0.5, 0]
    assert [round(x) for x in precision["x"]] == [0, 1]  # nothing is taken for c
    low, high = rows[0]["recall_interval"]
    assert recall["error_y"]["array"][0] == pytest.approx(high - 0.8, abs=1e-5)
    assert recall["error_y"]["arrayminus"][0] == pytest.approx(0.8 - low, abs=1e-5)


def test_the_working_point_is_that_of_the_decisions():
    ranks, proba = random_proba(0, 3)
    (row, _) = threshold_rates(ranks, proba.argmax(axis=1), proba, ["a", "b", "c"])
    _, curve, point = roc_figure(row)["data"]
    assert curve["x"] == row["curve"]["fpr"]
    assert point["x"] == [pytest.approx(1 - row["specificity"], abs=1e-5)]
    assert point["y"] == [pytest.approx(row["sensitivity"], abs=1e-5)]
    assert roc_figure(row | {"curve": None}) is None


@pytest.mark.parametrize("key", ["error", "mae"])
def test_the_curve_of_referral_is_drawn_as_it_is(key):
    curve = {"coverage": [0.5, 1.0], "error": [0.1, 0.2], "mae": [0.3, 0.4]}
    (line,) = referral_figure(curve, key)["data"]
    assert (line["x"], line["y"]) == (curve["coverage"], curve[key])


@pytest.mark.parametrize(
    ("row", "peaks"),
    [
        ([1.0, 0.0, 0.0], 1),
        ([0.2, 0.6, 0.2], 1),
        ([0.25, 0.25, 0.5], 1),
        ([0.5, 0.0, 0.5], 2),
        ([0.3, 0.1, 0.2, 0.1, 0.3], 3),
        ([0.2, 0.4, 0.0, 0.0, 0.4], 2),
        ([0.2, 0.2, 0.2, 0.2, 0.2], 1),
    ],
)
def test_peaks_are_counted(row, peaks):
    assert count_modes(np.array([row])).tolist() == [peaks]


@given(seed=st.integers(0, 50), num_classes=st.sampled_from([2, 3, 9]))
def test_one_peak_is_what_the_metric_calls_unimodal(seed, num_classes):
    _, proba = random_proba(seed, num_classes)
    share = (count_modes(proba, 1e-9) == 1).mean()
    assert share == pytest.approx(metrics.unimodality_rate(proba))


def test_the_shares_of_peaks_sum_to_one():
    _, proba = random_proba(0, 9)
    (bars,) = modes_figure(count_modes(proba))["data"]
    assert sum(bars["y"]) == pytest.approx(1, abs=1e-5)
    assert sum(bars["customdata"]) == len(proba)
