"""Values and properties of the metrics, against oracles that share no code with them."""

import doctest
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from layline import metrics
from layline.utils.validation import UserError

K = 5
SAMPLES = range(8)  # seeds

CORRELATIONS = {"spearman": metrics.spearman, "kendall": metrics.kendall}
OF_RANKS = {
    metric.function.__name__: metric.function
    for name, metric in metrics.METRICS.items()
    if metric.kind == "ranks" and name not in CORRELATIONS
}
OF_PROBA = {
    "ranked_probability_score": metrics.ranked_probability_score,
    "expected_calibration_error": metrics.expected_calibration_error,
    "log_loss": metrics.log_loss,
    "unimodality_rate": lambda y, proba, **options: metrics.unimodality_rate(proba, **options),
}


def draw(seed, n=40):
    """Ranks, predictions, probabilities and weights (some of them zero) of a random sample."""
    rng = np.random.default_rng(seed)
    y, pred = rng.integers(K, size=(2, n))
    return y, pred, rng.dirichlet(np.ones(K), size=n), rng.integers(4, size=n) * rng.random(n)


# ---- the formulas, written out ----


def class_errors(y, pred, weight):
    errors = []
    for k in range(max(y) + 1):
        members = [i for i in range(len(y)) if y[i] == k and weight[i] > 0]
        if members:
            total = sum(weight[i] for i in members)
            errors.append(sum(weight[i] * abs(int(y[i]) - int(pred[i])) for i in members) / total)
    return errors


def rps(y, proba, weight):
    score = 0.0
    for i, row in enumerate(proba):
        for k in range(len(row)):
            score += weight[i] * (sum(row[: k + 1]) - (1 if y[i] <= k else 0)) ** 2
    return score / (len(proba[0]) - 1) / sum(weight)


def ece(y, proba, weight, bins):
    error = 0.0
    for b in range(bins):
        members = [i for i, row in enumerate(proba) if b / bins < max(row) <= (b + 1) / bins]
        mass = sum(weight[i] for i in members)
        if mass > 0:
            right = sum(weight[i] * (list(proba[i]).index(max(proba[i])) == y[i]) for i in members)
            confidence = sum(weight[i] * max(proba[i]) for i in members)
            error += mass * abs(right / mass - confidence / mass)
    return error / sum(weight)


def is_unimodal(row):
    """Some class has a rise, or none, on every step before it and a fall, or none, after it."""
    for mode in range(len(row)):
        rises = all(row[k] <= row[k + 1] for k in range(mode))
        falls = all(row[k] >= row[k + 1] for k in range(mode, len(row) - 1))
        if rises and falls:
            return True
    return False


# ---- values ----


@pytest.mark.parametrize("seed", SAMPLES)
def test_metrics_agree_with_scikit_learn(seed):
    y, pred, proba, weight = draw(seed)
    kappa = partial(sklearn_metrics.cohen_kappa_score, labels=range(K), weights="quadratic")
    for ours, theirs in (
        (metrics.accuracy, sklearn_metrics.accuracy_score),
        (metrics.mean_absolute_error, sklearn_metrics.mean_absolute_error),
        (metrics.quadratic_weighted_kappa, kappa),
    ):
        expected = theirs(y, pred, sample_weight=weight)
        assert ours(y, pred, sample_weight=weight) == pytest.approx(expected)
    expected = sklearn_metrics.log_loss(y, proba, labels=range(K), sample_weight=weight)
    assert metrics.log_loss(y, proba, sample_weight=weight) == pytest.approx(expected)


@pytest.mark.parametrize("seed", SAMPLES)
def test_metrics_agree_with_the_formula_written_out(seed):
    y, pred, proba, w = draw(seed)
    options = {"sample_weight": w}
    within = sum(w[i] for i in range(len(y)) if abs(int(y[i]) - int(pred[i])) <= 2) / sum(w)
    assert metrics.accuracy_within(y, pred, tolerance=2, **options) == pytest.approx(within)
    errors = class_errors(y, pred, w)
    mean, worst = sum(errors) / len(errors), max(errors)
    assert metrics.macro_mean_absolute_error(y, pred, **options) == pytest.approx(mean)
    assert metrics.maximum_mean_absolute_error(y, pred, **options) == pytest.approx(worst)
    assert metrics.ranked_probability_score(y, proba, **options) == pytest.approx(rps(y, proba, w))
    for bins in (1, 4, 15):
        error = metrics.expected_calibration_error(y, proba, bins=bins, **options)
        assert error == pytest.approx(ece(y, proba, w, bins))
    share = sum(w[i] for i in range(len(y)) if is_unimodal(proba[i])) / sum(w)
    assert metrics.unimodality_rate(proba, **options) == pytest.approx(share)


def test_absent_classes_do_not_shorten_distances():
    # class 0: errors 0 and 4; class 1: error 0; classes 2 to 4 have no sample
    assert metrics.macro_mean_absolute_error([0, 0, 1], [0, 4, 1]) == 1.0
    # with unequal gaps, positions among the classes that occur would give another value:
    # observed (0 + 16 + 1)/3; by chance (0+25+16 + 1+16+9 + 25+0+1)/9
    y, pred = [0, 1, 5], [0, 5, 4]
    assert metrics.quadratic_weighted_kappa(y, pred) == pytest.approx(1 - (17 / 3) / (93 / 9))


@pytest.mark.parametrize(("y", "pred"), [([2, 2], [2, 2]), ([0], [0])])
def test_kappa_is_nan_only_where_chance_agrees_perfectly(y, pred):
    assert math.isnan(metrics.quadratic_weighted_kappa(y, pred))
    # samples of no weight cannot make it defined
    weight = [1] * len(y) + [0]
    assert math.isnan(metrics.quadratic_weighted_kappa([*y, 1], [*pred, 0], sample_weight=weight))


@pytest.mark.parametrize("correlation", CORRELATIONS.values(), ids=CORRELATIONS)
@pytest.mark.parametrize(("y", "pred"), [([1, 1], [0, 2]), ([0, 2], [1, 1]), ([1], [2])])
def test_correlation_with_a_constant_is_nan(correlation, y, pred):
    assert math.isnan(correlation(y, pred))


@pytest.mark.parametrize("bins", [7, 10, 15, 100])
def test_a_confidence_on_an_edge_stays_below_it(bins):
    for b in range(bins // 2 + 1, bins):
        edge = b / bins
        # overconfident by `edge` on the edge, underconfident just above: apart, they add up
        above = np.nextafter(edge, 1)
        proba = [[edge, 1 - edge], [above, 1 - above]]
        error = metrics.expected_calibration_error([1, 0], proba, bins=bins)
        assert error == pytest.approx((edge + (1 - above)) / 2)


def test_unimodal_is_up_then_down_with_plateaus():
    one_peak = [[0.4, 0.3, 0.2, 0.1], [0.25] * 4, [0.1, 0.4, 0.4, 0.1], [0.0, 0.0, 1.0, 0.0]]
    assert metrics.unimodality_rate(one_peak) == 1
    # a plateau does not hide a second rise
    several = [[0.4, 0.1, 0.1, 0.4], [0.3, 0.2, 0.3, 0.2], [0.0, 0.5, 0.0, 0.5]]
    assert metrics.unimodality_rate(several) == 0


def test_small_unsigned_integers_do_not_wrap_around():
    y, pred = np.array([0, 200], dtype=np.uint8), np.array([1, 0], dtype=np.uint8)
    assert metrics.mean_absolute_error(y, pred) == 201 / 2


# ---- properties ----


def evaluate(y, pred, proba, weight=None):
    """Every metric of the module, by name."""
    options = {} if weight is None else {"sample_weight": weight}
    values = {name: metric(y, pred, **options) for name, metric in OF_RANKS.items()}
    values |= {name: metric(y, proba, **options) for name, metric in OF_PROBA.items()}
    if weight is None:
        values |= {name: metric(y, pred) for name, metric in CORRELATIONS.items()}
    return values


def close(values):
    return pytest.approx(values, abs=1e-12, nan_ok=True)


@st.composite
def weighted_samples(draw):
    """Ranks, predictions, probabilities and small whole weights, not all zero."""
    n = draw(st.integers(1, 12))
    num_classes = draw(st.integers(2, 6))
    ranks = st.lists(st.integers(0, num_classes - 1), min_size=n, max_size=n)
    weights = st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any)
    y, pred, weight = draw(ranks), draw(ranks), draw(weights)
    seed = draw(st.integers(0, 2**32 - 1))
    proba = np.random.default_rng(seed).dirichlet(np.ones(num_classes), size=n)
    return np.array(y), np.array(pred), proba, np.array(weight)


def test_the_properties_cover_every_public_metric():
    assert set(metrics.__all__) == {"METRICS", "Metric", *OF_RANKS, *CORRELATIONS, *OF_PROBA}
    assert all(name == metric.name for name, metric in metrics.METRICS.items())


@pytest.mark.parametrize("metric", metrics.METRICS.values(), ids=metrics.METRICS)
def test_the_table_of_metrics_has_the_direction_and_the_decoding(metric):
    truth = np.arange(K)
    perfect, wrong = np.eye(K)[truth], np.eye(K)[truth[::-1]] * 0.6 + np.eye(K)[truth] * 0.4
    arguments = [perfect, wrong] if metric.kind == "probabilities" else [truth, truth[::-1]]
    best, worst = (metric.function(truth, each) for each in arguments)
    assert metric.sign * best < metric.sign * worst
    assert metric.decode in (None, "mode", "median", "mean")
    assert (metric.kind == "probabilities") == (metric.decode is None)


@given(weighted_samples())
def test_a_weight_is_a_number_of_repetitions(sample):
    y, pred, proba, weight = sample
    repeated = [np.repeat(array, weight, axis=0) for array in (y, pred, proba)]
    assert evaluate(y, pred, proba, weight) == close(evaluate(*repeated, np.ones(weight.sum())))


@given(weighted_samples(), st.sampled_from([1e-200, 0.1, 3.0, 1e200]))
def test_only_ratios_of_weights_matter(sample, unit):
    y, pred, proba, weight = sample
    assert evaluate(y, pred, proba, unit * weight) == close(evaluate(y, pred, proba, weight))
    unweighted = evaluate(y, pred, proba)
    weighted = evaluate(y, pred, proba, np.full(len(y), unit))
    assert weighted == close({name: unweighted[name] for name in weighted})


@given(weighted_samples(), st.randoms(use_true_random=False))
def test_neither_the_order_of_samples_nor_the_direction_of_the_scale_matters(sample, random):
    y, pred, proba, weight = sample
    order, last = random.sample(range(len(y)), len(y)), proba.shape[1] - 1
    shuffled = [array[order] for array in sample]
    for same in (shuffled, [last - y, last - pred, proba[:, ::-1], weight]):
        assert evaluate(*same) == close(evaluate(*sample))
        assert evaluate(*same[:3]) == close(evaluate(*sample[:3]))


@given(weighted_samples())
def test_every_metric_stays_in_its_range(sample):
    y, pred, proba, weight = sample
    widest = proba.shape[1] - 1
    for values in (evaluate(y, pred, proba), evaluate(y, pred, proba, weight)):
        for name, value in values.items():
            assert type(value) is float
            low = -1 if name in {"quadratic_weighted_kappa", *CORRELATIONS} else 0
            high = widest if "absolute_error" in name else 800 if name == "log_loss" else 1
            assert math.isnan(value) or low - 1e-12 <= value <= high + 1e-12
        assert values["accuracy"] <= values["accuracy_within"]
        macro, worst = (values[f"{kind}_mean_absolute_error"] for kind in ("macro", "maximum"))
        assert macro <= worst + 1e-12
        assert values["mean_absolute_error"] <= worst + 1e-12


@given(weighted_samples())
def test_certain_probabilities_score_like_their_ranks(sample):
    y, pred, proba, weight = sample
    certain, options = np.eye(proba.shape[1])[pred], {"sample_weight": weight}
    mae = metrics.mean_absolute_error(y, pred, **options)
    rps = metrics.ranked_probability_score(y, certain, **options)
    assert rps == pytest.approx(mae / (proba.shape[1] - 1))
    # a confidence of one is off by the share of errors
    wrong = 1 - metrics.accuracy(y, pred, **options)
    assert metrics.expected_calibration_error(y, certain, **options) == pytest.approx(wrong)
    assert metrics.unimodality_rate(certain) == 1


# ---- what may be passed ----


@pytest.mark.parametrize(
    "convert",
    [list, np.float32, np.int8, torch.as_tensor, lambda x: torch.as_tensor(x).float()],
    ids=["list", "float32", "int8", "tensor", "float tensor"],
)
def test_ranks_may_be_lists_whole_floats_or_tensors(convert):
    y, pred, proba, _ = draw(seed=0)
    assert evaluate(convert(y), convert(pred), proba) == evaluate(y, pred, proba)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_probabilities_and_weights_may_be_tensors_that_require_gradients(dtype):
    y, pred, proba, weight = draw(seed=1)
    proba = np.sort(proba, axis=1)  # strictly unimodal, so that rounding cannot change it
    tensor = torch.as_tensor(proba).to(dtype)
    if dtype == torch.bfloat16:  # rows must sum to one up to 1e-3
        tensor = torch.eye(K, dtype=dtype)[torch.as_tensor(pred)]
    expected = evaluate(y, pred, tensor.double().numpy(), weight)
    tensors = [torch.as_tensor(each) for each in (y, pred)]
    weights = torch.as_tensor(weight).requires_grad_()
    assert evaluate(*tensors, tensor.requires_grad_(), weights) == pytest.approx(expected)


def test_the_examples_in_the_docstrings_run():
    result = doctest.testmod(metrics)
    assert result.failed == 0
    assert result.attempted >= len(metrics.__all__) - 2


def test_the_log_loss_of_a_probability_of_zero_is_finite():
    assert 700 < metrics.log_loss([1], [[1.0, 0.0]]) < 800


# ---- wrong input ----

RANKS = [0, 1, 2]
PROBA = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]
BAD_RANKS = [
    ([], "at least one sample, got 0"),
    ([[0, 1, 2]], r"1-D, got shape \(1, 3\)"),
    ([0, 1.5, 2], "got 1.5 at position 1"),
    ([0, 1, float("nan")], "got nan at position 2"),
    ([float("inf"), 1, 2], "got inf at position 0"),
    ([0, -1, 2], "got -1 at position 1"),
    (["low", "mid", "top"], "contain numbers, got dtype <U3"),
]
BAD_PROBA = [
    ([0.2, 0.3, 0.5], r"2-D, got shape \(3,\)"),
    ([[1.0], [1.0], [1.0]], "a column for each class, got 1"),
    ([*PROBA[:2], [0.7, -0.2, 0.5]], "probabilities, .* at position 2"),
    ([PROBA[0], [0.5, np.nan, 0.5], PROBA[2]], "probabilities, .* at position 1"),
    ([[np.inf, 0.0, 0.0], *PROBA[1:]], "probabilities, .* at position 0"),
    ([*PROBA[:2], [0.25, 0.25, 0.25]], "probabilities, .* at position 2"),
    ([[20.0, 30.0, 50.0]] * 3, "not logits or percentages"),
]
BAD_WEIGHTS = [
    ([1, 1], "3 samples, like the other arguments, got 2"),
    ([1, -0.5, 1], "got -0.5 at position 1"),
    ([1, 1, np.nan], "got nan at position 2"),
    ([0, 0, 0], "got only zeros"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_RANKS)
def test_bad_ranks_are_named(bad, message):
    for metric in (*OF_RANKS.values(), *CORRELATIONS.values()):
        with pytest.raises(UserError, match=f"^y_true .*{message}"):
            metric(bad, RANKS)
        with pytest.raises(UserError, match=f"^y_pred .*({message}|3 samples)"):
            metric(RANKS, bad)
    with pytest.raises(UserError, match=f"^y_true .*({message}|3 samples)"):
        metrics.ranked_probability_score(bad, PROBA)


@pytest.mark.parametrize(("bad", "message"), BAD_PROBA)
def test_bad_probabilities_are_named(bad, message):
    for metric in OF_PROBA.values():
        with pytest.raises(UserError, match=f"^proba .*{message}"):
            metric(RANKS, bad)


@pytest.mark.parametrize(("bad", "message"), BAD_WEIGHTS)
def test_bad_weights_are_named(bad, message):
    for metric in (*OF_RANKS.values(), *OF_PROBA.values()):
        with pytest.raises(UserError, match=f"^sample_weight .*{message}"):
            metric(RANKS, RANKS if metric in OF_RANKS.values() else PROBA, sample_weight=bad)
