"""POE and CNNPOR against their formulas in plain loops."""

import itertools

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional as F

from layline.heads import create, pairs
from layline.heads.pairs import mean_triplet_hinge

WEIGHTED = pytest.mark.parametrize("weighted", [False, True])


def batch(num_classes=4, dim=6, n=9):
    return torch.randn(n, dim).double(), torch.randint(num_classes, (n,))


def hinge_by_hand(distances, ranks, weights, margin):
    """Sum over all triplets: the near sample may be the anchor itself."""
    hinge, total = (distances * 0).sum(), 0.0
    for a, p, q in itertools.product(range(len(ranks)), repeat=3):
        if abs(ranks[a] - ranks[p]) < abs(ranks[a] - ranks[q]):
            weight = weights[a] * weights[p] * weights[q]
            hinge = hinge + weight * torch.relu(margin + distances[a, p] - distances[a, q])
            total += weight
    return hinge / total if total else hinge


@WEIGHTED
def test_the_loss_of_poe_is_that_of_the_formula(weighted):
    head = create("poe", 4, 6, samples=7, alpha=0.02, beta=0.3, margin=4.0).double().eval()
    features, ranks = batch()
    weights = torch.rand(9).double() if weighted else torch.ones(9).double()
    standard = Independent(Normal(torch.zeros(6).double(), 1.0), 1)
    gaussians = [
        Independent(Normal(m, (0.5 * v).exp()), 1)
        for m, v in zip(*head._gaussians(features), strict=True)
    ]
    each = []
    for gaussian, rank in zip(gaussians, ranks, strict=True):
        draws = gaussian.mean + gaussian.base_dist.scale * head._fixed_draws(features)[:, 0]
        entropy = F.cross_entropy(head.classifier(draws), rank.expand(7))
        each.append(entropy + 0.02 * kl_divergence(gaussian, standard))
    mean = (weights * torch.stack(each)).sum() / weights.sum()
    distances = torch.stack(
        [kl_divergence(a, b) + kl_divergence(b, a) for a in gaussians for b in gaussians]
    ).view(9, 9)
    expected = mean + 0.3 * hinge_by_hand(distances, ranks, weights, 4.0)
    loss = head.loss(features, ranks, weights if weighted else None)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-10)


def test_only_the_loss_of_poe_in_training_draws_random_numbers():
    head = create("poe", 4, 6).double()
    features, ranks = batch()
    assert head.loss(features, ranks).item() != head.loss(features, ranks).item()
    state = torch.get_rng_state()
    assert torch.equal(head.predict_proba(features), head.predict_proba(features))
    head.eval()
    assert head.loss(features, ranks).item() == head.loss(features, ranks).item()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("num_classes", "n", "margin", "block"),
    [
        (2, 3, 5.0, 2**24),
        (7, 13, 3.0, 600),  # in blocks of a few anchors
        (7, 13, 3.0, 1),  # one anchor at a time
        (1000, 9, 2.0, 2**24),
        (4, 8, 0.0, 2**24),
    ],
)
def test_counted_triplets_are_the_same_as_a_plain_loop(monkeypatch, num_classes, n, margin, block):
    monkeypatch.setattr(pairs, "LARGEST_BLOCK", block)
    distances = (6 * torch.rand(n, n).double()).requires_grad_()
    ranks, weights = torch.randint(num_classes, (n,)), torch.rand(n).double()
    weights[0] = 0
    ours = mean_triplet_hinge(distances, ranks, weights, margin)
    plain = hinge_by_hand(distances, ranks, weights, margin)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)
    gradients = [torch.autograd.grad(value, distances)[0] for value in (ours, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@WEIGHTED
@pytest.mark.parametrize("ranks", [[0, 1, 3, 1, 2, 0, 2, 2, 3], [0, 2, 0, 2, 0, 2, 0, 2, 2]])
def test_the_loss_of_cnnpor_is_that_of_the_formula(ranks, weighted):
    """Without adjacent classes only the cross entropy is left."""
    head = create("cnnpor", 4, 6, lam=0.3, margin=2.5).double()
    features, ranks = batch()[0], torch.tensor(ranks)
    weights = torch.rand(9).double() if weighted else torch.ones(9).double()
    scores = head.linear(features)
    entropies = F.cross_entropy(scores[:, :-1], ranks, reduction="none")
    hinge = total = 0.0
    for i, j in itertools.product(range(9), repeat=2):
        if ranks[i] == ranks[j] + 1:
            pair = weights[i] * weights[j]
            hinge += pair * torch.relu(2.5 - (scores[i, -1] - scores[j, -1]))
            total += pair
    expected = (weights * entropies).sum() / weights.sum() + (0.3 * hinge / total if total else 0)
    loss = head.loss(features, ranks, weights if weighted else None)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-10)
