"""The unimodal heads: their formulas, and that one peak is a property, not a hope."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from layline.heads import create

NAMES = ["unimodal-poisson", "unimodal-binomial", "unimodal-pom"]


def head_with(name, num_classes, *scores):
    """A head of one feature whose linear layer gives these scores to the feature 1."""
    head = create(name, num_classes, 1).double()
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.copy_(torch.tensor(scores, dtype=torch.float64))
    return head


def probs(head):
    return head.predict_proba(torch.ones(1, 1, dtype=torch.float64))[0].detach().numpy()


def to_probabilities(values):
    return values / values.sum()


def has_one_peak(row, tolerance=1e-12):
    peak = row.argmax()
    return (np.diff(row[: peak + 1]) >= -tolerance).all() and (
        np.diff(row[peak:]) <= tolerance
    ).all()


@pytest.mark.parametrize("num_classes", [2, 5, 101])
@pytest.mark.parametrize("score", [-3.0, 0.0, 2.5, 40.0])
@pytest.mark.parametrize("tau", [0.3, 1.0, 4.0])
def test_poisson_is_that_of_the_formula(num_classes, score, tau):
    head = head_with("unimodal-poisson", num_classes, score)
    torch.nn.init.constant_(head.log_tau, np.log(tau))
    pmf = stats.poisson.logpmf(np.arange(num_classes), np.logaddexp(0, score))
    expected = to_probabilities(np.exp((pmf - pmf.max()) / tau))
    np.testing.assert_allclose(probs(head), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("num_classes", [2, 5, 101])
@pytest.mark.parametrize("score", [-3.0, 0.0, 2.5])
@pytest.mark.parametrize("tau", [0.3, 1.0, 4.0])
def test_binomial_is_that_of_the_formula(num_classes, score, tau):
    head = head_with("unimodal-binomial", num_classes, score)
    torch.nn.init.constant_(head.log_tau, np.log(tau))
    q = 1 / (1 + np.exp(-score))
    pmf = stats.binom.logpmf(np.arange(num_classes), num_classes - 1, q)
    expected = to_probabilities(np.exp((pmf - pmf.max()) / tau))
    np.testing.assert_allclose(probs(head), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("num_classes", [2, 5, 101])
@pytest.mark.parametrize(("mean", "spread"), [(0.0, 0.0), (1.5, -0.5), (-0.4, 3.0)])
def test_pom_is_that_of_the_formula(num_classes, mean, spread):
    head = head_with("unimodal-pom", num_classes, mean, spread)
    edges = np.linspace(-1, 1, num_classes + 1)
    cdf = stats.norm.cdf(edges, np.tanh(mean), np.logaddexp(0, spread))
    np.testing.assert_allclose(probs(head), to_probabilities(np.diff(cdf)), rtol=1e-10, atol=1e-14)


def test_the_loss_of_pom_is_the_earth_movers_distance_to_the_label():
    head = create("unimodal-pom", 6, 4).double()
    features, ranks = torch.randn(9, 4).double(), torch.arange(9) % 6
    p = head.predict_proba(features).detach().numpy()
    expected = np.mean(
        [
            stats.wasserstein_distance(range(6), [int(y)], row)
            for row, y in zip(p, ranks, strict=True)
        ]
    )
    assert head.loss(features, ranks).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_one_peak_for_any_input(name, data):
    num_classes = data.draw(st.sampled_from([2, 3, 8, 101, 1000]))
    number = st.floats(-1e4, 1e4, allow_nan=False)
    scores = [data.draw(number) for _ in range(2 if name == "unimodal-pom" else 1)]
    head = head_with(name, num_classes, *scores)
    if hasattr(head, "log_tau"):
        torch.nn.init.constant_(head.log_tau, data.draw(st.floats(-4, 4)))
    assert has_one_peak(probs(head))
    single = head.float().predict_proba(torch.ones(1, 1))[0].detach().numpy()
    assert has_one_peak(single, tolerance=1e-7)
