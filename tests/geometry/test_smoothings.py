import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from layline.geometry.smoothings import Binomial, Exponential, Poisson, Triangular


def whole_table(smoothing, num_classes):
    return smoothing.log_u(torch.arange(num_classes), num_classes)


def softmax_rows(logits):
    return logits - logsumexp(logits, axis=1, keepdims=True)


@pytest.mark.parametrize("num_classes", [2, 3, 8, 36, 101, 1000])
@pytest.mark.parametrize("tau", [0.11, 1.0, 7.0])
def test_poisson_agrees_with_scipy(num_classes, tau):
    k, k_star = np.arange(num_classes), np.arange(num_classes)[:, None]
    expected = softmax_rows(stats.poisson.logpmf(k, k_star + 0.5) / tau)
    ours = whole_table(Poisson(tau), num_classes).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("num_classes", [2, 3, 8, 36, 101, 1000])
@pytest.mark.parametrize("tau", [0.13, 1.0, 7.0])
def test_binomial_agrees_with_scipy(num_classes, tau):
    k, k_star = np.arange(num_classes), np.arange(num_classes)[:, None]
    p = (2 * k_star + 1) / (2 * num_classes)
    expected = softmax_rows(stats.binom.logpmf(k, num_classes - 1, p) / tau)
    ours = whole_table(Binomial(tau), num_classes).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("num_classes", [2, 3, 8, 101])
def test_exponential_is_equation_18(num_classes):
    ours = whole_table(Exponential(), num_classes).exp().tolist()
    for k_star, row in enumerate(ours):
        total = sum(math.exp(-abs(j - k_star) / 30) for j in range(num_classes))
        expected = [math.exp(-abs(k - k_star) / 30) / total for k in range(num_classes)]
        assert row == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 8, 101])
def test_triangular_is_equations_19_and_20(num_classes):
    def f(k, k_star):
        return 0.9 - (0.9 - 0.1) * abs(k - k_star) / max(k_star, num_classes - k_star - 1)

    ours = whole_table(Triangular(), num_classes).exp().tolist()
    for k_star, row in enumerate(ours):
        total = sum(f(j, k_star) for j in range(num_classes))
        assert row == pytest.approx([f(k, k_star) / total for k in range(num_classes)], rel=1e-12)


def test_the_papers_exponential_is_as_flat_as_its_docstring_says():
    row = whole_table(Exponential(), 8)[0].exp()
    assert float(row.min() / row.max()) == pytest.approx(0.79, abs=0.005)


smoothings = st.one_of(
    st.builds(Poisson, tau=st.floats(0.02, 20)),
    st.builds(Binomial, tau=st.floats(0.02, 20)),
    st.builds(Exponential, tau=st.floats(0.1, 100)),
    st.builds(lambda b, more: Triangular(a=b + more, b=b), st.floats(0.01, 1), st.floats(0.01, 2)),
)


@given(smoothings, st.integers(2, 200))
def test_rows_sum_to_one(smoothing, num_classes):
    sums = whole_table(smoothing, num_classes).exp().sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-12)


@given(smoothings, st.integers(2, 200))
def test_every_row_rises_strictly_to_its_own_class_and_falls_strictly_after(smoothing, num_classes):
    for k, row in enumerate(whole_table(smoothing, num_classes)):
        assert (row[: k + 1].diff() > 0).all()
        assert (row[k:].diff() < 0).all()


@pytest.mark.parametrize("kind", [Poisson, Binomial])
def test_temperature_leads_from_one_hot_to_uniform(kind):
    sharp, flat = whole_table(kind(1e-3), 8).exp(), whole_table(kind(1e6), 8).exp()
    torch.testing.assert_close(sharp, torch.eye(8).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(flat, torch.full((8, 8), 1 / 8).double(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [Poisson, Binomial, Exponential])
@pytest.mark.parametrize("tau", [0.0, -0.1, math.nan, math.inf])
def test_a_temperature_that_is_not_positive_is_refused(kind, tau):
    with pytest.raises(ValueError, match=f"tau must be .* above 0, got {tau}"):
        kind(tau=tau)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.9), (0.5, 0.5), (0.9, 0.0), (0.9, -0.1)])
def test_a_triangle_that_does_not_fall_to_a_positive_end_is_refused(a, b):
    with pytest.raises(ValueError, match="must be a finite number above"):
        Triangular(a=a, b=b)
