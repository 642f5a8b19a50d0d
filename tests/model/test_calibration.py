"""Temperature and ranges, against scikit-learn and crepes, and what must hold for any model."""

import numpy as np
import pytest
import torch
from crepes import ConformalClassifier
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from layline import metrics
from layline.model.calibration import (
    Calibration,
    apply_temperature,
    fit_temperature,
    nonconformity_scores,
    samples_needed,
)

SCORES = st.floats(-6, 6)


def draw(count=400, num_classes=5, seed=0, sharpness=1.0):
    """Log probabilities, and ranks that follow them if the sharpness is one."""
    rng = np.random.default_rng(seed)
    scores = 2 * rng.normal(size=(count, num_classes))
    truth = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    ranks = np.array([rng.choice(num_classes, p=row) for row in truth])
    log_probs = torch.from_numpy(sharpness * scores).log_softmax(dim=1)
    return log_probs, torch.from_numpy(ranks)


def calibrate(count=200, num_classes=5, seed=0):
    return Calibration.fit(None, draw(count, num_classes, seed))


class Frozen(ClassifierMixin, BaseEstimator):
    """Returns X as its scores."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 3.0])
def test_the_temperature_is_that_of_scikit_learn(sharpness):
    log_probs, ranks = draw(sharpness=sharpness)
    X, y = log_probs.numpy(), ranks.numpy()
    oracle = CalibratedClassifierCV(FrozenEstimator(Frozen().fit(X, y)), method="temperature")
    expected = oracle.fit(X, y).predict_proba(X)
    found = apply_temperature(log_probs, fit_temperature(log_probs, ranks)).exp().numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_a_probability_of_zero_for_the_truth_is_no_obstacle():
    log_probs, ranks = draw()
    log_probs[0] = -torch.inf
    log_probs[0, (ranks[0] + 1) % 5] = 0
    assert 1 < fit_temperature(log_probs, ranks) < 10


@given(hnp.arrays(np.float64, (4, 6), elements=SCORES), st.floats(0.1, 10))
def test_a_temperature_keeps_the_mode_and_the_single_peak(scores, temperature):
    before = torch.from_numpy(scores).log_softmax(dim=1)
    after = apply_temperature(before, temperature)
    by_rank = after.gather(1, before.argsort(dim=1))
    assert (by_rank.diff(dim=1) >= -1e-12).all()
    one_peak = torch.from_numpy(np.sort(scores, axis=1)).log_softmax(dim=1)
    assert metrics.unimodality_rate(apply_temperature(one_peak, temperature).exp()) == 1


@given(hnp.arrays(np.float64, (3, 7), elements=SCORES))
def test_the_nonconformity_score_is_the_ranked_probability_score(scores):
    proba = torch.from_numpy(scores).softmax(dim=1).numpy()
    found = nonconformity_scores(proba)
    for k in range(7):
        for i in range(3):
            expected = 6 * metrics.ranked_probability_score([k], proba[[i]])
            assert found[i, k] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_ranges_contain_the_ranks_with_the_p_values_of_crepes(by_class, coverage):
    calibration = calibrate()
    proba = draw(30, seed=1)[0].exp().numpy()
    scores = nonconformity_scores(proba)
    if by_class:
        oracle = ConformalClassifier().fit(calibration.scores, bins=calibration.ranks)
        columns = [
            oracle.predict_p(scores[:, k], bins=np.full(30, k), smoothing=False) for k in range(5)
        ]
        p_values = np.stack(columns, axis=1)
    else:
        oracle = ConformalClassifier().fit(calibration.scores)
        p_values = oracle.predict_p(scores, smoothing=False)
    chosen = proba.argmax(axis=1)
    inside = (p_values > 1 - coverage + 1e-12) | (np.arange(5) == chosen[:, None])
    low, high = calibration.ranges(proba, chosen, coverage, by_class)
    assert low.tolist() == inside.argmax(axis=1).tolist()
    assert high.tolist() == (4 - inside[:, ::-1].argmax(axis=1)).tolist()


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, (5, 5), elements=SCORES),
    st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
    st.booleans(),
    st.sampled_from(["mode", "any"]),
)
def test_ranges_are_nested_and_contain_the_decision(scores, coverages, by_class, decision):
    calibration = calibrate(1000)
    proba = torch.from_numpy(scores).softmax(dim=1).numpy()
    chosen = proba.argmax(axis=1) if decision == "mode" else np.arange(5)
    (low, high), (lower, higher) = (
        calibration.ranges(proba, chosen, coverage, by_class) for coverage in sorted(coverages)
    )
    assert ((lower <= low) & (low <= chosen) & (chosen <= high) & (high <= higher)).all()


@pytest.fixture(scope="module")
def overconfident():
    """Calibrations of a model that is far too sure, each with new samples."""
    found = []
    for seed in range(40):
        log_probs, ranks = draw(600, 4, seed, sharpness=4)
        calibration = Calibration.fit(None, (log_probs[:400], ranks[:400]))
        found.append((calibration, log_probs[400:].exp().numpy(), ranks[400:].numpy()))
    return found


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("by_class", [False, True])
def test_new_samples_are_covered_as_promised(overconfident, coverage, by_class):
    """Whatever the model is worth."""
    shares = []
    for calibration, proba, truth in overconfident:
        low, high = calibration.ranges(proba, np.full(200, 2), coverage, by_class)
        held = (low <= truth) & (truth <= high)
        rare = truth == np.bincount(truth).argmin()
        shares.append(held[rare].mean() if by_class else held.mean())
    assert np.mean(shares) >= coverage - 0.02


@pytest.mark.parametrize(("coverage", "needed"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19)])
def test_so_many_samples_are_needed_and_no_fewer(coverage, needed):
    assert samples_needed(coverage) == needed
    calibrate(needed).check(coverage, 5)
    if needed > 1:
        with pytest.raises(ValueError, match=f"at least {needed} calibration samples, got"):
            calibrate(needed - 1).check(coverage, 5)


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, float("nan"), "0.9", 90])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        calibrate().check(coverage, 5)
