import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from layline.geometry.decoding import DECODINGS, check_decode, decide

SHAPES = st.tuples(st.integers(1, 5), st.integers(2, 12))
DISTRIBUTIONS = (
    hnp.arrays(np.float64, SHAPES, elements=st.floats(0, 1))
    .filter(lambda w: (w.sum(axis=1) > 1e-3).all())
    .map(lambda w: torch.from_numpy(w / w.sum(axis=1, keepdims=True)))
)


@pytest.mark.parametrize(("decode", "power"), [("median", 1), ("mean", 2), ("quadratic", 2)])
@given(probs=DISTRIBUTIONS)
def test_median_and_mean_minimize_the_expected_error(decode, power, probs):
    ranks = torch.arange(probs.shape[1]).double()
    costs = probs @ (ranks[:, None] - ranks).abs() ** power
    chosen = costs.gather(1, decide(probs, check_decode(decode))[:, None])[:, 0]
    torch.testing.assert_close(chosen, costs.min(dim=1).values)


@given(DISTRIBUTIONS, st.integers(0, 1000))
def test_costs_choose_the_least_expected_one(probs, seed):
    costs = np.random.default_rng(seed).uniform(0, 9, (probs.shape[1],) * 2)
    chosen = decide(probs, check_decode(costs))
    for row, k in zip(probs.numpy(), chosen.tolist(), strict=True):
        expected = [sum(p * costs[j, d] for j, p in enumerate(row)) for d in range(len(row))]
        assert expected[k] == pytest.approx(min(expected))


@pytest.mark.parametrize("decode", DECODINGS.values())
def test_ties_go_to_the_lower_rank(decode):
    probs = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    assert decode(probs).tolist() == decode(probs.numpy()).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("modus", "decode must be a known name"),
        ([[0, 1], [1]], "row for each true class"),
        ([[0, 1, 2], [1, 0, 1], [2, 1, 0]], "2 of both"),
        ([[0, float("inf")], [1, 0]], "finite costs"),
        (3, "a name or a matrix"),
    ],
)
def test_what_is_no_decoding_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        check_decode(wrong, 2)
