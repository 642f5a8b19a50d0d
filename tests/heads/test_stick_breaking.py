import math

import pytest
import torch
from torch.distributions.transforms import StickBreakingTransform

from layline.heads import HEADS, create


def head_and_batch(num_classes=6, n=200):
    head = create("stick-breaking", num_classes, 8).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        head.linear.bias.normal_(mean=-1.0)
    return head, torch.randn(n, 8).double(), torch.randint(num_classes, (n,))


def logits_of(head, features):
    return features @ head.linear.weight.T + head.linear.bias


def test_each_class_takes_its_share_of_what_is_left():
    """K − 1 shares, not clamped, and the rest for the last class.

    dlordinal's layer has K shares, forces them into [0.1, 0.9] and lets a softmax mend the sum, so
    that it is no stick any more; the values here are by hand.
    """
    head, features, ranks = head_and_batch(n=30)
    probs, total = head.predict_proba(features).tolist(), 0.0
    for row, eta, y in zip(probs, logits_of(head, features).tolist(), ranks.tolist(), strict=True):
        left, pieces = 1.0, []
        for e in eta:
            pieces.append(left / (1 + math.exp(-e)))
            left -= pieces[-1]
        assert row == pytest.approx([*pieces, left], abs=1e-12)
        total -= math.log([*pieces, left][y])
    assert head.loss(features, ranks).item() == pytest.approx(total / 30, rel=1e-9)


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_probabilities_agree_with_the_transform_of_torch(num_classes):
    head, features, _ = head_and_batch(num_classes)
    offset = torch.arange(num_classes - 1, 0, -1).double().log()  # it subtracts this itself
    theirs = StickBreakingTransform()(logits_of(head, features) + offset)
    torch.testing.assert_close(head.predict_proba(features), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_classes", [2, 6, 1000])
def test_the_classes_start_with_equal_shares(num_classes):
    head = create("stick-breaking", num_classes, 8).double()
    probs = head.predict_proba(torch.zeros(1, 8))
    torch.testing.assert_close(probs, torch.full_like(probs, 1 / num_classes), rtol=1e-4, atol=0)


def test_it_is_corn_with_the_sign_turned():
    head, features, ranks = head_and_batch()
    corn = create("corn", 6, 8).double()
    with torch.no_grad():
        corn.linear.weight.copy_(-head.linear.weight)
        corn.linear.bias.copy_(-head.linear.bias)
    torch.testing.assert_close(corn.log_probs(features), head.log_probs(features))
    torch.testing.assert_close(corn.loss(features, ranks), head.loss(features, ranks))
    assert (HEADS["corn"].decode, HEADS["stick-breaking"].decode) == ("median", "mode")
