"""Similarities, the two distributions, and the losses that match them."""

import math

import pytest
import torch

from layline.geometry import SIMILARITIES
from layline.geometry.layouts import Free, Linear, Semicircular
from layline.geometry.losses import basic_loss, kl, log_q
from layline.geometry.similarities import Cosine, LearnedScale, NegativeEuclidean, StudentT
from layline.heads import ConstrainedProxies

PAIRS = [(Linear, "student-t"), (Linear, "negative-euclidean"), (Semicircular, "cosine")]
PAIRS += [(Free, name) for name in SIMILARITIES]


def plain_similarity(name, x, y):
    if name == "cosine":
        return 6.0 * (x @ y / (x.norm() * y.norm())).item()
    distance = (x - y).norm().item()
    return -math.log(1 + distance**2) if name == "student-t" else -distance


@pytest.mark.parametrize(("build", "name"), PAIRS)
def test_p_and_q_are_equations_1_and_2_written_out(build, name):
    def plain(x):
        powers = [math.exp(plain_similarity(name, x, proxy)) for proxy in proxies]
        return [power / sum(powers) for power in powers]

    layout, similarity = build(5, 6).double(), SIMILARITIES[name]()
    features, proxies = torch.randn(4, 6).double(), layout.proxies()
    p = ConstrainedProxies(layout, similarity).predict_proba(features)
    for f, row in zip(features, p.tolist(), strict=True):
        assert row == pytest.approx(plain(f))
    q = log_q(layout, similarity, torch.tensor([3, 0])).exp()
    for k_star, row in zip([3, 0], q.tolist(), strict=True):
        assert row == pytest.approx(plain(proxies[k_star]))


@pytest.mark.parametrize("similarity", [StudentT(), NegativeEuclidean()])
@pytest.mark.parametrize("distance", [0.0, 1e-30, 1e10])
def test_similarities_and_their_gradients_are_finite_at_the_ends(similarity, distance, gradients):
    x = torch.full((1, 2), distance, requires_grad=True)
    value = similarity(x)
    assert value.isfinite().all()
    assert gradients(value.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize(("start", "scale"), [(Cosine(3.0), 3.0), (StudentT(), 1.0)])
def test_a_learned_scale_multiplies_the_similarity_that_it_begins_as(start, scale):
    similarity, x = LearnedScale(start).double(), torch.rand(3, 12).double()
    assert torch.equal(similarity(x), start(x))
    assert similarity.scale == scale
    with torch.no_grad():
        similarity.log_factor.fill_(math.log(2.5))
    torch.testing.assert_close(similarity(x), 2.5 * start(x))
    assert similarity.scale == pytest.approx(2.5 * scale)


def test_the_basic_loss_moves_p_and_the_unimodal_loss_moves_q():
    p, q = (torch.randn(4, 5, requires_grad=True) for _ in range(2))
    basic_loss(torch.log_softmax(q, -1), torch.log_softmax(p, -1)).sum().backward()
    assert q.grad is None
    torch.testing.assert_close(p.grad, torch.softmax(p, -1) - torch.softmax(q, -1))
    u = torch.randn(4, 5)
    kl(torch.log_softmax(u, -1), torch.log_softmax(q, -1)).sum().backward()
    torch.testing.assert_close(q.grad, torch.softmax(q, -1) - torch.softmax(u, -1))


@pytest.mark.parametrize(("build", "name"), [(Linear, "student-t"), (Semicircular, "cosine")])
def test_q_of_a_hard_layout_is_unimodal_at_its_own_class(build, name):
    for k, row in enumerate(log_q(build(9, 4).double(), SIMILARITIES[name](), torch.arange(9))):
        assert (row[: k + 1].diff() > 0).all()
        assert (row[k:].diff() < 0).all()


@pytest.mark.parametrize("place", ["anywhere", "proxy", "ends", "zero", "far", "far on the line"])
@pytest.mark.parametrize("num_classes", [8, 101])
@pytest.mark.parametrize(("build", "name"), [(Linear, "student-t"), (Semicircular, "cosine")])
def test_single_precision_keeps_four_digits(build, name, num_classes, place):
    """Apart from the effect of rounding the features, which alone can make up a gradient."""
    head = ConstrainedProxies(build(num_classes, 512), SIMILARITIES[name]())
    ranks, proxies = torch.arange(24) % num_classes, head.proxies().detach()
    features = {
        "anywhere": torch.randn(24, 512),
        "proxy": proxies[ranks],
        "ends": proxies[(ranks % 2) * (num_classes - 1)],
        "zero": torch.zeros(24, 512),
        "far": 1e3 * torch.nn.functional.normalize(torch.randn(24, 512)),
        "far on the line": 1e3 * torch.nn.functional.normalize(proxies[-1:]).expand(24, -1),
    }[place]
    results = []
    for dtype in (torch.float32, torch.float64):
        head.to(dtype)
        x = features.to(dtype).requires_grad_()
        losses = head.loss(x, ranks, reduction="none")
        results.append((losses, *torch.autograd.grad(losses.sum(), (x, head.layout.vectors))))
    single, double = results
    torch.testing.assert_close(single[0].double(), double[0], rtol=1e-4, atol=4e-6)
    size = torch.linalg.vector_norm(features.double(), dim=1).clamp(min=1)
    rounding = torch.finfo(torch.float32).eps * size
    turned = (rounding * size).sum() / torch.linalg.vector_norm(head.layout.vectors, dim=1)
    for actual, expected, noise in zip(single[1:], double[1:], (rounding, turned), strict=True):
        miss = torch.linalg.vector_norm(actual.double() - expected, dim=1)
        allowed = 1e-4 * torch.linalg.vector_norm(expected, dim=1) + 4 * noise + 1e-5
        assert (miss <= allowed).all()
