"""Intervals, rates, referral and alarms, against scikit-learn, scipy and examples by hand."""

import doctest
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from layline import metrics
from layline.evaluation.diagnostics import (
    alarms,
    bootstrap_intervals,
    cases_to_review,
    certainty,
    class_rates,
    diagnose,
    paired_differences,
    rates,
    referral,
    resampling,
    selective_prediction,
    threshold_rates,
    wilson_interval,
)

K = 5
CLASSES = ["none", "mild", "moderate", "severe", "worst"]
METRICS = {
    "accuracy": metrics.accuracy,
    "mae": metrics.mean_absolute_error,
    "macro_mae": metrics.macro_mean_absolute_error,
    "within_one": metrics.accuracy_within,
    "qwk": metrics.quadratic_weighted_kappa,
}


def draw(seed=0, n=200, classes=K, noise=1.0):
    """Ranks, what a fair model takes them for, and its probabilities."""
    rng = np.random.default_rng(seed)
    ranks = rng.integers(classes, size=n)
    seen = ranks + noise * rng.normal(size=n)
    proba = np.exp(-((np.arange(classes) - seen[:, None]) ** 2))
    proba /= proba.sum(axis=1, keepdims=True)
    return ranks, proba.argmax(axis=1), proba


@pytest.mark.parametrize("module", [rates, selective_prediction])
def test_examples_in_the_docstrings(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


# ---- everything together ----


def test_all_of_it_is_json_without_nan():
    found = diagnose(*draw(), CLASSES, draws=20)
    assert set(found) == {"intervals", "by_class", "thresholds", "referral"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_seed_gives_the_same_again():
    assert diagnose(*draw(), CLASSES, draws=20) == diagnose(*draw(), CLASSES, draws=20)
    assert diagnose(*draw(), CLASSES, draws=20, seed=1) != diagnose(*draw(), CLASSES, draws=20)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_single_sample_has_nothing_to_be_sure_of(classes):
    proba = np.full((1, classes), 1 / classes)
    found = diagnose([0], [1], proba, CLASSES[:classes], draws=10)
    assert found["intervals"]["mae"] is None
    assert found["by_class"][1]["recall"] is None
    assert found["by_class"][1]["recall_interval"] is None
    assert found["thresholds"][0]["sensitivity"] is None
    assert found["thresholds"][0]["auc"] is None
    assert found["referral"]["aurc"] == 1
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": [0, 1]}, r"ranks must be of length 3, got the shape \(2,\)"),
        ({"predicted": [0, 1, 9]}, r"predicted must be in 0…1, got 9: proba has no such column"),
        ({"ranks": [0, -1, 1]}, r"ranks must be in 0…1, got -1"),
        ({"proba": [0.5, 0.5, 0.5]}, r"proba must be \(n, K\), got the shape \(3,\)"),
        ({"classes": ["a"]}, "classes must be 2, got 1"),
        ({"groups": ["a"]}, "groups must be 3, got 1: one for each sample"),
        ({"level": 95}, "level must be between 0 and 1, got 95"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
    ],
)
def test_what_does_not_belong_together_is_refused(change, message):
    usual = {"ranks": [0, 1, 1], "predicted": [0, 1, 0], "proba": [[0.5, 0.5]] * 3}
    with pytest.raises(ValueError, match=message):
        diagnose(**usual | {"classes": ["a", "b"]} | change)


# ---- intervals of metrics ----


@pytest.mark.parametrize("name", METRICS)
def test_intervals_are_those_of_a_plain_bootstrap(name):
    ranks, predicted, proba = draw(n=120)
    found = bootstrap_intervals(ranks, predicted, proba, draws=4000)[name]
    known = stats.bootstrap(
        (ranks, predicted),
        METRICS[name],
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    width = known.high - known.low
    assert found == pytest.approx([known.low, known.high], abs=0.15 * width)


def test_the_interval_of_the_score_is_that_of_a_mean():
    ranks, predicted, proba = draw(n=400)
    found = bootstrap_intervals(ranks, predicted, proba, draws=4000)["rps"]
    scores = [metrics.ranked_probability_score([y], [p]) for y, p in zip(ranks, proba, strict=True)]
    mean, reach = np.mean(scores), 1.96 * np.std(scores) / np.sqrt(400)
    assert found == pytest.approx([mean - reach, mean + reach], abs=0.2 * reach)


def test_the_interval_of_the_calibration_error_is_around_it():
    # of a perfect model: resampling alone opens gaps, so plain percentiles lie far above
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(K), size=300)
    ranks = (rng.random((300, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    low, high = bootstrap_intervals(ranks, proba.argmax(axis=1), proba)["ece"]
    assert 0 <= low < metrics.expected_calibration_error(ranks, proba) < high


def test_an_interval_holds_the_true_value_as_often_as_it_says():
    held = []
    for seed in range(100):
        right = np.random.default_rng(seed).random(100) < 0.7
        proba = np.full((100, 2), 0.5)
        low, high = bootstrap_intervals(
            np.ones(100), right.astype(int), proba, draws=200, level=0.8
        )["accuracy"]
        held.append(low <= 0.7 <= high)
    assert 0.7 < np.mean(held) < 0.9


def test_groups_are_drawn_whole():
    # ten samples of each patient that are right or wrong together are worth one
    rng = np.random.default_rng(0)
    right = rng.random(40) < 0.5
    proba = np.full((400, 2), 0.5)
    patients = np.repeat([f"patient {k}" for k in range(40)], 10).tolist()
    ranks, predicted = np.ones(400), np.repeat(right, 10).astype(int)
    alone = bootstrap_intervals(ranks[::10], predicted[::10], proba[::10], draws=4000)
    together = bootstrap_intervals(ranks, predicted, proba, groups=patients, draws=4000)
    apart = bootstrap_intervals(ranks, predicted, proba, draws=4000)
    assert (together["over"], apart["over"]) == ("groups", "samples")
    assert together["accuracy"] == pytest.approx(alone["accuracy"], abs=0.03)
    assert np.diff(apart["accuracy"]) < 0.5 * np.diff(together["accuracy"])


def test_one_group_tells_nothing_of_others():
    found = bootstrap_intervals(*draw(n=30), groups=["a"] * 30)
    assert found["accuracy"] is None


def test_where_a_metric_is_not_defined_there_is_no_interval():
    found = bootstrap_intervals([1, 1, 1], [1, 1, 1], np.full((3, 2), 0.5), draws=50)
    assert found["qwk"] is None
    assert found["accuracy"] == [1, 1]


def test_many_samples_are_resampled_in_pieces(monkeypatch):
    whole = bootstrap_intervals(*draw(), draws=50)
    monkeypatch.setattr(resampling, "_AT_ONCE", 500)
    assert bootstrap_intervals(*draw(), draws=50) == whole


# ---- shares ----


@settings(max_examples=30)
@given(st.integers(1, 400), st.data())
def test_wilson_is_that_of_scipy_and_holds_the_share(total, data):
    hits = data.draw(st.integers(0, total))
    level = data.draw(st.sampled_from([0.5, 0.9, 0.95, 0.99]))
    low, high = wilson_interval(hits, total, level)
    known = stats.binomtest(hits, total).proportion_ci(level, method="wilson")
    assert (low, high) == pytest.approx((known.low, known.high), abs=1e-12)
    assert 0 <= low <= hits / total <= high <= 1


def test_of_nothing_there_is_no_share():
    assert wilson_interval(0, 0) is None


@pytest.mark.parametrize("seed", range(5))
def test_recall_and_precision_are_those_of_scikit_learn(seed):
    ranks, predicted, _ = draw(seed, n=60)
    confusion = sklearn_metrics.confusion_matrix(ranks, predicted, labels=range(K))
    found = class_rates(confusion, CLASSES)
    for name, function in (
        ("recall", sklearn_metrics.recall_score),
        ("precision", sklearn_metrics.precision_score),
    ):
        known = function(ranks, predicted, labels=range(K), average=None, zero_division=np.nan)
        assert [row[name] for row in found] == pytest.approx(known.tolist())
    assert [row["class"] for row in found] == CLASSES
    assert [row["samples"] for row in found] == np.bincount(ranks, minlength=K).tolist()
    assert [row["predicted"] for row in found] == np.bincount(predicted, minlength=K).tolist()
    known = stats.binomtest(int(confusion[2, 2]), int(confusion[2].sum()))
    assert found[2]["recall_interval"] == pytest.approx([*known.proportion_ci(method="wilson")])


@pytest.mark.parametrize("seed", range(3))
def test_thresholds_are_those_of_scikit_learn(seed):
    ranks, predicted, proba = draw(seed, n=80)
    found = threshold_rates(ranks, predicted, proba, CLASSES)
    assert [row["from"] for row in found] == CLASSES[1:]
    for k, row in enumerate(found, start=1):
        is_so, is_said = ranks >= k, predicted >= k
        recall, precision = sklearn_metrics.recall_score, sklearn_metrics.precision_score
        assert row["positives"] == is_so.sum()
        assert row["sensitivity"] == pytest.approx(recall(is_so, is_said))
        assert row["specificity"] == pytest.approx(recall(~is_so, ~is_said))
        assert row["ppv"] == pytest.approx(precision(is_so, is_said))
        assert row["npv"] == pytest.approx(precision(~is_so, ~is_said))
        area = sklearn_metrics.roc_auc_score(is_so, proba[:, k:].sum(axis=1))
        assert row["auc"] == pytest.approx(area)
        low, high = row["ppv_interval"]
        assert low < row["ppv"] < high or row["ppv"] in (0, 1)


def test_a_thinned_curve_keeps_its_ends_and_its_area():
    ranks, predicted, proba = draw(n=3000, noise=2.0)
    for row in threshold_rates(ranks, predicted, proba, CLASSES):
        fpr, tpr = row["curve"]["fpr"], row["curve"]["tpr"]
        assert len(fpr) == len(tpr) <= 100
        assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
        assert np.all(np.diff(fpr) >= 0)
        assert sklearn_metrics.auc(fpr, tpr) == pytest.approx(row["auc"], abs=0.01)


def test_of_many_thresholds_no_curves_are_kept():
    names = [str(k) for k in range(52)]
    assert all(row["curve"] is None for row in threshold_rates(*draw(classes=52), names))
    assert any(row["curve"] is not None for row in threshold_rates(*draw(classes=51), names[:51]))


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_the_higher_the_grade_the_fewer_are_positive_and_said_to_be(seed):
    ranks, predicted, proba = draw(seed, n=25)
    found = threshold_rates(ranks, predicted, proba, CLASSES)
    positives = [row["positives"] for row in found]
    assert positives == sorted(positives, reverse=True)
    # of those in the highest class, fewer are taken for at least k the higher k is
    top = ranks == K - 1
    if top.any():
        of_top = threshold_rates(ranks[top], predicted[top], proba[top], CLASSES)
        sensitivities = [row["sensitivity"] for row in of_top]
        assert sensitivities == sorted(sensitivities, reverse=True)


# ---- referral ----

# the most certain first: right, wrong by one, right, wrong by two
BY_HAND = (
    [0, 1, 2, 0],
    [0, 0, 2, 2],
    [[0.9, 0.1, 0.0], [0.7, 0.3, 0.0], [0.1, 0.3, 0.6], [0.4, 0.1, 0.5]],
)


def test_certainty_is_the_probability_of_what_is_predicted():
    assert certainty(BY_HAND[2], BY_HAND[1]) == pytest.approx([0.9, 0.7, 0.6, 0.5])
    assert certainty(np.eye(4), range(4)).tolist() == [1] * 4
    assert certainty([[0, 0, 0, 1.0]], [0]).tolist() == [0]


def test_the_curve_by_hand():
    found = referral(*BY_HAND)
    errors, maes = [0, 1 / 2, 1 / 3, 2 / 4], [0, 1 / 2, 1 / 3, 3 / 4]
    assert found["curve"]["coverage"] == [0.25, 0.5, 0.75, 1]
    assert found["curve"]["error"] == pytest.approx(errors, abs=1e-6)
    assert found["curve"]["mae"] == pytest.approx(maes, abs=1e-6)
    assert found["aurc"] == pytest.approx(np.mean(errors))
    assert found["aurc_mae"] == pytest.approx(np.mean(maes))
    assert (found["error"], found["mae"]) == (0.5, 0.75)
    assert (found["error_at_80"], found["mae_at_80"]) == (0.5, 0.75)  # 80 % of four are four


@pytest.mark.parametrize(
    ("wanted", "cases"), [(1, 0), (0.5, 0), (0.49, 1), (0.34, 1), (0.3, 3), (0, 3)]
)
def test_cases_to_review_by_hand(wanted, cases):
    assert cases_to_review(*BY_HAND, wanted) == cases


def test_who_is_wrong_on_the_surest_case_sees_all_of_them():
    assert cases_to_review([1, 0], [0, 0], [[1.0, 0.0], [0.6, 0.4]], 0.2) == 2
    with pytest.raises(ValueError, match=r"wanted_error must be in 0…1, got 10: it is a share"):
        cases_to_review(*BY_HAND, 10)


def test_the_order_of_equally_certain_samples_does_not_matter():
    proba = np.full((6, 3), 1 / 3)
    ranks = np.array([0, 0, 1, 1, 1, 2])
    found = referral(ranks, np.ones(6), proba)
    assert found["curve"]["error"] == pytest.approx([0.5] * 6)
    assert found == referral(ranks[::-1], np.ones(6), proba)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 60), st.floats(0, 1))
def test_the_curve_ends_at_the_overall_error_and_says_how_many_to_see(seed, n, wanted):
    ranks, predicted, proba = draw(seed, n=n)
    found = referral(ranks, predicted, proba)
    assert found["error"] == pytest.approx(1 - metrics.accuracy(ranks, predicted))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(ranks, predicted))
    assert found["curve"]["coverage"][-1] == 1
    assert found["curve"]["error"][-1] == pytest.approx(found["error"], abs=1e-6)
    cases = cases_to_review(ranks, predicted, proba, wanted)
    rest = np.argsort(-certainty(proba, predicted), kind="stable")[: n - cases]
    assert (ranks != predicted)[rest].sum() <= wanted * len(rest) + 1e-9


def test_a_long_curve_has_a_hundred_points():
    found = referral(*draw(n=1234))["curve"]
    assert {len(values) for values in found.values()} == {100}
    assert found["coverage"][0] == pytest.approx(1 / 1234, abs=1e-6)


# ---- alarms ----


def told(confusion, counts=None, **numbers):
    """The alarms about a confusion matrix, with enough samples everywhere unless told."""
    confusion = np.array(confusion)
    classes = CLASSES[: len(confusion)]
    enough = dict.fromkeys(("train", "validation", "test"), [100] * len(classes))
    return alarms({"confusion": confusion.tolist(), **numbers}, counts or enough, classes)


FINE = np.diag([30, 30, 30])


def test_nothing_wrong_is_nothing_said():
    assert told(FINE) == []
    assert told(FINE, mae=0.3, samples=90, intervals={"mae": [0.2, 0.4]}) == []


def test_a_class_that_is_never_predicted():
    (said,) = told([[30, 0, 0], [12, 0, 0], [0, 0, 30]])
    assert said.startswith("Never predicted: “mild” (12 samples).")
    assert "--class-weight balanced" in said
    assert told([[30, 0, 0], [0, 0, 0], [0, 0, 30]]) == []  # nothing was there to be found


def test_copies_of_test_images_in_training_and_contradicting_labels():
    facts = {"with_copy_in_training": {"validation": 3, "test": 12}, "contradicting": 2}
    leaked, contradicting = told(FINE, copies=facts)
    assert leaked.startswith("Of 90 test images 12 have a copy in training: the numbers are too")
    assert contradicting.startswith("Copies of one image with different labels: 2 groups.")
    kept = {"with_copy_in_training": {"validation": 3, "test": 0}, "contradicting": 0}
    assert told(FINE, copies=kept) == []


def test_of_many_classes_some_are_named():
    confusion = np.zeros((12, 12), dtype=int)
    confusion[:, 0] = 30
    classes = [f"c{k}" for k in range(12)]
    found = alarms({"confusion": confusion.tolist()}, {"test": [30] * 12}, classes)
    assert "“c5” (30 samples) and 6 more classes" in found[0]
    assert "“c6”" not in found[0]


def test_the_part_that_was_measured_is_named():
    for part, named in {"validation": "validation samples", "all": "samples"}.items():
        (said,) = alarms({"confusion": [[5, 0], [0, 30]], "part": part}, {}, ["low", "high"])
        assert said.startswith(f"Fewer than 20 {named}: “low” (5).")


def test_ends_that_are_confused():
    (said,) = told([[30, 0, 2], [0, 30, 0], [1, 0, 30]])
    assert "2 of 32 samples of “none” taken for “moderate”" in said
    assert "1 of 31 samples of “moderate” taken for “none”" in said
    (said,) = told([[30, 0, 2], [0, 30, 0], [0, 0, 30]])
    assert "taken for “none”" not in said
    assert told([[30, 5], [5, 30]]) == []  # two classes are neighbours


@pytest.mark.parametrize(
    ("validation", "samples", "much"),
    [
        (0.30, 1000, True),
        (0.42, 1000, False),  # a fifth is not reached
        (0.30, 10, False),  # ten samples may have been lucky
        (0.60, 1000, False),
    ],
)
def test_validation_that_is_much_better(validation, samples, much):
    found = told(
        FINE,
        mae=0.5,
        samples=90,
        intervals={"mae": [0.42, 0.58]},
        validation={"mae": validation, "samples": samples},
    )
    assert len(found) == much
    if much:
        assert "0.500 after 0.300, 67% higher" in found[0]


def test_a_validation_without_errors():
    intervals = {"mae": [0.42, 0.58]}
    (said,) = told(FINE, mae=0.5, intervals=intervals, validation={"mae": 0.0, "samples": 90})
    assert "0.500 after 0.000" in said


@pytest.mark.parametrize(("measured", "fails"), [(0.85, True), (0.9, False), (0.99, False)])
def test_coverage_that_fails(measured, fails):
    ranges = [
        {"coverage": share, "measured": held, "expected": [share - 0.03, share + 0.03]}
        for share, held in ((0.8, 0.8), (0.9, measured))
    ]
    found = told(FINE, ranges=ranges)
    assert len(found) == fails
    if fails:
        assert "too rarely: 85.0% at 90% (by chance not below 87.0%)" in found[0]
        assert "layline calibrate" in found[0]


def test_few_samples_in_a_class():
    counts = {"train": [19, 20, 500], "validation": [1, 1, 1], "test": [20, 3, 1]}
    train, test = told(FINE, counts)
    assert train.startswith("Fewer than 20 training samples: “none” (19). ")
    assert test.startswith("Fewer than 20 test samples: “mild” (3), “moderate” (1). ")


def test_without_counts_the_test_samples_are_those_of_the_confusion_matrix():
    (said,) = alarms({"confusion": np.diag([30, 5]).tolist()}, {}, ["a", "b"])
    assert said.startswith("Fewer than 20 test samples: “b” (5).")


# --- two models on the same samples


def two_models(n=120, seed=0):
    ranks, first, first_proba = draw(seed=seed, n=n)
    rng = np.random.default_rng(seed + 1)
    second_proba = 0.5 * first_proba + 0.5 * rng.dirichlet(np.ones(K), n)
    return ranks, (first, first_proba), (second_proba.argmax(axis=1), second_proba)


PAIRED = {
    "accuracy": lambda y, said, proba: metrics.accuracy(y, said),
    "mae": lambda y, said, proba: metrics.mean_absolute_error(y, said),
    "macro_mae": lambda y, said, proba: metrics.macro_mean_absolute_error(y, said),
    "qwk": lambda y, said, proba: metrics.quadratic_weighted_kappa(y, said),
    "rps": lambda y, said, proba: metrics.ranked_probability_score(y, proba),
    "nll": lambda y, said, proba: metrics.log_loss(y, proba),
}


@pytest.mark.parametrize("grouped", [False, True])
def test_a_paired_difference_is_that_of_the_metrics_on_the_same_draws(grouped):
    ranks, first, second = two_models()
    groups = [i // 4 for i in range(len(ranks))] if grouped else None
    found = paired_differences(ranks, first, second, groups=groups, draws=40, seed=3)
    unit = np.arange(len(ranks)) if groups is None else np.array(groups)
    rng, count = np.random.default_rng(3), int(unit.max()) + 1
    assert found["units"] == count
    drawn = {name: [] for name in PAIRED}
    for _ in range(40):
        times = np.bincount(rng.integers(count, size=count), minlength=count)[unit]
        index = np.repeat(np.arange(len(ranks)), times)
        for name, metric in PAIRED.items():
            values = [metric(ranks[index], *(each[index] for each in m)) for m in (first, second)]
            drawn[name].append(values[1] - values[0])
    for name, metric in PAIRED.items():
        row = found["metrics"][name]
        assert row["first"] == pytest.approx(metric(ranks, *first))
        assert row["second"] == pytest.approx(metric(ranks, *second))
        assert row["difference"] == pytest.approx(row["second"] - row["first"])
        assert row["interval"] == pytest.approx(np.quantile(drawn[name], [0.025, 0.975]), abs=1e-9)


def test_p_is_that_of_scipys_permutation_test():
    ranks, first, second = two_models(n=9)
    found = paired_differences(ranks, first, second)
    assert found["exact"]
    for name, losses in {
        "mae": [np.abs(said - ranks) for said, _ in (first, second)],
        "accuracy": [(said == ranks).astype(float) for said, _ in (first, second)],
        "nll": [-np.log(proba[np.arange(9), ranks]) for _, proba in (first, second)],
    }.items():
        test = stats.permutation_test(
            losses[::-1],
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
        )
        assert found["metrics"][name]["p"] == pytest.approx(test.pvalue)


def test_a_model_does_not_differ_from_itself():
    ranks, first, _ = two_models()
    for row in paired_differences(ranks, first, first, draws=50)["metrics"].values():
        assert (row["difference"], row["interval"], row["p"]) == (0.0, [0.0, 0.0], 1.0)


def test_pairing_makes_an_interval_narrower_than_two_of_their_own():
    ranks, first, second = two_models(n=400)
    paired = paired_differences(ranks, first, second, draws=300)["metrics"]["mae"]["interval"]
    alone = [bootstrap_intervals(ranks, *each, draws=300)["mae"] for each in (first, second)]
    widths = [high - low for low, high in alone]
    assert paired[1] - paired[0] < np.hypot(*widths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"groups": ["a"]}, "groups must be 9, got 1"),
    ],
)
def test_wrong_arguments_of_a_comparison_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        paired_differences(*two_models(n=9), **changes)


def test_worse_elsewhere_than_chance_explains_is_an_alarm():
    confusion = [[30, 0], [0, 30]]
    numbers = {"confusion": confusion, "mae": 0.8, "intervals": {"mae": [0.7, 0.9]}}
    before = {"mae": 0.4, "interval": [0.3, 0.5], "samples": 100}
    (text,) = alarms(numbers | {"run_test": before}, {}, ["a", "b"])
    assert text.startswith("Worse here than where it was trained: the MAE is 0.800 after 0.400")
    assert alarms(numbers | {"run_test": before | {"mae": 0.75}}, {}, ["a", "b"]) == []
