"""Questions about thresholds: what the formulas promise, and five heads against other libraries."""

import numpy as np
import pytest
import torch
from coral_pytorch.dataset import corn_label_from_logits, levels_from_labelbatch, proba_to_label
from coral_pytorch.layers import CoralLayer
from coral_pytorch.losses import coral_loss, corn_loss
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from spacecutter.losses import cumulative_link_loss
from spacecutter.models import LogisticCumulativeLink
from torch.distributions.transforms import StickBreakingTransform

from layline.geometry.decoding import median
from layline.heads import create
from layline.heads.cumulative import log_probs_from_conditional, log_probs_from_cumulative

SIZES = pytest.mark.parametrize("num_classes", [2, 6, 101])
SHAPES = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 7, 40]))


def logits_within(size):
    """Any logits, with ties: every second draw repeats a few values."""
    numbers = st.one_of(st.floats(-size, size), st.sampled_from([-1.5, 0.0, 0.5, 2.0]))
    return hnp.arrays(np.float64, SHAPES, elements=numbers).map(torch.from_numpy)


@pytest.mark.parametrize("function", [log_probs_from_cumulative, log_probs_from_conditional])
@given(logits_within(1e4))
def test_any_logits_make_a_distribution(function, logits):
    for given_logits, tolerance in ((logits, 1e-12), (logits.float(), 1e-5)):
        log_probs = function(given_logits)
        assert log_probs.shape[1] == logits.shape[1] + 1
        assert log_probs.isfinite().all()
        total = log_probs.exp().sum(dim=-1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=tolerance)


@given(logits_within(30.0))
def test_sorting_keeps_the_probabilities_the_expected_rank_and_the_count(logits):
    log_probs = log_probs_from_cumulative(logits)
    kept = logits.sigmoid().sort(dim=-1, descending=True).values
    exceedance = log_probs.exp().flip(-1).cumsum(dim=-1).flip(-1)[:, 1:]  # P(y > k)
    torch.testing.assert_close(exceedance, kept, rtol=0, atol=1e-12)
    expected = log_probs.exp() @ torch.arange(logits.shape[1] + 1.0).double()
    torch.testing.assert_close(expected, logits.sigmoid().sum(dim=-1), rtol=0, atol=1e-10)
    undecided = (logits.sigmoid() - 0.5).abs().min(dim=-1).values < 1e-12
    count = (logits.sigmoid() > 0.5).sum(dim=-1)
    assert (undecided | (median(log_probs.exp()) == count)).all()


# The heads: weights as they are after some training, logits that are large and not in order


def head_and_batch(name, num_classes=6, n=200, bias=0.0):
    head = create(name, num_classes, 8).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        if head.linear.bias is not None:
            head.linear.bias.normal_(mean=bias)
        if name == "proportional-odds":
            head.first_cut.normal_(mean=-2.0)
            head.steps.normal_()
    return head, torch.randn(n, 8).double(), torch.randint(num_classes, (n,))


def logits_of(head, features):
    return features @ head.linear.weight.T + head.linear.bias


@pytest.mark.parametrize("name", ["proportional-odds", "stick-breaking"])
@pytest.mark.parametrize("num_classes", [2, 6, 1000])
def test_the_classes_start_with_equal_shares(name, num_classes):
    head = create(name, num_classes, 8).double()
    probs = head.predict_proba(torch.zeros(1, 8))
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / num_classes), rtol=1e-4, atol=0)


@SIZES
@pytest.mark.parametrize("shuffled", [False, True])
def test_coral_has_the_loss_and_the_label_of_coral_pytorch(num_classes, shuffled):
    """Also when training has put the biases out of order."""
    head, layer = create("coral", num_classes, 8).double(), CoralLayer(8, num_classes).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        if shuffled:
            head.biases.normal_()
        layer.coral_weights.weight.copy_(head.linear.weight)
        layer.coral_bias.copy_(head.biases)
    features, ranks = torch.randn(200, 8).double(), torch.randint(num_classes, (200,))
    levels = levels_from_labelbatch(ranks, num_classes, dtype=torch.float64)
    theirs = coral_loss(layer(features), levels)
    torch.testing.assert_close(head.loss(features, ranks), theirs, rtol=1e-12, atol=0)
    label = proba_to_label(layer(features).sigmoid())
    assert torch.equal(head.predict(features, decode="median"), label)


@SIZES
def test_corn_is_that_of_coral_pytorch_over_the_mean_number_of_questions(num_classes):
    """The library divides by the questions asked in the batch, we by its samples."""
    # without a bias few samples would pass the first questions
    head, features, ranks = head_and_batch("corn", num_classes, bias=2.0)
    logits = logits_of(head, features)
    questions = (ranks + 1).clamp(max=num_classes - 1).double().mean()
    ours, theirs = head.loss(features, ranks) / questions, corn_loss(logits, ranks, num_classes)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0)
    gradient, other = (torch.autograd.grad(x, head.linear.weight)[0] for x in (ours, theirs))
    torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)
    labels = corn_label_from_logits(logits)
    assert len(labels.unique()) >= min(num_classes, 5)
    assert torch.equal(head.predict(features, decode="median"), labels)


@pytest.mark.parametrize("num_classes", [3, 6, 101])  # spacecutter refuses two classes
def test_proportional_odds_agree_with_spacecutter(num_classes):
    head, features, ranks = head_and_batch("proportional-odds", num_classes)
    link = LogisticCumulativeLink(num_classes).double()
    with torch.no_grad():
        link.cutpoints.copy_(head.cut_points())
    theirs = link(features @ head.linear.weight.T)
    torch.testing.assert_close(head.predict_proba(features), theirs, rtol=0, atol=1e-12)
    likely = theirs[torch.arange(len(ranks)), ranks] > 1e-9  # below, it subtracts digits away
    loss = head.loss(features, ranks, sample_weight=likely.double())
    other = cumulative_link_loss(theirs[likely], ranks[likely, None])
    torch.testing.assert_close(loss, other, rtol=1e-6, atol=0)


@SIZES
def test_stick_breaking_agrees_with_the_transform_of_torch(num_classes):
    head, features, _ = head_and_batch("stick-breaking", num_classes, bias=-1.0)
    offset = torch.arange(num_classes - 1, 0, -1).double().log()  # it subtracts this itself
    theirs = StickBreakingTransform()(logits_of(head, features) + offset)
    torch.testing.assert_close(head.predict_proba(features), theirs, rtol=0, atol=1e-12)
