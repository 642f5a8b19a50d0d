"""The losses on a plain softmax: their formulas, other libraries, and what follows from them."""

import math

import numpy as np
import pytest
import torch
from dlordinal.losses import CDWCELoss, EMDLoss, SORDLoss
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import log_softmax, logsumexp, softmax

from layline.heads import HEADS, create
from layline.heads.label_distribution import log_one_minus, soft_labels
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


@pytest.mark.parametrize(
    ("name", "library", "options"),
    [
        # its SORD knows absolute differences only; the squared ones are checked by hand above
        *[
            ("sord", lambda y, a=a: SORDLoss(a, 7, train_targets=y), {"alpha": a})
            for a in (0.5, 1.0, 3.0)
        ],
        # its documentation calls that the ranked probability score, which is this over K − 1
        ("emd", lambda y: EMDLoss(7), {}),
        *[("cdw", lambda y, a=a: CDWCELoss(7, alpha=a), {"alpha": a}) for a in (0.5, 1.0, 2.0)],
    ],
)
def test_loss_and_gradient_agree_with_dlordinal(name, library, options, gradients):
    options = options | ({"distance": "absolute"} if name == "sord" else {})
    head = create(name, 7, 5, **options).double()
    features, ranks = batch(7)
    features.requires_grad_()
    ours, theirs = head.loss(features, ranks), library(ranks)(head._scores(features), ranks)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    for a, b in zip(gradients(ours, features), gradients(theirs, features), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["dldl-v2", "mean-variance"])
def test_the_rule_of_the_methods_that_train_the_mean_is_the_mean(name):
    assert HEADS[name].decode == "mean"


@given(st.integers(2, 60), st.floats(0.01, 20.0), st.sampled_from([1, 2]), st.data())
def test_the_softened_label_is_a_distribution_that_falls_on_both_sides(k, alpha, power, data):
    rank = data.draw(st.integers(0, k - 1))
    target = soft_labels(torch.tensor([rank]), k, alpha, power)[0]
    assert target.sum().item() == pytest.approx(1, abs=1e-12)
    assert target.argmax() == rank
    assert (target[: rank + 1].diff() >= 0).all()
    assert (target[rank:].diff() <= 0).all()


def test_the_squared_label_is_a_gaussian_of_variance_one_over_two_alpha():
    """So SORD and the first term of DLDL-v2 are one family."""
    expected = [gaussian_label(y, 9, sigma=2) for y in range(9)]
    np.testing.assert_allclose(soft_labels(torch.arange(9), 9, 1 / 8, 2), expected, rtol=1e-12)


def test_a_thousand_classes_and_extreme_logits_stay_finite():
    head = on_logits("sord", 1000).float()
    logits = (1e4 * torch.randn(8, 1000)).requires_grad_()
    loss = head.loss(logits, torch.arange(8) * 142)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_cross_entropy_and_divergence_have_the_same_gradient(gradients):
    """They differ by the entropy of the label, which is constant."""
    head = create("dldl-v2", 8, 5, sigma=2.0).double()
    features, ranks = batch(8)
    features.requires_grad_()
    target = torch.tensor(np.array([gaussian_label(y, 8, 2.0) for y in ranks.tolist()]))
    log_p = head.log_probs(features)
    divergence = (target * (target.log() - log_p)).sum(dim=1)
    paper = (divergence + (log_p.exp() @ torch.arange(8).double() - ranks).abs()).mean()
    ours = head.loss(features, ranks)
    entropy = -(target * target.log()).sum(dim=1).mean()
    torch.testing.assert_close(ours, paper + entropy)
    torch.testing.assert_close(gradients(ours, features), gradients(paper, features))


def least_loss_probs(num_classes, rank, **options):
    """Minimise the loss of one label over free logits."""
    head = on_logits("dldl-v2", num_classes, **options)
    logits = torch.zeros(1, num_classes, dtype=torch.float64, requires_grad=True)
    rate = 1.0
    optimiser = torch.optim.SGD([logits], lr=rate)
    for step in range(600):
        optimiser.param_groups[0]["lr"] = rate / (1 + step / 20)  # |m − y| has a kink at its least
        optimiser.zero_grad()
        head.loss(logits, torch.tensor([rank])).backward()
        optimiser.step()
    return head.predict_proba(logits)[0].detach()


def test_near_the_ends_a_wide_label_and_its_mean_cannot_both_be_met():
    """A property of DLDL-v2, not of this implementation.

    For five classes and σ = 2 the label of rank 1 has the mean 1.5. Tilting it until the mean is 1
    leaves more on rank 0 than on rank 1. For rank 0 the mean stops half a rank short, on the
    edge between two ranks. A narrower label mends both.
    """
    probs = least_loss_probs(5, 1, sigma=2.0)
    assert (probs @ torch.arange(5).double()).item() == pytest.approx(1, abs=0.02)
    assert probs.argmax() == 0
    probs = least_loss_probs(5, 0, sigma=2.0)
    assert (probs @ torch.arange(5).double()).item() == pytest.approx(0.5, abs=0.02)
    for rank in (0, 1):
        probs = least_loss_probs(5, rank, sigma=0.75)
        assert probs.argmax() == rank
        assert (probs @ torch.arange(5).double()).item() == pytest.approx(rank, abs=0.2)


def test_far_from_the_ends_mode_and_mean_agree_with_the_label():
    probs = least_loss_probs(21, 9)
    assert probs.argmax() == 9
    assert (probs @ torch.arange(21).double()).item() == pytest.approx(9, abs=0.02)


def test_sigma_is_the_papers_unless_there_are_few_classes():
    assert create("dldl-v2", 101, 4).sigma == 2
    assert create("dldl-v2", 13, 4).sigma == 2
    assert create("dldl-v2", 7, 4).sigma == 1


def test_mean_variance_without_its_penalties_is_classification():
    head = create("mean-variance", 6, 5, mean_weight=0.0, variance_weight=0.0).double()
    plain = create("classification", 6, 5).double()
    plain.load_state_dict(head.state_dict())
    features, ranks = batch()
    torch.testing.assert_close(head.loss(features, ranks), plain.loss(features, ranks))


@pytest.mark.parametrize("num_classes", [2, 6])
def test_emd_is_the_ranked_probability_score_times_k_minus_one(num_classes):
    head = create("emd", num_classes, 5).double()
    features, ranks = batch(num_classes)
    score = ranked_probability_score(ranks.numpy(), head.predict_proba(features).detach().numpy())
    assert head.loss(features, ranks).item() == pytest.approx((num_classes - 1) * score, rel=1e-12)


def test_by_emd_a_sure_prediction_costs_its_distance_in_ranks():
    head = on_logits("emd", 6)
    sure = 1e4 * torch.eye(6, dtype=torch.float64)
    for rank in range(6):
        costs = [head.loss(row[None], torch.tensor([rank])).item() for row in sure]
        assert costs == pytest.approx([abs(k - rank) for k in range(6)], abs=1e-12)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", [[0.0, 0, 0], [1e4, 0, 0], [-1e4, 1e4, 1e4], [0, 0, 1e30]])
def test_gradients_of_cdw_are_finite_and_sum_to_zero(logits, dtype):
    logits = torch.tensor([logits], dtype=dtype, requires_grad=True)
    for rank in range(3):
        loss = on_logits("cdw", 3).to(dtype).loss(logits, torch.tensor([rank]))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()
        assert gradient.sum().item() == pytest.approx(0, abs=1e-5)


def test_by_cdw_the_farther_the_wrong_class_the_higher_the_cost():
    wrong = 8 * torch.eye(6, dtype=torch.float64)
    head = on_logits("cdw", 6)
    costs = torch.stack([head.loss(row[None], torch.tensor([0])) for row in wrong])
    assert (costs.diff() > 0).all()


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


@pytest.mark.parametrize(
    ("name", "options", "shown"),
    [
        ("sord", {"distance": "absolute", "alpha": 2.0}, "distance='absolute', alpha=2.0"),
        ("dldl-v2", {"sigma": 1.5}, "sigma=1.5"),
        ("mean-variance", {"mean_weight": 1.0}, "mean_weight=1.0, variance_weight=0.05"),
        ("cdw", {"alpha": 2.0}, "alpha=2.0"),
    ],
)
def test_printing_shows_the_options(name, options, shown):
    assert shown in repr(create(name, 5, 4, **options))
