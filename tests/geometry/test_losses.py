"""Similarities, the two distributions, and the losses that match them."""

import math

import pytest
import torch

from layline.geometry import SIMILARITIES
from layline.geometry.layouts import Linear, Semicircular
from layline.geometry.losses import basic_loss, kl
from layline.geometry.similarities import Cosine, LearnedScale, NegativeEuclidean, StudentT
from layline.heads import ConstrainedProxies


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


@pytest.mark.parametrize("place", ["anywhere", "proxy", "ends", "zero", "far", "far on the line"])
@pytest.mark.parametrize("num_classes", [8, 101])
@pytest.mark.parametrize(("build", "name"), [(Linear, "student-t"), (Semicircular, "cosine")])
def test_single_precision_keeps_four_digits_of_the_loss(build, name, num_classes, place):
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
    single = head.loss(features, ranks, reduction="none")
    double = head.double().loss(features, ranks, reduction="none")
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=4e-6)
