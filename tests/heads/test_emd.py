import numpy as np
import pytest
import torch
from dlordinal.losses import EMDLoss
from scipy.special import softmax

from layline.heads import create
from layline.metrics import ranked_probability_score


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_squared_difference_of_cumulative_probabilities(num_classes):
    head = create("emd", num_classes, 5).double()
    features, ranks = batch(num_classes)
    probs = softmax(head._scores(features).detach().numpy(), axis=1)
    plain = [
        sum((row[: k + 1].sum() - (k >= y)) ** 2 for k in range(num_classes))
        for row, y in zip(probs, ranks.tolist(), strict=True)
    ]
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), abs=1e-10)


def test_loss_and_gradient_agree_with_dlordinal(gradients):
    """The same normalisation: a plain sum over the classes, averaged over the batch.

    Its documentation calls that the ranked probability score, which is this divided by K − 1.
    """
    head = create("emd", 7, 5).double()
    features, ranks = batch(7)
    features.requires_grad_()
    ours, theirs = head.loss(features, ranks), EMDLoss(7)(head._scores(features), ranks)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
    for a, b in zip(gradients(ours, features), gradients(theirs, features), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_classes", [2, 6])
def test_loss_is_the_ranked_probability_score_times_k_minus_one(num_classes):
    head = create("emd", num_classes, 5).double()
    features, ranks = batch(num_classes)
    score = ranked_probability_score(ranks.numpy(), head.predict_proba(features).detach().numpy())
    assert head.loss(features, ranks).item() == pytest.approx((num_classes - 1) * score, rel=1e-12)


def test_a_sure_prediction_costs_its_distance_in_ranks():
    head = create("emd", 6, 6).double()
    with torch.no_grad():
        head.linear.weight.copy_(1e4 * torch.eye(6))
        head.linear.bias.zero_()
    sure = torch.eye(6, dtype=torch.float64)
    for rank in range(6):
        costs = [head.loss(row[None], torch.tensor([rank])).item() for row in sure]
        assert costs == pytest.approx([abs(k - rank) for k in range(6)], abs=1e-12)
