import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax

from layline.heads import HEADS, create


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


def plain_target(y, num_classes, sigma):
    density = stats.norm.pdf(np.arange(num_classes), loc=y, scale=sigma)
    return density / density.sum()


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_formula(sigma, num_classes):
    head = create("dldl-v2", num_classes, 5, sigma=sigma).double()
    features, ranks = batch(num_classes)
    log_p = log_softmax(head._scores(features).detach().numpy(), axis=1)
    plain = []
    for row, y in zip(log_p, ranks.tolist(), strict=True):
        mean = sum(k * math.exp(p) for k, p in enumerate(row))
        plain.append(-(plain_target(y, num_classes, sigma) * row).sum() + abs(mean - y))
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), abs=1e-10)


def test_cross_entropy_and_divergence_have_the_same_gradient(gradients):
    """They differ by the entropy of the label, which is constant."""
    head = create("dldl-v2", 8, 5, sigma=2.0).double()
    features, ranks = batch(8)
    features.requires_grad_()
    target = torch.tensor(np.array([plain_target(y, 8, 2.0) for y in ranks.tolist()]))
    log_p = head.log_probs(features)
    divergence = (target * (target.log() - log_p)).sum(dim=1)
    paper = (divergence + (log_p.exp() @ torch.arange(8).double() - ranks).abs()).mean()
    ours = head.loss(features, ranks)
    entropy = -(target * target.log()).sum(dim=1).mean()
    torch.testing.assert_close(ours, paper + entropy)
    torch.testing.assert_close(gradients(ours, features), gradients(paper, features))


def least_loss_probs(num_classes, rank, **options):
    """Minimise the loss of one label over free logits."""
    head = create("dldl-v2", num_classes, num_classes, **options).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(num_classes))
        head.linear.bias.zero_()
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
    """A property of the method, not of this implementation.

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


def test_its_own_rule_is_the_mean():
    assert HEADS["dldl-v2"].decode == "mean"
    head = create("dldl-v2", 6, 5).double()
    features, _ = batch()
    expected = head.predict_proba(features).detach().numpy() @ np.arange(6)
    assert head.predict(features, decode="mean").tolist() == np.rint(expected).tolist()


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_a_wrong_sigma_is_named_with_its_value(sigma):
    with pytest.raises(ValueError, match=f"sigma must be a finite number above 0, got {sigma}"):
        create("dldl-v2", 5, 4, sigma=sigma)


def test_printing_shows_the_option():
    assert "sigma=1.5" in repr(create("dldl-v2", 5, 4, sigma=1.5))


def test_sigma_is_the_papers_unless_there_are_few_classes():
    assert create("dldl-v2", 101, 4).sigma == 2
    assert create("dldl-v2", 13, 4).sigma == 2
    assert create("dldl-v2", 7, 4).sigma == 1
