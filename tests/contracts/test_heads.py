"""What is true of every head in the registry, and of the heads of our example of a plug-in."""

import copy
import itertools
import pickle
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from layline.geometry.decoding import DECODINGS
from layline.heads import OrdinalHead, create, names
from layline.utils.validation import UserError

sys.path.append(str(Path(__file__).parents[2] / "examples"))
my_plugin = import_module("my_plugin")
EVERY = pytest.mark.parametrize("name", [*names(), my_plugin.Bump, my_plugin.quarter])


def batch(num_classes, dim, n=40, dtype=torch.float32):
    ranks = torch.arange(n) % num_classes
    return torch.randn(n, dim, dtype=dtype, requires_grad=True), ranks


def assert_trains(head, features, ranks):
    """One backward pass gives a finite loss and finite gradients everywhere."""
    head.zero_grad()
    features = features.detach().requires_grad_()
    loss = head.loss(features, ranks)
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()
    for parameter in head.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


def assert_finite(head, features, ranks):
    assert_trains(head, features, ranks)
    probs = head.predict_proba(features)
    assert probs.dtype == torch.float32
    torch.testing.assert_close(probs.sum(dim=-1), torch.ones(40), rtol=0, atol=1e-5)
    # far away many classes tie to the last digit; the choice is then one of the tied
    chosen = probs.gather(1, head.predict(features)[:, None])[:, 0]
    torch.testing.assert_close(chosen, probs.max(dim=-1).values, rtol=1e-4, atol=0)


@EVERY
def test_probabilities_are_a_distribution(name):
    for num_classes in (2, 3, 101):
        head = create(name, num_classes, 16).double()
        features, _ = batch(num_classes, 16, dtype=torch.float64)
        probs = head.predict_proba(features)
        assert probs.shape == (40, num_classes)
        assert (probs >= 0).all()
        torch.testing.assert_close(probs.sum(dim=-1), torch.ones(40).double(), rtol=0, atol=1e-12)
        torch.testing.assert_close(head.log_probs(features).exp(), probs)
        assert torch.equal(head(features), head.log_probs(features))


@EVERY
@pytest.mark.parametrize("weighted", [False, True])
def test_reductions_are_those_of_the_losses_one_by_one(name, weighted):
    head = create(name, 5, 8).double().eval()
    features, ranks = batch(5, 8, dtype=torch.float64)
    weights = torch.rand(len(ranks), dtype=torch.float64) if weighted else None
    each, total, mean = (
        head(features, ranks, weights, reduction=reduction) for reduction in ("none", "sum", "mean")
    )
    assert torch.equal(mean, head.loss(features, ranks, weights))
    torch.testing.assert_close(each.sum(), total)
    torch.testing.assert_close(total / (weights.sum() if weighted else len(ranks)), mean)
    if type(head)._batch_loss is OrdinalHead._batch_loss:  # it does not compare samples
        alone = head.loss(features[3:4], ranks[3:4]) * (weights[3] if weighted else 1)
        torch.testing.assert_close(each[3], alone)
    with pytest.raises(ValueError, match=r"reduction must be .* got 'avg'"):
        head.loss(features, ranks, reduction="avg")
    with pytest.raises(ValueError, match="sample_weight must come with labels"):
        head(features, sample_weight=torch.ones(len(ranks)))


@EVERY
@pytest.mark.parametrize("length", [1.0, 2200.0])
def test_decisions_are_the_predictions_by_every_decoding(name, length):
    head = create(name, 8, 16).eval()
    features = length * torch.nn.functional.normalize(torch.randn(400, 16))
    decisions = head.decisions(features)
    assert list(decisions) == list(DECODINGS)
    for decode, ranks in decisions.items():
        assert torch.equal(ranks, head.predict(features, decode))
        assert torch.equal(ranks, head.decisions(features, head(features))[decode])


@EVERY
def test_the_mode_is_the_arg_max_of_the_probabilities(name):
    for num_classes, spread in ((2, 0.3), (3, 3.0), (101, 0.3), (101, 3.0)):
        head = create(name, num_classes, 16).double()
        features = spread * torch.randn(500, 16).double()
        if hasattr(head, "proxies"):
            features = features + head.proxies()[torch.randint(num_classes, (500,))]
        assert torch.equal(head.predict(features), head.predict_proba(features).argmax(dim=-1))


@EVERY
@pytest.mark.parametrize("place", ["proxy", "zero", "1e4", "1e-20"])
def test_loss_and_gradients_are_finite_in_extreme_places(name, place):
    head = create(name, 8, 32)
    features, ranks = batch(8, 32)
    if place == "zero":
        features = torch.zeros_like(features)
    elif place != "proxy":
        features = float(place) * features.detach()
    elif hasattr(head, "proxies"):
        features = head.proxies().detach()[ranks]
    assert_finite(head, features, ranks)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_finite(head, features.bfloat16(), ranks)


@EVERY
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_results_have_the_precision_of_the_module_and_at_least_single(name, dtype):
    head = create(name, 5, 8).to(dtype)
    features, ranks = batch(5, 8, dtype=dtype)
    at_least_single = torch.promote_types(dtype, torch.float32)
    assert head.loss(features, ranks).dtype == at_least_single
    assert head.predict_proba(features).dtype == at_least_single
    assert_trains(head, features, ranks)


@EVERY
def test_everything_follows_the_module_to_its_device(name):
    """The meta device stands in for an accelerator: a tensor left behind would be an error."""
    head = create(name, 5, 8).to("meta")
    features, ranks = torch.empty(6, 8, device="meta"), torch.zeros(6, dtype=int, device="meta")
    assert head.loss(features, ranks).device.type == "meta"
    assert head.predict_proba(features).device.type == "meta"
    assert head.predict(features).device.type == "meta"
    with pytest.raises(ValueError, match="features must be on the head's device meta, got cpu"):
        head.loss(torch.zeros(6, 8), ranks)


@EVERY
def test_copies_and_pickles_are_whole_and_independent(name):
    features, ranks = batch(6, 8)
    head = create(name, 6, 8).eval()
    loss = head.loss(features, ranks).item()  # constants are made by now
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert other.loss(features, ranks).item() == loss
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1)
        assert head.loss(features, ranks).item() == loss


@EVERY
def test_integer_weights_count_as_repetitions(name):
    head = create(name, 5, 8).double().eval()
    features, ranks = batch(5, 8, n=10, dtype=torch.float64)
    weights = torch.tensor([0, 1, 2, 3, 1, 1, 0, 2, 1, 4])
    repeated = head.loss(features.repeat_interleave(weights, 0), ranks.repeat_interleave(weights))
    weighted = head.loss(features, ranks, sample_weight=weights)
    torch.testing.assert_close(weighted, repeated, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@EVERY
def test_learns_a_separable_problem(name):
    """Five bands of one number, through a small network."""
    num_classes = 5
    x = torch.rand(100, 3)
    ranks = (x[:, 0] * num_classes).long()
    x = x - 0.15 / num_classes * torch.sign(x[:, :1] * num_classes % 1 - 0.5)  # a gap between bands
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 16),
    )  # fmt: skip
    head = create(name, num_classes, 16)
    rates = [{"params": net.parameters(), "lr": 5e-3}, {"params": head.parameters(), "lr": 1e-2}]
    optimiser = torch.optim.AdamW(rates)
    for step in range(1, 501):
        optimiser.zero_grad()
        head.loss(net(x), ranks).backward()
        optimiser.step()
        if step % 20 == 0 and (head.predict(net(x)) == ranks).float().mean() > 0.95:
            return
    pytest.fail("it has not learned in 500 steps what a line separates")


WRONG_SIZES = [
    ({"num_classes": 1}, "num_classes must be an integer, at least 2, got 1"),
    ({"dim": 0}, "dim must be an integer, at least 1, got 0"),
]
WRONG_BATCHES = [
    ({"labels": torch.tensor([0, 5, 1])}, r"ranks must be in 0…4, got 5"),
    ({"labels": torch.tensor([0, -1, 1])}, r"ranks must be in 0…4, got -1"),
    ({"labels": torch.tensor([0.0, 1.0, 1.0])}, r"ranks must be integers, got torch.float32"),
    ({"labels": torch.tensor([0, 1])}, r"labels must have the shape \(3,\), got \(2,\)"),
    ({"features": torch.zeros(3, 7)}, r"features must have the shape \(n, 8\), got \(3, 7\)"),
    ({"features": np.zeros((3, 8))}, "features must be a tensor, got ndarray"),
    ({"labels": [0, 4, 1]}, "labels must be a tensor, got list"),
    ({"labels": torch.zeros(3, dtype=int, device="meta")}, "labels must be on the head's device"),
    ({"features": torch.zeros(0, 8), "labels": torch.zeros(0).long()}, "at least one sample"),
    ({"sample_weight": torch.ones(2)}, r"sample_weight must have the shape \(3,\), got \(2,\)"),
    ({"sample_weight": torch.tensor([1, -2.0, 1])}, "must be finite, .* got -2.0"),
    ({"sample_weight": torch.tensor([1, torch.nan, 1])}, "must be finite, .* got nan"),
    ({"sample_weight": torch.zeros(3)}, "not all zero, got zeros"),
]


@EVERY
def test_what_is_wrong_is_named_with_its_value(name):
    for change, message in WRONG_SIZES:
        with pytest.raises(ValueError, match=message):
            create(name, **{"num_classes": 5, "dim": 8, **change})
    head = create(name, 5, 8)
    for change, message in WRONG_BATCHES:
        given = {"features": torch.zeros(3, 8), "labels": torch.tensor([0, 4, 1]), **change}
        with pytest.raises(ValueError, match=message):
            head.loss(**given)


@EVERY
@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_feature_that_is_not_finite_makes_a_loss_that_is_not(name, num_classes):
    """So that training stops, whatever the rank and the direction of the head's weights."""
    head = create(name, num_classes, 8)
    for training in (True, False):
        head.train(training)
        features, ranks = batch(num_classes, 8, n=10)
        features = features.detach()
        assert head.loss(features, ranks).isfinite()
        for value, place in itertools.product((torch.inf, -torch.inf, torch.nan), (0, 7)):
            for sample in range(num_classes):
                changed = features.clone()
                changed[sample, place] = value
                assert not head.loss(changed, ranks, reduction="none")[sample].isfinite()


@EVERY
def test_no_samples_and_features_that_are_not_finite_have_no_predictions(name):
    head, features = create(name, 5, 8), torch.zeros(3, 8)
    assert head.predict(torch.zeros(0, 8)).shape == (0,)
    assert head.predict_proba(torch.zeros(0, 8)).shape == (0, 5)
    for value in (torch.nan, torch.inf, -torch.inf):
        features[1, 2] = value
        for predict in (head.predict, head.predict_proba, head.decisions):
            with pytest.raises(UserError, match="features must be finite"):
                predict(features)
    assert head.predict(torch.full((2, 8), 3e38)).shape == (2,)  # only their sum overflows


# Votes and intervals


def loss_and_gradients(head, features, labels, weights=None):
    """The loss of each sample, and the gradients of the mean, with the same random numbers."""
    head.zero_grad()
    features = features.detach().requires_grad_()
    torch.manual_seed(0)
    each = head.loss(features, labels, weights, reduction="none")
    torch.manual_seed(0)
    head.loss(features, labels, weights).backward()
    gradients = [p.grad for p in head.parameters() if p.grad is not None]
    return [each.detach(), features.grad, *gradients]


@EVERY
def test_certain_votes_and_intervals_of_one_rank_are_the_plain_label(name):
    head = create(name, 5, 8).double()
    features, ranks = batch(5, 8, dtype=torch.float64)
    weights = torch.rand(len(ranks), dtype=torch.float64)
    votes = 3 * torch.nn.functional.one_hot(ranks, 5).double()
    expected = loss_and_gradients(head, features, ranks, weights)
    for labels in (votes, votes.float(), ranks[:, None].expand(-1, 2)):
        found = loss_and_gradients(head, features, labels, weights)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def is_separate(name):
    """Whether the loss of a sample depends on nothing else, neither others nor random numbers."""
    head = create(name, 5, 8)
    members = getattr(head, "members", [head])
    compares = any(type(m)._batch_loss is not OrdinalHead._batch_loss for m in members)
    return not compares and name not in ("poe", "gp-dnnor")


def is_likelihood(name):
    return type(create(name, 5, 8))._losses is OrdinalHead._losses and is_separate(name)


@pytest.mark.parametrize("name", [*filter(is_separate, names())])
def test_votes_give_the_expected_loss(name):
    head = create(name, 4, 8).double()
    features, _ = batch(4, 8, dtype=torch.float64)
    votes = torch.rand(len(features), 4, dtype=torch.float64) ** 3
    votes[:, 1] = 0
    every = [head.loss(features, torch.full((40,), k), reduction="none") for k in range(4)]
    expected = (votes / votes.sum(dim=1, keepdim=True) * torch.stack(every, dim=1)).sum(dim=1)
    torch.testing.assert_close(head.loss(features, votes, reduction="none"), expected)


@EVERY
def test_an_interval_has_a_finite_loss(name):
    head = create(name, 6, 8)
    features, ranks = batch(6, 8)
    intervals = torch.stack([ranks, (ranks + 2).clamp(max=5)], dim=1)
    assert_trains(head, features, intervals)


@pytest.mark.parametrize("name", [*filter(is_likelihood, names())])
def test_an_interval_has_the_gradient_of_its_likelihood(name):
    head = create(name, 6, 8).double()
    features, _ = batch(6, 8, dtype=torch.float64)
    low = torch.arange(40) % 6
    intervals = torch.stack([low, (low + torch.arange(40) % 3).clamp(max=5)], dim=1)
    found = loss_and_gradients(head, features, intervals)
    whole = torch.tensor([[0, 5]]).expand(40, 2)
    features = features.detach().requires_grad_()
    log_probs = head.log_probs(features)
    inside = (torch.arange(6) >= intervals[:, :1]) & (torch.arange(6) <= intervals[:, 1:])
    head.zero_grad()
    (-log_probs.masked_fill(~inside, -torch.inf).logsumexp(dim=1)).mean().backward()
    expected = [p.grad for p in head.parameters() if p.grad is not None]
    torch.testing.assert_close(found[1:], [features.grad, *expected], rtol=0, atol=1e-9)
    nothing = loss_and_gradients(head, features, whole)[1:]
    assert all(gradient.abs().max() < 1e-9 for gradient in nothing)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0.0, 1, 0], [0, 0, 0]], r"votes must be .* not all zero in a row, got .* in row 1"),
        ([[0.0, 1, 0], [0, -1, 2]], "votes must be finite, ≥ 0 .* in row 1"),
        ([[0.0, 1, 0], [0, float("nan"), 2]], "votes must be finite, ≥ 0 .* in row 1"),
        ([[0.0, 1], [1, 0]], r"labels must have the shape \(2, 3\)"),
        ([[0, 1], [2, 1]], r"intervals must be \(lowest, highest\), got \(2, 1\) in row 1"),
        ([[0, 1], [2, 3]], "ranks must be in 0…2, got 3"),
        ([[0, 1, 0], [1, 0, 0]], r"labels must have the shape \(2, 2\)"),
    ],
)
def test_wrong_votes_and_intervals_are_named(labels, message):
    head = create("classification", 3, 8)
    with pytest.raises(UserError, match=message):
        head.loss(torch.randn(2, 8), torch.tensor(labels))
