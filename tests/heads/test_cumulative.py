import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit

from layline.geometry.decoding import median
from layline.heads.cumulative import (
    binary_losses,
    log_differences,
    log_probs_from_conditional,
    log_probs_from_cumulative,
)

SHAPES = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 7, 40]))


def logits_within(size):
    """Any logits, with ties: every second draw repeats a few values."""
    numbers = st.one_of(st.floats(-size, size), st.sampled_from([-1.5, 0.0, 0.5, 2.0]))
    return hnp.arrays(np.float64, SHAPES, elements=numbers).map(torch.from_numpy)


def assert_distribution(log_probs, num_classes, tolerance=1e-12):
    assert log_probs.shape[1] == num_classes
    assert log_probs.isfinite().all()
    total = log_probs.exp().sum(dim=-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=tolerance)


def exceedance(log_probs):
    """P(y > k), by adding up from the far end."""
    return log_probs.exp().flip(-1).cumsum(dim=-1).flip(-1)[:, 1:]


def plain_differences(logits):
    above = np.concatenate([[1.0], expit(np.asarray(logits)), [0.0]])
    return above[:-1] - above[1:]


@given(logits_within(1e4))
def test_any_logits_make_a_distribution(logits):
    for function in (log_probs_from_cumulative, log_probs_from_conditional):
        assert_distribution(function(logits), logits.shape[1] + 1)
        assert_distribution(function(logits.float()), logits.shape[1] + 1, tolerance=1e-5)


@given(logits_within(1e4))
def test_cumulative_probabilities_never_rise(logits):
    for function in (log_probs_from_cumulative, log_probs_from_conditional):
        assert (exceedance(function(logits)).diff(dim=-1) <= 0).all()


@given(logits_within(30.0))
def test_logits_in_order_give_the_exact_differences(logits):
    logits = logits.sort(dim=-1, descending=True).values
    probs = log_probs_from_cumulative(logits).exp()
    for row, given_logits in zip(probs.numpy(), logits.numpy(), strict=True):
        np.testing.assert_allclose(row, plain_differences(given_logits), rtol=0, atol=1e-14)


@given(logits_within(30.0))
def test_sorting_keeps_the_probabilities_the_expected_rank_and_the_count(logits):
    log_probs = log_probs_from_cumulative(logits)
    kept = logits.sigmoid().sort(dim=-1, descending=True).values
    torch.testing.assert_close(exceedance(log_probs), kept, rtol=0, atol=1e-12)
    expected = log_probs.exp() @ torch.arange(logits.shape[1] + 1.0).double()
    torch.testing.assert_close(expected, logits.sigmoid().sum(dim=-1), rtol=0, atol=1e-10)
    undecided = (logits.sigmoid() - 0.5).abs().min(dim=-1).values < 1e-12
    count = (logits.sigmoid() > 0.5).sum(dim=-1)
    assert (undecided | (median(log_probs.exp()) == count)).all()


def test_a_running_minimum_would_not_keep_the_count():
    """One weak answer early on would decide alone."""
    logits = torch.tensor([[2.0, -0.1, 3.0, 1.0, -4.0]]).double()
    assert median(log_probs_from_cumulative(logits).exp()).item() == 3
    lowest = logits.cummin(dim=-1).values
    assert median(log_probs_from_cumulative(lowest).exp()).item() == 1


def test_small_probabilities_keep_their_digits():
    """σ(41) − σ(40) is 0 when subtracted in float64; it is (e⁻⁴⁰ − e⁻⁴¹) to first order."""
    log_probs = log_probs_from_cumulative(torch.tensor([[41.0, 40.0]]).double())
    assert torch.sigmoid(torch.tensor([41.0, 40.0]).double()).diff().item() == 0
    assert log_probs[0, 1].item() == pytest.approx(np.log(np.exp(-40) - np.exp(-41)), rel=1e-12)
    far = log_probs_from_cumulative(torch.tensor([[-900.0, -901.0]]).double())
    assert far[0, 1].item() == pytest.approx(-900 + np.log1p(-np.exp(-1)), rel=1e-12)


def test_gaps_that_the_caller_knows_survive_a_far_score():
    """In float32 the two logits are equal; the class between them is not lost."""
    gap = torch.tensor([1e-4])
    logits = 2e4 - torch.tensor([[0.0, 1e-4]])
    assert logits[0, 0] == logits[0, 1]
    assert log_differences(logits, gap)[0, 1].item() == pytest.approx(-2e4 + np.log(1e-4), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [5e3, 5e3, -5e3], [1.0, 1.0, 1.0 + 1e-6]])
def test_gradients_of_tied_and_extreme_logits_are_finite(dtype, row):
    logits = torch.tensor([row], dtype=dtype, requires_grad=True)
    for function in (log_probs_from_cumulative, log_probs_from_conditional):
        (gradient,) = torch.autograd.grad(function(logits).sum(), logits)
        assert gradient.isfinite().all()


def test_gradients_are_those_of_finite_differences():
    logits = torch.tensor([[0.3, 1.2, -0.4], [2.0, 0.1, -1.0]]).double().requires_grad_()
    ranks = torch.tensor([1, 3])
    assert torch.autograd.gradcheck(log_probs_from_cumulative, logits)
    assert torch.autograd.gradcheck(log_probs_from_conditional, logits)
    assert torch.autograd.gradcheck(lambda z: binary_losses(z, ranks), logits)


@given(logits_within(30.0))
def test_conditional_probabilities_multiply(logits):
    probs = log_probs_from_conditional(logits).exp()
    for row, s in zip(probs.numpy(), expit(logits.numpy()), strict=True):
        for k in range(len(row)):
            stops = 1.0 if k == len(s) else 1 - s[k]
            assert row[k] == pytest.approx(np.prod(s[:k]) * stops, abs=1e-13)


def test_binary_losses_are_the_sum_of_the_questions():
    logits, ranks = torch.randn(20, 5).double(), torch.arange(20) % 6
    for loss, z, y in zip(binary_losses(logits, ranks), logits.numpy(), ranks.numpy(), strict=True):
        parts = [-np.log(expit(z[k]) if y > k else expit(-z[k])) for k in range(5)]
        assert loss.item() == pytest.approx(sum(parts), rel=1e-12)
