"""The losses on a plain softmax: their formulas, other libraries, and what follows from them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import log_softmax, logsumexp, softmax

from layline.heads import create
from layline.heads.label_distribution import log_one_minus

SIZES = pytest.mark.parametrize("num_classes", [2, 6, 101])


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


def sord(log_p, y, distance="squared", alpha=1.0):
    power = 2 if distance == "squared" else 1
    return -(softmax(-alpha * abs(np.arange(len(log_p)) - y) ** power) * log_p).sum()


def dldl_v2(log_p, y, sigma):
    mean = sum(k * math.exp(p) for k, p in enumerate(log_p))
    density = stats.norm.pdf(np.arange(len(log_p)), loc=y, scale=sigma)
    return -(density / density.sum() * log_p).sum() + abs(mean - y)


def mean_variance(log_p, y, mean_weight=0.2, variance_weight=0.05):
    mean = sum(k * math.exp(p) for k, p in enumerate(log_p))
    variance = sum((k - mean) ** 2 * math.exp(p) for k, p in enumerate(log_p))
    return -log_p[y] + mean_weight * 0.5 * (mean - y) ** 2 + variance_weight * variance


def emd(log_p, y):
    return sum((np.exp(log_p[: k + 1]).sum() - (k >= y)) ** 2 for k in range(len(log_p)))


def cdw(log_p, y, alpha=0.5):
    return -sum(abs(k - y) ** alpha * math.log1p(-math.exp(p)) for k, p in enumerate(log_p))


@SIZES
@pytest.mark.parametrize(
    ("name", "formula", "options"),
    [
        ("sord", sord, {}),
        ("sord", sord, {"distance": "absolute", "alpha": 0.3}),
        *[("dldl-v2", dldl_v2, {"sigma": sigma}) for sigma in (0.5, 2.0)],
        ("mean-variance", mean_variance, {}),
        ("mean-variance", mean_variance, {"mean_weight": 1.0, "variance_weight": 0.7}),
        ("emd", emd, {}),
        ("cdw", cdw, {}),
        ("cdw", cdw, {"alpha": 5.0}),
    ],
)
def test_the_loss_is_that_of_the_formula(name, formula, options, num_classes):
    head = create(name, num_classes, 5, **options).double()
    features, ranks = batch(num_classes)
    log_p = log_softmax(head._scores(features).detach().numpy(), axis=1)
    plain = [formula(row, y, **options) for row, y in zip(log_p, ranks.tolist(), strict=True)]
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), rel=1e-12, abs=1e-10)


@given(arrays(float, (1, 5), elements=st.floats(-600, 600)))
def test_log_one_minus_is_the_sum_of_the_others(logits):
    log_p = torch.log_softmax(torch.tensor(logits), dim=-1)
    plain = [logsumexp(np.delete(logits[0], k)) - logsumexp(logits[0]) for k in range(5)]
    np.testing.assert_allclose(log_one_minus(log_p)[0].numpy(), plain, rtol=1e-10, atol=1e-12)
