"""The losses on a plain softmax: their formulas, other libraries, and what follows from them."""

import math

import numpy as np
import pytest
import torch
from dlordinal.losses import CDWCELoss
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import log_softmax, logsumexp, softmax

from layline.heads import create
from layline.heads.label_distribution import log_one_minus
from layline.metrics import ranked_probability_score

SIZES = pytest.mark.parametrize("num_classes", [2, 6, 101])


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


def on_logits(name, num_classes, **options):
    """A head whose features are its logits."""
    head = create(name, num_classes, num_classes, **options).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(num_classes))
        head.linear.bias.zero_()
    return head


def gaussian_label(y, num_classes, sigma):
    density = stats.norm.pdf(np.arange(num_classes), loc=y, scale=sigma)
    return density / density.sum()


def sord(log_p, y, distance="squared", alpha=1.0):
    power = 2 if distance == "squared" else 1
    return -(softmax(-alpha * abs(np.arange(len(log_p)) - y) ** power) * log_p).sum()


def dldl_v2(log_p, y, sigma):
    mean = sum(k * math.exp(p) for k, p in enumerate(log_p))
    return -(gaussian_label(y, len(log_p), sigma) * log_p).sum() + abs(mean - y)


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
        *[
            ("sord", sord, {"distance": distance, "alpha": alpha})
            for distance in ("squared", "absolute")
            for alpha in (0.3, 4.0)
        ],
        ("sord", sord, {}),
        *[("dldl-v2", dldl_v2, {"sigma": sigma}) for sigma in (0.5, 1.0, 2.0)],
        ("mean-variance", mean_variance, {}),
        ("mean-variance", mean_variance, {"mean_weight": 1.0, "variance_weight": 0.7}),
        ("emd", emd, {}),
        ("cdw", cdw, {}),
        *[("cdw", cdw, {"alpha": alpha}) for alpha in (1.0, 1.5, 5.0)],
    ],
)
def test_the_loss_is_that_of_the_formula(name, formula, options, num_classes):
    head = create(name, num_classes, 5, **options).double()
    features, ranks = batch(num_classes)
    log_p = log_softmax(head._scores(features).detach().numpy(), axis=1)
    plain = [formula(row, y, **options) for row, y in zip(log_p, ranks.tolist(), strict=True)]
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), rel=1e-12, abs=1e-10)


def test_sigma_is_the_papers_unless_there_are_few_classes():
    assert create("dldl-v2", 101, 4).sigma == 2
    assert create("dldl-v2", 13, 4).sigma == 2
    assert create("dldl-v2", 7, 4).sigma == 1


@pytest.mark.parametrize("num_classes", [2, 6])
def test_emd_is_the_ranked_probability_score_times_k_minus_one(num_classes):
    head = create("emd", num_classes, 5).double()
    features, ranks = batch(num_classes)
    score = ranked_probability_score(ranks.numpy(), head.predict_proba(features).detach().numpy())
    assert head.loss(features, ranks).item() == pytest.approx((num_classes - 1) * score, rel=1e-12)


def test_by_cdw_a_class_that_is_surely_wrong_costs_its_full_price():
    """dlordinal takes exp of the logits: it overflows from 710 on, in float32 from 89 on."""
    head = on_logits("cdw", 3, alpha=1.0)
    logits, ranks = torch.tensor([[0.0, 0.0, 800.0]]).double(), torch.tensor([0])
    # 1 − P_2 = 2·exp(−800), P_1 = exp(−800): the loss is 2·(800 − log 2)
    right = 2 * (800 - math.log(2))
    assert head.loss(logits, ranks).item() == pytest.approx(right, rel=1e-12)
    assert not CDWCELoss(3, alpha=1.0)(logits, ranks).isfinite()
    logits = logits / 20  # 40: nothing overflows, but exp(40) + 2 − exp(40) is 0 in float64
    right = 2 * (40 - math.log(2))
    assert head.loss(logits, ranks).item() == pytest.approx(right, rel=1e-12)
    assert CDWCELoss(3, alpha=1.0)(logits, ranks).item() > right + 10


@given(arrays(float, (1, 5), elements=st.floats(-600, 600)))
def test_log_one_minus_is_the_sum_of_the_others(logits):
    log_p = torch.log_softmax(torch.tensor(logits), dim=-1)
    plain = [logsumexp(np.delete(logits[0], k)) - logsumexp(logits[0]) for k in range(5)]
    np.testing.assert_allclose(log_one_minus(log_p)[0].numpy(), plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sord", {"distance": "square"}, "distance must be .* got 'square': did you mean squared"),
        ("sord", {"alpha": 0.0}, "alpha must be a finite number above 0, got 0.0"),
        ("sord", {"alpha": math.inf}, "alpha must be .* got inf"),
        ("dldl-v2", {"sigma": 0.0}, "sigma must be a finite number above 0, got 0.0"),
        ("dldl-v2", {"sigma": math.nan}, "sigma must be a finite number above 0, got nan"),
        ("mean-variance", {"mean_weight": -0.1}, "mean_weight must be .*, at least 0, got -0.1"),
        ("mean-variance", {"variance_weight": math.inf}, "variance_weight must be .* got inf"),
        ("cdw", {"alpha": 0.0}, "alpha must be a finite number above 0, got 0.0"),
        ("cdw", {"alpha": -1.0}, "alpha must be a finite number above 0, got -1.0"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(name, options, message):
    with pytest.raises(ValueError, match=message):
        create(name, 5, 4, **options)
