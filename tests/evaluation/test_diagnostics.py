"""Rates, referral, intervals and comparisons, against scikit-learn, scipy and hand calculation."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from layline import metrics
from layline.evaluation import diagnostics
from layline.evaluation.diagnostics import (
    bootstrap_intervals,
    certainty,
    class_rates,
    expected_coverage,
    paired_differences,
    referral,
    threshold_rates,
)

K = 5
CLASSES = ["none", "mild", "moderate", "severe", "worst"]


def draw(seed=0, n=200, classes=K, noise=1.0):
    """Draw ranks, and the predictions and probabilities of a fair model."""
    rng = np.random.default_rng(seed)
    ranks = rng.integers(classes, size=n)
    seen = ranks + noise * rng.normal(size=n)
    proba = np.exp(-((np.arange(classes) - seen[:, None]) ** 2))
    proba /= proba.sum(axis=1, keepdims=True)
    return ranks, proba.argmax(axis=1), proba


# ---- rates ----


def test_recall_and_precision_agree_with_scikit_learn():
    ranks, predicted, _ = draw(n=60)
    confusion = sklearn_metrics.confusion_matrix(ranks, predicted, labels=range(K))
    found = class_rates(confusion, CLASSES)
    for name in ("recall", "precision"):
        function = getattr(sklearn_metrics, f"{name}_score")
        known = function(ranks, predicted, labels=range(K), average=None, zero_division=np.nan)
        assert [row[name] for row in found] == pytest.approx(known.tolist())
    assert [row["class"] for row in found] == CLASSES
    assert all(
        row["recall_interval"][0] < row["recall"] < row["recall_interval"][1] for row in found
    )
    assert [row["samples"] for row in found] == np.bincount(ranks, minlength=K).tolist()
    assert class_rates([[0, 3], [0, 2]], ["a", "b"])[0]["precision"] is None


@pytest.mark.parametrize("seed", range(3))
def test_thresholds_agree_with_scikit_learn(seed):
    ranks, predicted, proba = draw(seed, n=80)
    found = threshold_rates(ranks, predicted, proba, CLASSES)
    assert [row["from"] for row in found] == CLASSES[1:]
    for k, row in enumerate(found, start=1):
        positive, predicted_positive = ranks >= k, predicted >= k
        recall, precision = sklearn_metrics.recall_score, sklearn_metrics.precision_score
        assert row["positives"] == positive.sum()
        assert row["sensitivity"] == pytest.approx(recall(positive, predicted_positive))
        assert row["specificity"] == pytest.approx(recall(~positive, ~predicted_positive))
        assert row["ppv"] == pytest.approx(precision(positive, predicted_positive))
        assert row["npv"] == pytest.approx(precision(~positive, ~predicted_positive))
        area = sklearn_metrics.roc_auc_score(positive, proba[:, k:].sum(axis=1))
        assert row["auc"] == pytest.approx(area)


def test_a_thinned_curve_keeps_its_ends_and_its_area():
    ranks, predicted, proba = draw(n=3000, noise=2.0)
    for row in threshold_rates(ranks, predicted, proba, CLASSES):
        fpr, tpr = row["curve"]["fpr"], row["curve"]["tpr"]
        assert len(fpr) == len(tpr) <= 100
        assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
        assert sklearn_metrics.auc(fpr, tpr) == pytest.approx(row["auc"], abs=0.01)
    names = [str(k) for k in range(52)]
    assert all(row["curve"] is None for row in threshold_rates(*draw(classes=52), names))


# ---- referral ----


def test_the_risk_coverage_curve_by_hand():
    # the most certain first: correct, wrong by one, correct, wrong by two
    ranks, predicted = np.array([0, 1, 2, 0]), np.array([0, 0, 2, 2])
    proba = np.array([[0.9, 0.1, 0.0], [0.7, 0.3, 0.0], [0.1, 0.3, 0.6], [0.4, 0.1, 0.5]])
    assert certainty(proba, predicted) == pytest.approx([0.9, 0.7, 0.6, 0.5])
    found = referral(ranks, predicted, proba)
    errors, maes = [0, 1 / 2, 1 / 3, 2 / 4], [0, 1 / 2, 1 / 3, 3 / 4]
    assert found["curve"]["coverage"] == [0.25, 0.5, 0.75, 1]
    assert found["curve"]["error"] == pytest.approx(errors, abs=1e-6)
    assert found["curve"]["mae"] == pytest.approx(maes, abs=1e-6)
    assert found["aurc"] == pytest.approx(np.mean(errors))
    assert found["aurc_mae"] == pytest.approx(np.mean(maes))
    assert (found["error"], found["mae"]) == (0.5, 0.75)
    assert (found["error_at_80"], found["mae_at_80"]) == (0.5, 0.75)  # 80 % of four are four


def test_the_order_of_equally_certain_samples_does_not_matter():
    proba = np.full((6, 3), 1 / 3)
    ranks = np.array([0, 0, 1, 1, 1, 2])
    found = referral(ranks, np.ones(6, int), proba)
    assert found["curve"]["error"] == pytest.approx([0.5] * 6)
    assert found == referral(ranks[::-1], np.ones(6, int), proba)


# ---- coverage of ranges ----


def test_chance_is_what_the_simulation_of_uniform_scores_shows():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(4000):
        scores = np.sort(rng.uniform(size=50))
        bound = scores[int(np.ceil(51 * 0.9)) - 1]
        covered.append((rng.uniform(size=80) <= bound).mean())
    low, high = expected_coverage(0.9, 50, 80)
    assert np.mean(np.array(covered) < low) == pytest.approx(0.01, abs=0.008)
    assert np.mean(np.array(covered) > high) == pytest.approx(0.01, abs=0.008)


# ---- bootstrap intervals ----


@pytest.mark.parametrize("name", ["accuracy", "mae", "macro_mae", "within_one", "qwk"])
def test_intervals_agree_with_a_plain_bootstrap(name):
    ranks, predicted, proba = draw(n=120)
    found = bootstrap_intervals(ranks, predicted, proba, draws=4000)[name]
    known = stats.bootstrap(
        (ranks, predicted),
        metrics.METRICS[name].function,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    width = known.high - known.low
    assert found == pytest.approx([known.low, known.high], abs=0.15 * width)


def test_the_interval_of_the_calibration_error_contains_it():
    # for a perfect model: resampling alone adds gaps, so plain percentiles are far above
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(K), size=300)
    ranks = (rng.random((300, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    low, high = bootstrap_intervals(ranks, proba.argmax(axis=1), proba)["ece"]
    assert 0 <= low < metrics.expected_calibration_error(ranks, proba) < high


def test_groups_are_resampled_as_units():
    # ten samples of each patient, correct or wrong together, are worth one
    right = np.random.default_rng(0).random(40) < 0.5
    proba = np.full((400, 2), 0.5)
    patients = np.repeat([f"patient {k}" for k in range(40)], 10).tolist()
    ranks, predicted = np.ones(400, int), np.repeat(right, 10).astype(int)
    alone = bootstrap_intervals(ranks[::10], predicted[::10], proba[::10], draws=4000)
    grouped = bootstrap_intervals(ranks, predicted, proba, groups=patients, draws=4000)
    ungrouped = bootstrap_intervals(ranks, predicted, proba, draws=4000)
    assert (grouped["over"], ungrouped["over"]) == ("groups", "samples")
    assert grouped["accuracy"] == pytest.approx(alone["accuracy"], abs=0.03)
    assert np.diff(ungrouped["accuracy"]) < 0.5 * np.diff(grouped["accuracy"])


def test_undefined_metrics_and_single_units_have_no_interval():
    found = bootstrap_intervals(*np.ones((2, 3), int), np.full((3, 2), 0.5), draws=50)
    assert (found["qwk"], found["accuracy"]) == (None, [1, 1])
    assert bootstrap_intervals(*draw(n=30), groups=["a"] * 30)["accuracy"] is None


# --- comparison of two models ---


def two_models(n=120, seed=0):
    ranks, first, first_proba = draw(seed=seed, n=n)
    rng = np.random.default_rng(seed + 1)
    second_proba = 0.5 * first_proba + 0.5 * rng.dirichlet(np.ones(K), n)
    return ranks, (first, first_proba), (second_proba.argmax(axis=1), second_proba)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_paired_difference_is_that_of_the_metrics_on_the_same_resamplings(grouped):
    ranks, first, second = two_models()
    groups = [i // 4 for i in range(len(ranks))] if grouped else None
    found = paired_differences(ranks, first, second, groups=groups, draws=40, seed=3)
    unit = np.arange(len(ranks)) if groups is None else np.array(groups)
    rng, count = np.random.default_rng(3), int(unit.max()) + 1
    assert found["units"] == count

    def compute(metric, index, model):
        predicted, proba = (each[index] for each in model)
        used = predicted if metric.kind == "ranks" else proba
        return metric.function(ranks[index], used)

    drawn = {name: [] for name in diagnostics.COMPARED}
    for _ in range(40):
        times = np.bincount(rng.integers(count, size=count), minlength=count)[unit]
        index = np.repeat(np.arange(len(ranks)), times)
        for name in drawn:
            before, after = (compute(metrics.METRICS[name], index, m) for m in (first, second))
            drawn[name].append(after - before)
    for name, differences in drawn.items():
        row, everything = found["metrics"][name], np.arange(len(ranks))
        assert row["first"] == pytest.approx(compute(metrics.METRICS[name], everything, first))
        assert row["second"] == pytest.approx(compute(metrics.METRICS[name], everything, second))
        assert row["difference"] == pytest.approx(row["second"] - row["first"])
        assert row["interval"] == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=1e-9)


def test_p_is_that_of_scipys_permutation_test():
    ranks, first, second = two_models(n=9)
    found = paired_differences(ranks, first, second, draws=5000)
    for name, losses in {
        "mae": [np.abs(predicted - ranks) for predicted, _ in (first, second)],
        "nll": [-np.log(proba[np.arange(9), ranks]) for _, proba in (first, second)],
    }.items():
        test = stats.permutation_test(
            losses[::-1],
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
        )
        assert found["metrics"][name]["p"] == pytest.approx(test.pvalue, abs=0.02)
