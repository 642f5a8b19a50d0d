import numpy as np
import pytest
import torch
from coral_pytorch.dataset import levels_from_labelbatch
from coral_pytorch.losses import coral_loss
from scipy.special import expit

from layline.heads import HEADS, create


def head_and_batch(num_classes=6, n=200):
    """Weights as they are after some training: logits that are large, and not in order."""
    head = create("ranking", num_classes, 8).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        head.linear.bias.normal_()
    return head, torch.randn(n, 8).double(), torch.randint(num_classes, (n,))


def logits_of(head, features):
    return features @ head.linear.weight.detach().T + head.linear.bias.detach()


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_sum_of_the_binary_cross_entropies(num_classes):
    head, features, ranks = head_and_batch(num_classes)
    z, y = logits_of(head, features).numpy(), ranks.numpy()[:, None]
    passed = y > np.arange(num_classes - 1)
    terms = -np.where(passed, np.log(expit(z)), np.log(expit(-z)))
    assert head.loss(features, ranks).item() == pytest.approx(terms.sum(axis=1).mean(), rel=1e-10)


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_agrees_with_coral_pytorch_on_the_same_logits(num_classes):
    """CORAL changes the layer, not the loss."""
    head, features, ranks = head_and_batch(num_classes)
    levels = levels_from_labelbatch(ranks, num_classes, dtype=torch.float64)
    theirs = coral_loss(logits_of(head, features), levels)
    torch.testing.assert_close(head.loss(features, ranks), theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_the_median_is_the_number_of_questions_answered_with_yes(num_classes):
    head, features, _ = head_and_batch(num_classes)
    logits = logits_of(head, features)
    if num_classes > 2:
        assert (logits.diff(dim=-1) > 0).any(dim=-1).float().mean() > 0.9  # they contradict
    count = (logits.sigmoid() > 0.5).sum(dim=-1)
    assert torch.equal(head.predict(features, decode="median"), count)
    assert HEADS["ranking"].decode == "median"


def test_probabilities_are_differences_of_the_sorted_answers():
    head, features, _ = head_and_batch()
    yes = -np.sort(-expit(logits_of(head, features).numpy()), axis=1)
    above = np.pad(np.pad(yes, ((0, 0), (1, 0)), constant_values=1), ((0, 0), (0, 1)))
    probs = head.predict_proba(features).detach().numpy()
    np.testing.assert_allclose(probs, above[:, :-1] - above[:, 1:], rtol=0, atol=1e-12)


def test_each_threshold_has_weights_of_its_own():
    assert create("ranking", 6, 8).linear.weight.shape == (5, 8)
