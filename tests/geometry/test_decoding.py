import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from layline.geometry.decoding import (
    DECODINGS,
    check_decode,
    decide,
    mean,
    median,
)

weights = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(2, 12)),
    elements=st.floats(0, 1),
).filter(lambda w: (w.sum(axis=1) > 1e-3).all())


def distributions(w):
    return torch.from_numpy(w / w.sum(axis=1, keepdims=True))


@given(weights)
def test_median_minimises_the_expected_absolute_error(w):
    probs = distributions(w)
    ranks = torch.arange(probs.shape[1]).double()
    costs = probs @ (ranks[:, None] - ranks).abs()
    chosen = costs.gather(1, median(probs)[:, None])[:, 0]
    torch.testing.assert_close(chosen, costs.min(dim=1).values)


@given(weights)
def test_mean_minimises_the_expected_squared_error(w):
    probs = distributions(w)
    ranks = torch.arange(probs.shape[1]).double()
    costs = probs @ (ranks[:, None] - ranks).square()
    chosen = costs.gather(1, mean(probs)[:, None])[:, 0]
    torch.testing.assert_close(chosen, costs.min(dim=1).values)


@pytest.mark.parametrize("decode", DECODINGS.values())
def test_ties_go_to_the_lower_rank(decode):
    probs = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    assert decode(probs).tolist() == [0, 1, 2]


@pytest.mark.parametrize("decode", DECODINGS.values())
def test_single_precision_with_many_classes_stays_in_range(decode):
    probs = torch.softmax(torch.randn(50, 1000) * 5, dim=-1)
    ranks = decode(probs)
    assert ranks.dtype == torch.int64
    assert ranks.min() >= 0
    assert ranks.max() < 1000


@given(weights, st.integers(0, 1000))
def test_costs_choose_the_least_expected_one(w, seed):
    probs = distributions(w)
    costs = np.random.default_rng(seed).uniform(0, 9, (probs.shape[1],) * 2)
    chosen = decide(probs, costs)
    for row, k in zip(probs.numpy(), chosen.tolist(), strict=True):
        expected = [sum(p * costs[j, d] for j, p in enumerate(row)) for d in range(len(row))]
        assert expected[k] == pytest.approx(min(expected))


@pytest.mark.parametrize(("name", "power"), [("median", 1), ("mean", 2), ("quadratic", 2)])
def test_usual_costs_decide_as_the_decoding_of_that_name(name, power):
    probs = torch.rand(200, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probs /= probs.sum(dim=1, keepdim=True)
    ranks = np.arange(6.0)
    costs = np.abs(ranks[:, None] - ranks) ** power
    assert torch.equal(decide(probs, check_decode(name)), decide(probs, check_decode(costs)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("modus", "decode must be a known name"),
        ([[0, 1], [1]], "matrix of costs|row for each true class"),
        ([[0, 1, 2], [1, 0, 1], [2, 1, 0]], "2 of both"),
        ([[0, float("inf")], [1, 0]], "finite costs"),
        (3, "a name or a matrix"),
    ],
)
def test_what_is_no_decoding_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        check_decode(wrong, 2)
