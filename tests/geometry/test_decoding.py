import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from layline.geometry.decoding import DECODINGS, mean, median, mode

weights = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(2, 12)),
    elements=st.floats(0, 1),
).filter(lambda w: (w.sum(axis=1) > 1e-3).all())


def distributions(w):
    return torch.from_numpy(w / w.sum(axis=1, keepdims=True))


@given(weights)
def test_mode_is_a_most_probable_rank(w):
    probs = distributions(w)
    chosen = probs.gather(1, mode(probs)[:, None])[:, 0]
    assert torch.equal(chosen, probs.max(dim=1).values)


@given(weights)
def test_median_has_at_most_half_of_the_probability_on_either_side(w):
    probs = distributions(w)
    for row, m in zip(probs, median(probs), strict=True):
        assert row[:m].sum() <= 0.5 + 1e-12
        assert row[m + 1 :].sum() <= 0.5 + 1e-12


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


@given(st.integers(2, 200), st.data())
def test_all_agree_on_certainty(num_classes, data):
    rank = data.draw(st.integers(0, num_classes - 1))
    probs = torch.eye(num_classes)[rank : rank + 1]
    assert [decode(probs).item() for decode in DECODINGS.values()] == [rank] * 3


@pytest.mark.parametrize("decode", DECODINGS.values())
def test_ties_go_to_the_lower_rank(decode):
    probs = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    assert decode(probs).tolist() == [0, 1, 2]


def test_they_differ_on_a_skewed_distribution():
    probs = torch.tensor([[0.4, 0.15, 0.0, 0.0, 0.45]])
    assert (mode(probs).item(), median(probs).item(), mean(probs).item()) == (4, 1, 2)


@pytest.mark.parametrize("decode", DECODINGS.values())
def test_single_precision_with_many_classes_stays_in_range(decode):
    probs = torch.softmax(torch.randn(50, 1000) * 5, dim=-1)
    ranks = decode(probs)
    assert ranks.dtype == torch.int64
    assert ranks.min() >= 0
    assert ranks.max() < 1000
