import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from spacecutter.losses import cumulative_link_loss
from spacecutter.models import LogisticCumulativeLink

from layline.heads import create


def head_and_batch(num_classes=6, n=200):
    head = create("proportional-odds", num_classes, 8).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        head.first_cut.normal_(mean=-2.0)
        head.steps.normal_()
    return head, torch.randn(n, 8).double(), torch.randint(num_classes, (n,))


@pytest.mark.parametrize("num_classes", [3, 6, 101])  # spacecutter refuses two classes
def test_loss_and_probabilities_agree_with_spacecutter(num_classes):
    head, features, ranks = head_and_batch(num_classes)
    link = LogisticCumulativeLink(num_classes).double()
    with torch.no_grad():
        link.cutpoints.copy_(head.cut_points())
    theirs = link(features @ head.linear.weight.T)
    torch.testing.assert_close(head.predict_proba(features), theirs, rtol=0, atol=1e-12)
    likely = theirs[torch.arange(len(ranks)), ranks] > 1e-9  # below, it subtracts digits away
    loss = head.loss(features, ranks, sample_weight=likely.double())
    other = cumulative_link_loss(theirs[likely], ranks[likely, None])
    torch.testing.assert_close(loss, other, rtol=1e-6, atol=0)


@pytest.mark.parametrize("num_classes", [2, 6])
def test_loss_is_the_log_likelihood(num_classes):
    head, features, ranks = head_and_batch(num_classes, n=30)
    score = (features @ head.linear.weight.T)[:, 0].tolist()
    cuts, total = [-math.inf, *head.cut_points().tolist(), math.inf], 0.0
    for s, y in zip(score, ranks.tolist(), strict=True):
        below = [1 / (1 + math.exp(s - c)) if c < math.inf else 1.0 for c in cuts[1:]]
        total -= math.log(below[y] - (below[y - 1] if y else 0.0))
    assert head.loss(features, ranks).item() == pytest.approx(total / 30, rel=1e-10)


def test_an_unlikely_label_costs_its_true_price():
    """Clamped at 1e-15 by spacecutter: −log is 34.5 there however wrong, and has no gradient."""
    head = create("proportional-odds", 3, 1)
    with torch.no_grad():
        head.linear.weight.fill_(1.0)
        head.first_cut.fill_(0.0)
    features = torch.tensor([[200.0]], requires_grad=True)
    loss = head.loss(features, torch.tensor([0]))
    loss.backward()
    assert loss.item() == pytest.approx(200)
    assert features.grad.item() == pytest.approx(1)
    clamped = cumulative_link_loss(torch.zeros(1, 3), torch.tensor([[0]]))
    assert clamped.item() == pytest.approx(-math.log(1e-15), rel=1e-6)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8))
def test_the_cut_points_are_in_order_whatever_is_learned(steps):
    head = create("proportional-odds", len(steps) + 2, 4).double()
    with torch.no_grad():
        head.steps.copy_(torch.tensor(steps))
    assert (head.cut_points().diff() > 0).all()


@pytest.mark.parametrize("num_classes", [2, 6, 1000])
def test_the_classes_start_with_equal_shares(num_classes):
    head = create("proportional-odds", num_classes, 8).double()
    probs = head.predict_proba(torch.zeros(1, 8))
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / num_classes), rtol=1e-4, atol=0)
    assert head.linear.weight.shape == (1, 8)
    assert head.linear.bias is None


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_the_median_is_the_number_of_cut_points_below_the_score(num_classes):
    head, features, _ = head_and_batch(num_classes)
    count = (features @ head.linear.weight.T > head.cut_points()).sum(dim=-1)
    assert torch.equal(head.predict(features, decode="median"), count)


def test_the_odds_are_proportional():
    """A step along w multiplies the odds of every threshold by the same factor."""
    head, features, _ = head_and_batch()
    w = head.linear.weight.detach()[0]
    logits = []
    for shift in (0.0, 1.0):
        probs = head.predict_proba(0.1 * features + shift * w / w.dot(w))
        above = probs.flip(-1).cumsum(dim=-1).flip(-1)[:, 1:]
        logits.append(torch.logit(above))
    torch.testing.assert_close(logits[1] - logits[0], torch.ones(200, 5).double())


def test_coral_has_the_same_distribution():
    head, features, _ = head_and_batch()
    coral = create("coral", 6, 8).double()
    with torch.no_grad():
        coral.linear.weight.copy_(head.linear.weight)
        coral.biases.copy_(-head.cut_points())
    torch.testing.assert_close(coral.log_probs(features), head.log_probs(features))


def test_cut_points_of_a_module_in_half_precision_are_in_single():
    head = create("proportional-odds", 6, 8).bfloat16()
    assert head.cut_points().dtype == torch.float32
