"""The unimodal heads and regression: their formulas, and one peak for any input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from layline.heads import create
from layline.heads.unimodal import log_cells, log_normal_cdf

NAMES = ["unimodal-poisson", "unimodal-binomial", "unimodal-pom"]
EITHER = pytest.mark.parametrize("loss", ["l1", "l2"])
SIZES = pytest.mark.parametrize("num_classes", [2, 5, 101])
AROUND = {"l1": stats.laplace, "l2": stats.norm}


def head_with(name, num_classes, *scores, tau=None):
    """Make a head of one feature whose linear layer gives these scores to the feature 1."""
    head = create(name, num_classes, 1).double()
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.copy_(torch.tensor(scores, dtype=torch.float64))
        if tau is not None:
            head.log_tau.fill_(math.log(tau))
    return head


def probs(head):
    return head.predict_proba(torch.ones(1, 1, dtype=torch.float64))[0].detach().numpy()


def has_one_peak(row, tolerance=1e-12):
    rising, falling = np.diff(row[: row.argmax() + 1]), np.diff(row[row.argmax() :])
    return (rising >= -tolerance).all() and (falling <= tolerance).all()


@SIZES
@pytest.mark.parametrize("score", [-3.0, 0.0, 2.5, 40.0])
@pytest.mark.parametrize("tau", [0.3, 1.0, 4.0])
def test_poisson_and_binomial_are_those_of_the_formula(num_classes, score, tau):
    k, q = np.arange(num_classes), 1 / (1 + np.exp(-score))
    for name, pmf in (
        ("unimodal-poisson", stats.poisson.logpmf(k, np.logaddexp(0, score))),
        ("unimodal-binomial", stats.binom.logpmf(k, num_classes - 1, q) if score < 40 else None),
    ):
        if pmf is not None:
            powers = np.exp((pmf - pmf.max()) / tau)
            ours = probs(head_with(name, num_classes, score, tau=tau))
            np.testing.assert_allclose(ours, powers / powers.sum(), rtol=1e-10, atol=1e-14)


@SIZES
@pytest.mark.parametrize(("mean", "spread"), [(0.0, 0.0), (1.5, -0.5), (-0.4, 3.0)])
def test_pom_is_that_of_the_formula(num_classes, mean, spread):
    ours = probs(head_with("unimodal-pom", num_classes, mean, spread))
    edges = np.linspace(-1, 1, num_classes + 1)
    cells = np.diff(stats.norm.cdf(edges, np.tanh(mean), np.logaddexp(0, spread)))
    np.testing.assert_allclose(ours, cells / cells.sum(), rtol=1e-10, atol=1e-14)


def test_the_loss_of_pom_is_the_earth_movers_distance_to_the_label():
    head = create("unimodal-pom", 6, 4).double()
    features, ranks = torch.randn(9, 4).double(), torch.arange(9) % 6
    rows = zip(head.predict_proba(features).detach().numpy(), ranks.tolist(), strict=True)
    expected = [stats.wasserstein_distance(range(6), [y], row) for row, y in rows]
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(expected), abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_one_peak_for_any_input(name, data):
    num_classes = data.draw(st.sampled_from([2, 3, 8, 101, 1000]))
    number = st.floats(-1e4, 1e4, allow_nan=False)
    scores = [data.draw(number) for _ in range(2 if name == "unimodal-pom" else 1)]
    tau = None if name == "unimodal-pom" else math.exp(data.draw(st.floats(-4, 4)))
    head = head_with(name, num_classes, *scores, tau=tau)
    assert has_one_peak(probs(head))
    single = head.float().predict_proba(torch.ones(1, 1))[0].detach().numpy()
    assert has_one_peak(single, tolerance=1e-7)


def regression_on_outputs(num_classes, loss, scale):
    """Make a head whose single feature is its output."""
    head = create("regression", num_classes, 1, loss=loss).double()
    with torch.no_grad():
        head.linear.weight.fill_(1)
        head.linear.bias.zero_()
        head.log_scale.fill_(math.log(scale - 1e-3))
    return head


@EITHER
@SIZES
def test_regression_has_its_loss_and_the_likelihood_of_the_scale(loss, num_classes, gradients):
    head = create("regression", num_classes, 5, loss=loss).double()
    features = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    ranks = torch.randint(num_classes, (20,))
    residuals = head._scores(features)[:, 0] - ranks
    error = residuals.abs() if loss == "l1" else residuals**2
    scale = math.exp(head.log_scale.item()) + 1e-3
    density = AROUND[loss].logpdf(residuals.detach().numpy(), scale=scale)
    ours = head.loss(features, ranks)
    assert ours.item() == pytest.approx(error.mean().item() - density.mean(), abs=1e-10)
    inputs = (features, head.linear.weight, head.linear.bias)  # they learn from the error alone
    torch.testing.assert_close(gradients(ours, *inputs), gradients(error.mean(), *inputs))


@EITHER
@SIZES
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_probabilities_of_regression_are_cells_of_the_distribution(loss, num_classes, scale):
    head = regression_on_outputs(num_classes, loss, scale)
    outputs = torch.linspace(-2, num_classes + 1, 50, dtype=torch.float64)
    edges = np.array([-np.inf, *(np.arange(num_classes - 1) + 0.5), np.inf])
    cumulative = AROUND[loss].cdf(edges, loc=outputs[:, None].numpy(), scale=scale)
    found = head.predict_proba(outputs[:, None]).detach().numpy()
    np.testing.assert_allclose(found, np.diff(cumulative, axis=1), rtol=0, atol=1e-12)


@EITHER
@given(data=st.data(), num_classes=st.integers(2, 30), scale=st.floats(0.01, 20.0))
def test_the_median_of_regression_is_the_output_rounded_and_clipped(loss, data, num_classes, scale):
    output = data.draw(st.floats(-5, num_classes + 5))
    assume(abs(output % 1 - 0.5) > 1e-6)  # at a tie the last digit of a sum decides
    head = regression_on_outputs(num_classes, loss, scale)
    rank = head.predict(torch.tensor([[output]], dtype=torch.float64), decode="median").item()
    assert rank == min(max(round(output), 0), num_classes - 1)


def test_far_cells_keep_their_logarithm_where_probabilities_are_zero():
    head = regression_on_outputs(2000, "l1", 0.2)
    log_probs = head.log_probs(torch.tensor([[3.0]], dtype=torch.float64))[0].detach()
    closed = -np.arange(1, 1996) / 0.2 + math.log(math.sinh(0.5 / 0.2))
    np.testing.assert_allclose(log_probs[4:-1], closed, rtol=1e-9)


def test_cells_of_the_normal_are_differences_of_its_distribution():
    edges = np.array([-30, -8, -1, -1e-3, 0, 1e-9, 1e-3, 0.5, 6, 7, 7.0001, 35, 36])
    below, above = np.diff(stats.norm.cdf(edges)), -np.diff(stats.norm.sf(edges))
    expected = np.log(np.where(edges[:-1] > 0, above, below))
    error = np.abs(log_cells(torch.from_numpy(edges)).numpy() - expected)
    # a cell is a difference: the digits it has are those that its width leaves
    assert (error <= 1e-9 * (1 + np.abs(expected)) + 1e-15 / np.diff(edges)).all()


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_normal_tail_and_its_slope_are_right_however_far(dtype, rtol):
    z = torch.tensor([-1e8, -1e6, -1e4, -300, -20, -2, -1e-3, 0, 1e-3, 2, 5], dtype=dtype)
    z.requires_grad_()
    values = log_normal_cdf(z)
    values.sum().backward()
    x = z.detach().double().numpy()
    np.testing.assert_allclose(values.double().detach(), stats.norm.logcdf(x), rtol=rtol)
    slope = np.where(x > -1e3, np.exp(stats.norm.logpdf(x) - stats.norm.logcdf(x)), -x)
    np.testing.assert_allclose(z.grad.double(), slope, rtol=max(rtol, 1e-7))  # −x is right to 1/x²
