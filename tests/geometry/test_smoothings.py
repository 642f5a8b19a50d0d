import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax

from layline.geometry.smoothings import Binomial, Exponential, Poisson, Triangular


def whole_table(smoothing, num_classes):
    return smoothing.log_u(torch.arange(num_classes), num_classes)


@pytest.mark.parametrize("num_classes", [2, 3, 8, 36, 101, 1000])
@pytest.mark.parametrize("tau", [0.11, 1.0, 7.0])
def test_poisson_and_binomial_agree_with_scipy(num_classes, tau):
    k, k_star = np.arange(num_classes), np.arange(num_classes)[:, None]
    p = (2 * k_star + 1) / (2 * num_classes)
    for smoothing, pmf in (
        (Poisson(tau), stats.poisson.logpmf(k, k_star + 0.5)),
        (Binomial(tau), stats.binom.logpmf(k, num_classes - 1, p)),
    ):
        ours, expected = whole_table(smoothing, num_classes), log_softmax(pmf / tau, axis=1)
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-9)


def triangle(k, k_star, num_classes):
    return 0.9 - (0.9 - 0.1) * abs(k - k_star) / max(k_star, num_classes - k_star - 1)


@pytest.mark.parametrize("num_classes", [2, 3, 8, 101])
@pytest.mark.parametrize(
    ("smoothing", "height"),
    [
        (Exponential(), lambda k, k_star, _: math.exp(-abs(k - k_star) / 30)),
        (Triangular(), triangle),
    ],
)
def test_exponential_and_triangular_are_equations_18_to_20(smoothing, height, num_classes):
    for k_star, row in enumerate(whole_table(smoothing, num_classes).exp().tolist()):
        heights = np.array([height(k, k_star, num_classes) for k in range(num_classes)])
        np.testing.assert_allclose(row, heights / heights.sum(), rtol=1e-12)


smoothings = st.one_of(
    st.builds(Poisson, tau=st.floats(0.02, 20)),
    st.builds(Binomial, tau=st.floats(0.02, 20)),
    st.builds(Exponential, tau=st.floats(0.1, 100)),
    st.builds(lambda b, more: Triangular(a=b + more, b=b), st.floats(0.01, 1), st.floats(0.01, 2)),
)


@given(smoothings, st.integers(2, 200))
def test_every_row_sums_to_one_and_has_its_strict_mode_at_its_own_class(smoothing, num_classes):
    table = whole_table(smoothing, num_classes)
    sums = table.exp().sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-12)
    for k, row in enumerate(table):
        assert (row[: k + 1].diff() > 0).all()
        assert (row[k:].diff() < 0).all()
