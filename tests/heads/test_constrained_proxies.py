import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax

from layline.geometry import SIMILARITIES, SMOOTHINGS
from layline.geometry.layouts import Free, Linear, Semicircular, orthonormal_pair
from layline.geometry.similarities import Cosine, LearnedScale, StudentT
from layline.geometry.smoothings import Poisson
from layline.heads import ConstrainedProxies, create
from layline.metrics import ranked_probability_score, unimodality_rate


def plain_logits(x, proxies, similarity):
    """Similarities by broadcasting, in numpy."""
    if similarity == "cosine":
        norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(proxies, axis=1)
        return 6 * (x @ proxies.T) / norms
    squares = ((x[:, None] - proxies) ** 2).sum(axis=-1)
    return -np.log1p(squares) if similarity == "student-t" else -np.sqrt(squares)


def plain_terms(head, features, ranks, similarity, shape=None, prior=0.0):
    """Log P, and the losses of each sample, or class, written out with numpy and scipy."""
    proxies, k = head.proxies().detach().numpy(), np.arange(head.num_classes)
    log_p = log_softmax(plain_logits(features.numpy(), proxies, similarity) + prior, axis=1)
    log_q = log_softmax(plain_logits(proxies, proxies, similarity), axis=1)
    basic = (np.exp(log_q)[ranks] * (log_q[ranks] - log_p)).sum(axis=1)
    cross_entropy = -log_p[np.arange(len(ranks)), ranks]
    pmf = 0.0 * log_q
    if shape == "poisson":
        pmf = stats.poisson.logpmf(k, k[:, None] + 0.5) / 0.11
    if shape == "binomial":
        p = (2 * k[:, None] + 1) / (2 * len(k))
        pmf = stats.binom.logpmf(k, len(k) - 1, p) / 0.13
    log_u = log_softmax(pmf, axis=1)
    return log_p, basic, cross_entropy, (np.exp(log_u) * (log_u - log_q)).sum(axis=1)


def batch(num_classes=6, dim=5, n=20):
    ranks = torch.randint(num_classes, (n,))
    return torch.randn(n, dim, dtype=torch.float64), ranks


@pytest.mark.parametrize(
    ("name", "similarity"),
    [
        *(("hard-linear", similarity) for similarity in ("student-t", "negative-euclidean")),
        *(("hard-semicircular", similarity) for similarity in SIMILARITIES),
    ],
)
@pytest.mark.parametrize("n", [3, 20])
def test_hard_loss_is_equation_12(name, similarity, n):
    head = create(name, 6, 5, similarity=similarity).double()
    features, ranks = batch(n=n)
    log_p, basic, *_ = plain_terms(head, features, ranks, similarity)
    assert head.loss(features, ranks).item() == pytest.approx(basic.mean(), rel=1e-12)
    np.testing.assert_allclose(head.log_probs(features).detach(), log_p, atol=1e-12)


@pytest.mark.parametrize("shape", ["poisson", "binomial"])
@pytest.mark.parametrize("similarity", ["student-t", "cosine", "negative-euclidean"])
@pytest.mark.parametrize("n", [3, 20])
@pytest.mark.parametrize("target", ["proxies", "onehot"])
@pytest.mark.parametrize("over", ["batch", "classes"])
def test_soft_loss_is_equation_13_with_its_options(shape, similarity, n, target, over):
    parts = Free(6, 5), SIMILARITIES[similarity](), SMOOTHINGS[shape]()
    head = ConstrainedProxies(*parts, target=target, unimodal_over=over).double()
    features, ranks = batch(n=n)
    _, basic, cross_entropy, unimodal = plain_terms(head, features, ranks, similarity, shape)
    expected = (basic if target == "proxies" else cross_entropy).mean()
    expected += 6 * (unimodal[ranks] if over == "batch" else unimodal).mean()
    assert head.loss(features, ranks).item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("target", ["proxies", "onehot", 0.2])
@pytest.mark.parametrize("rps", [0.0, 1.5])
@pytest.mark.parametrize("prior", [False, True])
def test_beyond_the_paper_target_score_and_prior_are_the_formula_written_out(target, rps, prior):
    similarity = LearnedScale(Cosine(2.0))
    parts = Semicircular(6, 5, stiffness=0.0), similarity
    head = ConstrainedProxies(*parts, target=target, rps=rps, prior=prior).double()
    with torch.no_grad():
        similarity.log_factor.fill_(math.log(3.0))  # 6 in all, as the plain one has
        head.layout.spacing.weights.normal_()
        if prior:
            head.prior.normal_()
    features, ranks = batch()
    bias = head.prior.detach().numpy() if prior else 0.0
    log_p, basic, cross_entropy, _ = plain_terms(head, features, ranks, "cosine", prior=bias)
    share = {"proxies": 1.0, "onehot": 0.0}.get(target, target)
    expected = (1 - share) * cross_entropy.mean() + share * basic.mean()
    expected += rps * 5 * ranked_probability_score(ranks, np.exp(log_p))
    assert head.loss(features, ranks).item() == pytest.approx(expected, rel=1e-11)
    np.testing.assert_allclose(head.log_probs(features).detach(), log_p, atol=1e-12)
    assert torch.equal(head.predict(features), head.predict_proba(features).argmax(dim=-1))


def test_the_arc_is_unimodal_above_its_diameter_as_long_as_it_has_no_prior():
    """Below it both ends are nearer than the middle: P has a peak at each."""
    parts = Semicircular(8, 5, stiffness=0.0), LearnedScale(Cosine(20.0))
    head = ConstrainedProxies(*parts, target="onehot", prior=True).double()
    with torch.no_grad():
        head.layout.spacing.weights.normal_()
    features = torch.randn(500, 5).double()
    above = head.layout.polar(features)[0] >= 0
    unimodal = torch.tensor(
        [unimodality_rate(p[None]) == 1 for p in head.predict_proba(features).detach().numpy()]
    )
    assert unimodal[above].all()
    below = -orthonormal_pair(head.layout.vectors)[1:]
    assert unimodality_rate(head.predict_proba(below).detach().numpy()) == 0
    with torch.no_grad():
        head.prior.copy_(10 * torch.tensor([1, 0, 1, 0, 1, 0, 1, 0]))
    assert unimodality_rate(head.predict_proba(features[above]).detach().numpy()) < 1


def test_the_parts_have_the_sizes_and_can_be_put_together_freely():
    head = ConstrainedProxies(Linear(8, 512, norm=3.0), StudentT())
    assert (head.num_classes, head.dim, head.layout.norm) == (8, 512, 3.0)
    assert create("soft-poisson", 5).alpha == 6  # the paper's
    head = ConstrainedProxies(Free(8, 16), Cosine(10.0), Poisson(0.2), alpha=5.0)
    named = create("soft-poisson-cosine", 8, 16, scale=10.0, tau=0.2, alpha=5.0)
    named.load_state_dict(head.state_dict())
    features, ranks = torch.randn(20, 16), torch.randint(8, (20,))
    assert torch.equal(head.loss(features, ranks), named.loss(features, ranks))
    assert torch.equal(head(features), named(features))


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        (("linear", "student-t"), {}, "objects such as Linear.*, got 'linear' and 'student-t'"),
        ((Linear(5, 4), Cosine()), {}, "similarity must fit the layout Linear, got one"),
        ((Linear(5, 4, norm=1.0), StudentT(), Poisson()), {}, "None .* keep their distances"),
        ((Semicircular(5, 4), Cosine(), Poisson()), {}, "smoothing must be None"),
        ((Free(5, 4), StudentT()), {"target": "one-hot"}, "target must be .* got 'one-hot'"),
        ((Free(5, 4), StudentT()), {"target": 1.5}, "share of Q from 0 to 1, got 1.5"),
        ((Free(5, 4), StudentT()), {"rps": -1.0}, "rps must be .* got -1.0: .* weight"),
        ((Free(5, 4), StudentT()), {"prior": 1}, "prior must be true or false, got 1"),
        ((Free(5, 4), StudentT(), Poisson()), {"unimodal_over": "class"}, "did you mean classes"),
        ((Free(5, 4), StudentT(), Poisson()), {"alpha": math.nan}, "alpha must be .* got nan"),
    ],
)  # fmt: skip
def test_a_wrong_composition_is_named_with_its_value(parts, options, message):
    with pytest.raises(ValueError, match=message):
        ConstrainedProxies(*parts, **options)


def test_elastic_steps_that_are_uneven_cost_their_divergence_from_even():
    head = create("elastic-linear", 4, 5, stiffness=0.5).double()
    features, ranks = batch(num_classes=4)
    with torch.no_grad():
        head.layout.spacing.weights.copy_(torch.tensor([0.0, 1.0, -1.0]))
    shares = torch.softmax(head.layout.spacing.weights, dim=0).tolist()
    cost = 0.5 * sum(1 / 3 * math.log((1 / 3) / share) for share in shares)
    with_cost = head.loss(features, ranks).item()
    head.layout.spacing.stiffness = 0.0
    assert with_cost - head.loss(features, ranks).item() == pytest.approx(cost, rel=1e-9)
