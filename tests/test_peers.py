"""What our methods are compared with does what its own library says."""

import functools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from layline.bench.baselines import _predict, parse_baseline
from layline.geometry.decoding import decide

FILE = Path(__file__).parent.parent / "benchmarks" / "peers.py"
SHORT = "(epochs=40, batch_size=32, hidden=(32,))"
FASTER = "(learning_rate=0.02, " + SHORT[1:]  # its thresholds have a long way to go
NETWORKS = {
    **{name: f"{FILE}:{name}{SHORT}" for name in ("Coral", "Corn", "Triangular")},
    "KappaCLM": f"{FILE}:KappaCLM{FASTER}",
}
PROBABILISTIC = {
    "GradientBoosting": f"{FILE}:GradientBoosting(n_estimators=40)",
    "logistic_regression": f"{FILE}:logistic_regression",
    "SoftmaxMLP": f"{FILE}:SoftmaxMLP{SHORT}",
    "all_threshold": f"{FILE}:all_threshold",
    **NETWORKS,
}
EVERY = {**PROBABILISTIC, "RankRegression": f"{FILE}:RankRegression(n_estimators=40)"}
K = 4


@pytest.fixture(autouse=True)
def path_stays(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture(scope="module")
def toy():
    """Grades that follow from two columns of very different scale, with a little noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    ranks = np.digitize(x[:, 0] - x[:, 1] + 0.2 * rng.normal(size=400), [-1.3, 0, 1.3])
    x *= [1000, 0.01, 1, 1]
    return x[:280], ranks[:280], x[280:], ranks[280:]


@pytest.fixture(scope="module")
def trained(toy):
    """Every peer by its name, fitted once by all its epochs."""
    x, ranks, *_ = toy
    return functools.cache(lambda name: fitted(EVERY[name], x, ranks))


def fitted(text, x, ranks, seed=0):
    estimator = parse_baseline(text).make(seed)
    return estimator.fit(x, ranks)


def quick(name):
    """A peer that takes few steps: what it draws and how it is set counts from the first on."""
    text = EVERY[name].replace("epochs=40", "epochs=3")
    return text.replace("n_estimators=40", "n_estimators=3")


def answers(estimator, x):
    return getattr(estimator, "predict_proba", estimator.predict)(x)


@pytest.mark.parametrize("name", EVERY)
def test_a_peer_learns_more_than_the_majority(name, toy, trained):
    _, _, new, truth = toy
    found = np.round(trained(name).predict(new))
    best_constant = min(np.abs(truth - rank).mean() for rank in range(K))
    assert np.abs(found - truth).mean() < best_constant / 2


@pytest.mark.parametrize("name", EVERY)
def test_a_peer_is_the_same_twice_whatever_else_draws_numbers(name, toy):
    x, ranks, new, _ = toy
    first = answers(fitted(quick(name), x, ranks, seed=3), new)
    if name in NETWORKS:
        assert not np.array_equal(first, answers(fitted(quick(name), x, ranks, seed=4), new))
    torch.manual_seed(99)
    state = torch.get_rng_state()
    np.random.seed(99)  # noqa: NPY002, what a library may draw from
    second = answers(fitted(quick(name), x, ranks, seed=3), new)
    assert np.array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("absent", [0, K - 1])
@pytest.mark.parametrize("name", PROBABILISTIC)
def test_probabilities_sum_to_one_also_where_a_class_is_absent(name, absent, toy):
    x, ranks, new, _ = toy
    kept = ranks != absent
    text = quick(name)
    estimator = fitted(text, x[kept], ranks[kept])
    proba = _predict(parse_baseline(text), estimator, new, K, "mode").proba
    assert (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)
    if name not in NETWORKS or absent == K - 1:  # of the highest nobody told the networks
        assert (proba[:, absent] == 0).all()


@pytest.mark.parametrize(
    ("name", "decode"),
    [("Coral", "median"), ("Corn", "median"), ("Triangular", "mode"), ("KappaCLM", "mode")],
)
def test_probabilities_agree_with_the_labels_of_the_library(name, decode, toy, trained):
    _, _, new, _ = toy
    peer = trained(name)
    outputs = peer.outputs(new)
    labels = peer.predict(new)
    assert len(set(labels)) > 2
    proba = torch.from_numpy(peer.predict_proba(new))
    assert np.array_equal(decide(proba, decode).numpy(), labels)
    if name in ("Coral", "Corn"):
        above = outputs.sigmoid() if name == "Coral" else outputs.sigmoid().cumprod(dim=1)
        assert (above.diff(dim=1) <= 0).all()  # CORAL's may be out of order, see below
        own = proba.flip(1).cumsum(1).flip(1)[:, 1:]  # P(y > k)
        torch.testing.assert_close(own, above, rtol=0, atol=1e-12)
