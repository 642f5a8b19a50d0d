import numpy as np
import pytest
import torch
from coral_pytorch.dataset import levels_from_labelbatch, proba_to_label
from coral_pytorch.layers import CoralLayer
from coral_pytorch.losses import coral_loss
from scipy.special import expit

from layline.heads import HEADS, create


def pair(num_classes, shuffled=False):
    """Our head and coral-pytorch's layer with the same parameters."""
    head, layer = create("coral", num_classes, 8).double(), CoralLayer(8, num_classes).double()
    with torch.no_grad():
        head.linear.weight.normal_()
        if shuffled:
            head.biases.normal_()
        layer.coral_weights.weight.copy_(head.linear.weight)
        layer.coral_bias.copy_(head.biases)
    return head, layer


def batch(num_classes, n=200):
    return torch.randn(n, 8).double(), torch.randint(num_classes, (n,))


@pytest.mark.parametrize("num_classes", [2, 6, 101])
@pytest.mark.parametrize("shuffled", [False, True])
def test_loss_agrees_with_coral_pytorch(num_classes, shuffled):
    head, layer = pair(num_classes, shuffled)
    features, ranks = batch(num_classes)
    levels = levels_from_labelbatch(ranks, num_classes, dtype=torch.float64)
    theirs = coral_loss(layer(features), levels)
    torch.testing.assert_close(head.loss(features, ranks), theirs, rtol=1e-12, atol=0)


def test_loss_is_the_formula():
    head, _ = pair(5, shuffled=True)
    features, ranks = batch(5, n=30)
    score = features.numpy() @ head.linear.weight.detach().numpy()[0]
    total = 0.0
    for s, y in zip(score, ranks.tolist(), strict=True):
        for k, b in enumerate(head.biases.tolist()):
            total -= np.log(expit(s + b)) if y > k else np.log(1 - expit(s + b))
    assert head.loss(features, ranks).item() == pytest.approx(total / 30, rel=1e-10)


@pytest.mark.parametrize("num_classes", [2, 6, 101])
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_median_is_the_label_of_coral_pytorch(num_classes, shuffled):
    """Also when training has put the biases out of order."""
    head, layer = pair(num_classes, shuffled)
    features, _ = batch(num_classes)
    theirs = proba_to_label(layer(features).sigmoid())
    assert torch.equal(head.predict(features, decode="median"), theirs)
    assert HEADS["coral"].decode == "median"


@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_one_weight_vector_and_biases_that_start_in_order(num_classes):
    head = create("coral", num_classes, 8)
    assert head.linear.weight.shape == (1, 8)
    assert head.linear.bias is None
    assert (head.biases.diff() < 0).all()
    assert torch.equal(head.biases, CoralLayer(8, num_classes).coral_bias)


@pytest.mark.parametrize("shuffled", [False, True])
def test_probabilities_are_differences_in_the_order_of_the_biases(shuffled):
    head, layer = pair(6, shuffled)
    features, _ = batch(6)
    above = layer(features).sigmoid().detach().sort(dim=-1, descending=True).values
    above = torch.nn.functional.pad(above, (1, 0), value=1.0)
    above = torch.nn.functional.pad(above, (0, 1))
    torch.testing.assert_close(
        head.predict_proba(features), above[:, :-1] - above[:, 1:], rtol=0, atol=1e-12
    )


def test_biases_that_coincide_leave_their_class_next_to_nothing():
    head = create("coral", 4, 8).double()
    with torch.no_grad():
        head.biases.copy_(torch.tensor([1.0, 0.0, 0.0]))
    log_probs = head.log_probs(torch.randn(5, 8).double())
    assert log_probs.isfinite().all()
    assert (log_probs[:, 2] < -50).all()
