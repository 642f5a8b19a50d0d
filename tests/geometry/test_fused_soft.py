"""The short ways of soft layouts equal the plain computation."""

from functools import partial

import pytest
import torch

from layline.geometry import divergence
from layline.geometry.fused import Terms, free_cosine, free_student_t, matching, soft_losses
from layline.geometry.layouts import Free, elastic_linear
from layline.geometry.similarities import Cosine, NegativeEuclidean, StudentT
from layline.geometry.smoothings import Poisson

SIMILARITIES = {"student-t": StudentT(), "cosine": Cosine(), "euclidean": NegativeEuclidean()}
PLACES = ["anywhere", "proxy", "zero", "far"]
NUM_CLASSES, DIM, N = 7, 16, 12


def problem(place="anywhere", dtype=torch.float64, layout=None):
    layout = (layout or Free(NUM_CLASSES, DIM)).to(dtype)
    ranks = torch.arange(N) % (NUM_CLASSES - 1)  # one class has no sample
    features = {
        "anywhere": torch.randn(N, DIM),
        "proxy": layout.proxies().detach()[ranks],
        "zero": torch.zeros(N, DIM),
        "far": 1e3 * torch.nn.functional.normalize(torch.randn(N, DIM)),
    }[place]
    return layout, features.to(dtype).clone().requires_grad_(), ranks


def choose(ranks, every_class, over_classes, dtype):
    """The rows of Q, and the terms that belong to them."""
    rows = torch.arange(NUM_CLASSES) if every_class else ranks
    log_u = Poisson(tau=0.5).log_u(rows, NUM_CLASSES)
    of_u = (log_u, log_u.exp(), (log_u.exp() * log_u).sum(dim=-1))
    of_sample = ranks if every_class else None
    terms = Terms(*(each.to(dtype) for each in of_u), of_sample, 6.0, over_classes)
    return None if every_class else ranks, terms


def plain(layout, similarity, features, rows, terms):
    """Equation (13), by the functions that define it."""
    log_q = divergence.log_q(
        layout, similarity, torch.arange(NUM_CLASSES) if rows is None else rows
    )
    chosen = slice(None) if terms.of_sample is None else terms.of_sample
    unimodal = divergence.unimodal_loss(terms.log_u, log_q)
    basic = divergence.basic_loss(log_q[chosen], divergence.log_p(layout, similarity, features))
    return basic + terms.alpha * (unimodal.mean() if terms.over_classes else unimodal[chosen])


WAYS = pytest.mark.parametrize(
    ("every_class", "over_classes"), [(True, True), (True, False), (False, False)]
)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("place", PLACES)
@WAYS
def test_the_short_way_equals_the_plain_one(similarity, place, every_class, over_classes):
    layout, features, ranks = problem(place)
    rows, terms = choose(ranks, every_class, over_classes, torch.float64)
    weights = torch.rand(N, dtype=torch.float64)
    found = []
    for way in (soft_losses, plain):
        losses = way(layout, SIMILARITIES[similarity], features, rows, terms)
        gradients = torch.autograd.grad((weights * losses).sum(), (features, layout.vectors))
        found.append((losses, *gradients))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("similarity", ["student-t", "cosine"])
@pytest.mark.parametrize("place", PLACES)
@WAYS
def test_single_precision_keeps_four_digits(similarity, place, every_class, over_classes):
    layout, features, ranks = problem(place, torch.float32)
    wanted = (features, layout.vectors)
    rows, terms = choose(ranks, every_class, over_classes, torch.float32)
    losses = soft_losses(layout, SIMILARITIES[similarity], features, rows, terms)
    ours = (losses, *torch.autograd.grad(losses.sum(), wanted))
    layout.double()
    features = features.detach().double().requires_grad_()
    rows, terms = choose(ranks, every_class, over_classes, torch.float64)
    losses = plain(layout, SIMILARITIES[similarity], features, rows, terms)
    theirs = (losses, *torch.autograd.grad(losses.sum(), (features, layout.vectors)))
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-5)


def test_any_layout_that_moves_can_be_smoothed():
    layout, features, ranks = problem(layout=elastic_linear(NUM_CLASSES, DIM))
    rows, terms = choose(ranks, True, False, torch.float64)
    ours, theirs = (w(layout, StudentT(), features, rows, terms) for w in (soft_losses, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@WAYS
def test_matching_has_first_and_second_derivatives(every_class, over_classes):
    """Q is a target in one term: differences may only move what they move it by on purpose."""
    ranks = torch.arange(N) % NUM_CLASSES
    _, terms = choose(ranks, every_class, over_classes, torch.float64)
    logits_p = torch.randn(N, NUM_CLASSES, dtype=torch.float64, requires_grad=True)
    logits_q = torch.randn(len(terms.log_u), NUM_CLASSES, dtype=torch.float64)

    def losses(logits_p):
        return matching.losses(torch.cat([logits_p, logits_q]), terms)

    assert torch.autograd.gradcheck(losses, (logits_p,))
    assert torch.autograd.gradgradcheck(losses, (logits_p,))


@pytest.mark.parametrize("rows", [None, torch.tensor([2, 0, 0])], ids=["every class", "samples"])
@pytest.mark.parametrize(
    "logits", [free_student_t.logits, partial(free_cosine.logits, scale=6.0)], ids=["t", "cosine"]
)
def test_logits_have_first_and_second_derivatives(logits, rows):
    features = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    proxies = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(logits, (features, proxies, rows))
    assert torch.autograd.gradgradcheck(logits, (features, proxies, rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("similarity", ["student-t", "cosine"])
@WAYS
def test_second_derivatives_are_the_plain_ones(similarity, dtype, every_class, over_classes):
    layout, features, ranks = problem(dtype=dtype)
    rows, terms = choose(ranks, every_class, over_classes, dtype)
    wanted, found = (features, layout.vectors), []
    for way in (soft_losses, plain):
        losses = way(layout, SIMILARITIES[similarity], features, rows, terms)
        first = torch.autograd.grad(losses.sum(), wanted, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        found.append(torch.autograd.grad(penalty, wanted))
    close = 1e-10 if dtype == torch.float64 else 1e-3
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


@pytest.mark.parametrize("similarity", ["student-t", "cosine"])
def test_a_backward_pass_under_autocast_is_as_exact_as_without(similarity):
    layout, features, ranks = problem(dtype=torch.float32)
    rows, terms = choose(ranks, True, False, torch.float32)
    found = []
    for autocast in (False, True):
        losses = soft_losses(layout, SIMILARITIES[similarity], features, rows, terms)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            found.append(torch.autograd.grad(losses.sum(), (features, layout.vectors)))
    for without, under in zip(*found, strict=True):
        assert torch.equal(without, under)


def test_frozen_features_cost_the_proxies_nothing():
    layout, features, ranks = problem(dtype=torch.float32)
    for logits in (
        lambda f: free_student_t.logits(f, layout.vectors, ranks),
        lambda f: free_cosine.logits(f, layout.vectors, None, 6.0),
    ):
        moving, still = (
            torch.autograd.grad(logits(f).square().sum(), layout.vectors)[0]
            for f in (features, features.detach())
        )
        assert torch.equal(moving, still)
