import math

import pytest
import torch

from layline.geometry import SIMILARITIES
from layline.geometry.divergence import basic_loss, kl, log_p, log_q, unimodal_loss
from layline.geometry.layouts import Free, Linear, Semicircular

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
    p = log_p(layout, similarity, features).exp()
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
