import math

import numpy as np
import pytest
import torch
from dlordinal.losses import CDWCELoss
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp, softmax

from layline.heads import create
from layline.heads.label_distribution import log_one_minus


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


def on_logits(num_classes, **options):
    """A head whose features are its logits."""
    head = create("cdw", num_classes, num_classes, **options).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(num_classes))
        head.linear.bias.zero_()
    return head


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 5.0])
@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_formula(alpha, num_classes):
    head = create("cdw", num_classes, 5, alpha=alpha).double()
    features, ranks = batch(num_classes)
    probs = softmax(head._scores(features).detach().numpy(), axis=1)
    plain = [
        -sum(abs(k - y) ** alpha * math.log1p(-p) for k, p in enumerate(row))
        for row, y in zip(probs, ranks.tolist(), strict=True)
    ]
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_loss_and_gradient_agree_with_dlordinal(alpha, gradients):
    """The same reduction: summed over the classes, averaged over the batch."""
    head = create("cdw", 7, 5, alpha=alpha).double()
    features, ranks = batch(7)
    features.requires_grad_()
    ours = head.loss(features, ranks)
    theirs = CDWCELoss(7, alpha=alpha)(head._scores(features), ranks)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    for a, b in zip(gradients(ours, features), gradients(theirs, features), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_a_class_that_is_surely_wrong_costs_its_full_price():
    """dlordinal takes exp of the logits: it overflows from 710 on, in float32 from 89 on."""
    logits, ranks = torch.tensor([[0.0, 0.0, 800.0]]).double(), torch.tensor([0])
    # 1 − P_2 = 2·exp(−800), P_1 = exp(−800): the loss is 2·(800 − log 2)
    right = 2 * (800 - math.log(2))
    assert on_logits(3, alpha=1.0).loss(logits, ranks).item() == pytest.approx(right, rel=1e-12)
    assert not CDWCELoss(3, alpha=1.0)(logits, ranks).isfinite()
    logits = logits / 20  # 40: nothing overflows, but exp(40) + 2 − exp(40) is 0 in float64
    right = 2 * (40 - math.log(2))
    assert on_logits(3, alpha=1.0).loss(logits, ranks).item() == pytest.approx(right, rel=1e-12)
    assert CDWCELoss(3, alpha=1.0)(logits, ranks).item() > right + 10


@given(arrays(float, (1, 5), elements=st.floats(-600, 600)))
def test_log_one_minus_is_the_sum_of_the_others(logits):
    log_p = torch.log_softmax(torch.tensor(logits), dim=-1)
    plain = [logsumexp(np.delete(logits[0], k)) - logsumexp(logits[0]) for k in range(5)]
    np.testing.assert_allclose(log_one_minus(log_p)[0].numpy(), plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", [[0.0, 0, 0], [1e4, 0, 0], [-1e4, 1e4, 1e4], [0, 0, 1e30]])
def test_gradients_are_finite_and_sum_to_zero(logits, dtype):
    logits = torch.tensor([logits], dtype=dtype, requires_grad=True)
    for rank in range(3):
        loss = on_logits(3).to(dtype).loss(logits, torch.tensor([rank]))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()
        assert gradient.sum().item() == pytest.approx(0, abs=1e-5)


def test_the_farther_the_wrong_class_the_higher_the_cost():
    wrong = 8 * torch.eye(6, dtype=torch.float64)
    head = on_logits(6)
    costs = torch.stack([head.loss(row[None], torch.tensor([0])) for row in wrong])
    assert (costs.diff() > 0).all()


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.inf, math.nan])
def test_a_wrong_alpha_is_named_with_its_value(alpha):
    with pytest.raises(ValueError, match=f"alpha must be a finite number above 0, got {alpha}"):
        create("cdw", 5, 4, alpha=alpha)


def test_printing_shows_the_option():
    assert "alpha=2.0" in repr(create("cdw", 5, 4, alpha=2.0))
