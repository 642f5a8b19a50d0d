import numpy as np
import pytest
import torch

from layline.heads import create


def batch(num_classes=5, dim=6, n=12):
    """Return features and ranks; the last class is missing."""
    return torch.randn(n, dim).double(), torch.randint(num_classes - 1, (n,))


def cosines(features, proxies):
    features, proxies = features.detach().numpy(), proxies.detach().numpy()
    dots = features @ proxies.T
    return dots / np.linalg.norm(features, axis=1)[:, None] / np.linalg.norm(proxies, axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_proxy_anchor_is_that_of_the_formula(weighted):
    head = create("proxy-anchor", 5, 6, margin=0.2, alpha=9.0).double()
    features, ranks = batch()
    weights = torch.rand(12).double() if weighted else torch.ones(12).double()
    weights[ranks == 1] = 0 if weighted else 1  # then class 1 is not in the batch either
    s = cosines(features, head.proxies())
    pull, push, present = 0.0, 0.0, 0
    for p in range(5):
        near = far = 0.0
        for i, (rank, w) in enumerate(zip(ranks.tolist(), weights.tolist(), strict=True)):
            if rank == p:
                near += w * np.exp(-9 * (s[i, p] - 0.2))
            else:
                far += w * np.exp(9 * (s[i, p] + 0.2))
        present += bool(weights[ranks == p].sum() > 0)
        pull, push = pull + np.log1p(near), push + np.log1p(far)
    loss = head.loss(features, ranks, weights if weighted else None)
    assert loss.item() == pytest.approx(pull / present + push / 5, abs=1e-10)
    powers = np.exp(9 * s)
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(head.predict_proba(features).detach(), expected, rtol=1e-9)


def test_soft_triple_is_that_of_the_formula():
    options = {"centers_per_class": 3, "la": 5.0, "gamma": 0.4, "margin": 0.2}
    head = create("soft-triple", 5, 6, **options).double()
    features, ranks = batch()
    s = cosines(features, head.centers.T).reshape(12, 5, 3)
    among = np.exp(s / 0.4)
    similarity = (among / among.sum(axis=2, keepdims=True) * s).sum(axis=2)
    powers = np.exp(5 * similarity)
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(head.predict_proba(features).detach(), expected, rtol=1e-10)
    similarity[range(12), ranks] -= 0.2
    powers = np.exp(5 * similarity)
    each = -np.log(powers[range(12), ranks] / powers.sum(axis=1))
    assert head.loss(features, ranks).item() == pytest.approx(each.mean(), abs=1e-10)
