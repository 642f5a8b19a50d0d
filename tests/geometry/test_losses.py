import math

import pytest
import torch

from layline.geometry import SIMILARITIES
from layline.geometry.layouts import Free, Linear, Semicircular
from layline.geometry.losses import basic_loss, kl, log_q, squared_emd, unimodal_loss
from layline.heads import ConstrainedProxies

PAIRS = [(Linear, "student-t"), (Linear, "negative-euclidean"), (Semicircular, "cosine")]
PAIRS += [(Free, name) for name in SIMILARITIES]


def plain_similarity(name, x, y):
    if name == "cosine":
        return 6.0 * (x @ y / (x.norm() * y.norm())).item()
    distance = (x - y).norm().item()
    return -math.log(1 + distance**2) if name == "student-t" else -distance


def plain_softmax(values):
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


@pytest.mark.parametrize(("build", "name"), PAIRS)
def test_p_and_q_are_equations_1_and_2_written_out(build, name):
    layout, similarity = build(5, 6).double(), SIMILARITIES[name]()
    features, proxies = torch.randn(4, 6).double(), layout.proxies()
    p = ConstrainedProxies(layout, similarity).predict_proba(features)
    for f, row in zip(features, p.tolist(), strict=True):
        assert row == pytest.approx(plain_softmax([plain_similarity(name, f, v) for v in proxies]))
    q = log_q(layout, similarity, torch.tensor([3, 0])).exp()
    for k_star, row in zip([3, 0], q.tolist(), strict=True):
        own = proxies[k_star]
        assert row == pytest.approx(
            plain_softmax([plain_similarity(name, own, v) for v in proxies])
        )


def test_kl_is_the_sum_over_classes():
    p, q = (torch.softmax(torch.randn(5, 7).double(), dim=-1) for _ in range(2))
    expected = [
        sum(b * math.log(b / a) for a, b in zip(pr, qr, strict=True))
        for pr, qr in zip(p.tolist(), q.tolist(), strict=True)
    ]
    assert kl(q.log(), p.log()).tolist() == pytest.approx(expected, rel=1e-12)


def test_kl_of_equal_distributions_is_zero_and_of_others_positive():
    p, q = (torch.log_softmax(torch.randn(50, 7).double(), dim=-1) for _ in range(2))
    assert (kl(p, p) == 0).all()
    assert (kl(q, p) > 0).all()


def test_the_basic_loss_moves_p_and_leaves_q_alone():
    p, q = (torch.randn(4, 5, requires_grad=True) for _ in range(2))
    basic_loss(torch.log_softmax(q, -1), torch.log_softmax(p, -1)).sum().backward()
    assert q.grad is None
    assert p.grad.abs().sum() > 0


def test_the_unimodal_loss_moves_q():
    u, q = torch.randn(4, 5), torch.randn(4, 5, requires_grad=True)
    unimodal_loss(torch.log_softmax(u, -1), torch.log_softmax(q, -1)).sum().backward()
    expected = torch.softmax(q, -1) - torch.softmax(u, -1)  # the gradient of a cross entropy
    torch.testing.assert_close(q.grad, expected)


@pytest.mark.parametrize("build", [Linear, Semicircular])
def test_q_of_a_hard_layout_is_unimodal_at_its_own_class(build):
    layout = build(9, 4).double()
    similarity = SIMILARITIES["student-t" if build is Linear else "cosine"]()
    for k, row in enumerate(log_q(layout, similarity, torch.arange(9))):
        assert (row[: k + 1].diff() > 0).all()
        assert (row[k:].diff() < 0).all()


def test_the_squared_emd_is_written_out():
    probs, ranks = torch.softmax(torch.randn(6, 4).double(), dim=-1), torch.arange(6) % 4
    for value, row, rank in zip(squared_emd(probs, ranks), probs.tolist(), ranks, strict=True):
        expected = sum((sum(row[: k + 1]) - float(k >= rank)) ** 2 for k in range(3))
        assert value.item() == pytest.approx(float(expected))


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


@pytest.mark.parametrize("length", [1e-20, 1e-18, 1e10])
def test_gradients_on_the_semicircle_stay_finite_at_every_length_of_a_feature(length):
    head = ConstrainedProxies(Semicircular(8, 64), SIMILARITIES["cosine"]())
    direction, ranks = torch.nn.functional.normalize(torch.randn(16, 64)), torch.arange(16) % 8
    found = []
    for scale in (1.0, length):
        features = (direction * scale).requires_grad_()
        losses = head.loss(features, ranks, reduction="none")
        to_features, to_vectors = torch.autograd.grad(losses.sum(), (features, head.layout.vectors))
        found.append((losses, to_features * scale, to_vectors))
    for near, far in zip(*found, strict=True):
        torch.testing.assert_close(far, near, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [40.0, 1000.0])
def test_no_scale_of_the_cosine_overflows(scale, dtype, gradients):
    head = ConstrainedProxies(Semicircular(8, 16), SIMILARITIES["cosine"](scale)).to(dtype)
    features = torch.randn(24, 16, dtype=dtype, requires_grad=True)
    loss = head.loss(features, torch.arange(24) % 8)
    assert loss.isfinite()
    assert all(g.isfinite().all() for g in gradients(loss, features, head.layout.vectors))
