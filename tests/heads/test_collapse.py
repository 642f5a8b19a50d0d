"""What keeps the proxies apart: Q is a target, not something to optimise; springs are springs."""

import pytest
import torch
from torch import nn

from layline.geometry import losses
from layline.heads import OrdinalHead, create

pytestmark = pytest.mark.slow
NUM_CLASSES = 5


def overlapping_bands():
    """Five classes that overlap a little along one input."""
    x = torch.rand(150, 3)
    noisy = (x[:, 0] + 0.06 * torch.randn(150)).clamp(0, 0.999)
    return x, (noisy * NUM_CLASSES).long()


def train(head, loss_of, steps=300):
    """Train a small network and the head; give back the accuracy on the training samples."""
    x, ranks = overlapping_bands()
    net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    rates = [{"params": net.parameters(), "lr": 5e-3}, {"params": head.parameters(), "lr": 2e-2}]
    optimiser = torch.optim.AdamW(rates)
    for _ in range(steps):
        optimiser.zero_grad()
        loss_of(head, net(x), ranks).backward()
        optimiser.step()
    return (head.predict(net(x)) == ranks).double().mean().item()


def loss_with_gradient_through_q(head, features, ranks):
    log_q = losses.log_q(head.layout, head.similarity, ranks)
    return losses.kl(log_q, head(features)).mean()


def test_hard_linear_collapses_with_gradient_through_q_and_ours_does_not():
    left = {}
    for loss_of in (loss_with_gradient_through_q, OrdinalHead.loss):
        torch.manual_seed(0)
        head = create("hard-linear", NUM_CLASSES, 8)
        start = head.layout.vectors.norm().item()
        accuracy = train(head, loss_of)
        left[loss_of] = head.layout.vectors.norm().item() / start
    assert left[loss_with_gradient_through_q] < 0.15
    assert left[OrdinalHead.loss] > 0.7
    assert accuracy > 0.75


NO_PENALTY = {"stiffness": 0.0}
LABEL = {"stiffness": 0.0, "rps": 0.0, "target": "onehot"}


@pytest.mark.parametrize(
    ("name", "merging", "apart"),
    [
        ("elastic-linear", NO_PENALTY, {}),
        ("elastic-semicircular", NO_PENALTY, {}),
        ("arc", {**LABEL, "target": "proxies"}, LABEL),
    ],
)
def test_neighbours_merge_without_a_penalty_unless_the_label_is_the_target(name, merging, apart):
    """The classes are equally far apart here, so the steps should stay roughly even."""
    smallest = []
    for options in (merging, apart):
        torch.manual_seed(0)
        head = create(name, NUM_CLASSES, 8, **options)
        train(head, OrdinalHead.loss)
        steps = torch.softmax(head.layout.spacing.weights, dim=0)
        smallest.append(steps.min().item() * (NUM_CLASSES - 1))
    assert smallest[0] < 0.3
    assert smallest[1] > 0.4
