import itertools

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from layline.heads import create, pairs
from layline.heads.pairs import mean_triplet_hinge


def batch(num_classes=4, dim=6, n=9):
    return torch.randn(n, dim).double(), torch.randint(num_classes, (n,))


def gaussians(head, features):
    """The samples' Gaussians, as torch's own distributions."""
    mean, log_variance = head._gaussians(features)
    return [
        Independent(Normal(m, (0.5 * v).exp()), 1) for m, v in zip(mean, log_variance, strict=True)
    ]


def hinge_by_hand(distances, ranks, weights, margin):
    """All triplets in a plain loop: the near sample may be the anchor itself."""
    hinge, total = (distances * 0).sum(), 0.0
    for a, p, q in itertools.product(range(len(ranks)), repeat=3):
        if abs(ranks[a] - ranks[p]) < abs(ranks[a] - ranks[q]):
            weight = weights[a] * weights[p] * weights[q]
            hinge = hinge + weight * torch.relu(margin + distances[a, p] - distances[a, q])
            total += weight
    return hinge / total if total else hinge


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_that_of_the_formula(weighted):
    head = create("poe", 4, 6, samples=7, alpha=0.02, beta=0.3, margin=4.0).double().eval()
    features, ranks = batch()
    weights = torch.rand(9).double() if weighted else torch.ones(9).double()
    draws = head._fixed_draws(features)
    standard = Independent(Normal(torch.zeros(6).double(), 1.0), 1)
    each = []
    for i, gaussian in enumerate(gaussians(head, features)):
        sigma = gaussian.base_dist.scale
        logits = torch.stack([head.classifier(gaussian.mean + sigma * e[0]) for e in draws])
        entropy = torch.nn.functional.cross_entropy(logits, ranks[i].expand(7))
        each.append(entropy + 0.02 * kl_divergence(gaussian, standard))
    mean = (weights * torch.stack(each)).sum() / weights.sum()
    everyone = gaussians(head, features)
    distances = torch.stack(
        [
            torch.stack([kl_divergence(a, b) + kl_divergence(b, a) for b in everyone])
            for a in everyone
        ]
    )
    expected = mean + 0.3 * hinge_by_hand(distances, ranks, weights, 4.0)
    loss = head.loss(features, ranks, weights if weighted else None)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-10)


def test_probabilities_are_the_mean_over_the_draws():
    head = create("poe", 4, 6, samples=5).double()
    features, _ = batch()
    mean, log_variance = head._gaussians(features)
    expected = sum(
        torch.softmax(head.classifier(mean + (0.5 * log_variance).exp() * e), dim=-1)
        for e in head._fixed_draws(features)
    )
    torch.testing.assert_close(head.predict_proba(features), expected / 5, rtol=0, atol=1e-12)


def test_only_the_loss_in_training_draws_random_numbers():
    head = create("poe", 4, 6).double()
    features, ranks = batch()
    assert head.loss(features, ranks).item() != head.loss(features, ranks).item()
    state = torch.get_rng_state()
    assert torch.equal(head.predict_proba(features), head.predict_proba(features))
    head.eval()
    assert head.loss(features, ranks).item() == head.loss(features, ranks).item()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("num_classes", "n", "margin", "table"),
    [
        (2, 3, 5.0, 2**24),
        (5, 12, 1.0, 2**24),
        (7, 13, 3.0, 600),  # in blocks of a few anchors
        (7, 13, 3.0, 1),  # one anchor at a time
        (1000, 9, 2.0, 2**24),
        (4, 8, 0.0, 2**24),
    ],
)
def test_counted_triplets_are_the_same_as_a_plain_loop(monkeypatch, num_classes, n, margin, table):
    monkeypatch.setattr(pairs, "LARGEST_TABLE", table)
    distances = (6 * torch.rand(n, n).double()).requires_grad_()
    ranks, weights = torch.randint(num_classes, (n,)), torch.rand(n).double()
    weights[0] = 0
    ours = mean_triplet_hinge(distances, ranks, weights, margin, num_classes)
    plain = hinge_by_hand(distances, ranks, weights, margin)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    gradients = [torch.autograd.grad(value, distances)[0] for value in (ours, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)
