import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from layline.heads import HEADS, create

EITHER = pytest.mark.parametrize("loss", ["l1", "l2"])
AROUND = {"l1": stats.laplace, "l2": stats.norm}


def on_outputs(num_classes, loss, scale, dtype=torch.float64):
    """A head whose single feature is its output f."""
    head = create("regression", num_classes, 1, loss=loss).to(dtype)
    with torch.no_grad():
        head.linear.weight.fill_(1)
        head.linear.bias.zero_()
        head.log_scale.fill_(math.log(scale - 1e-3))
    return head


@EITHER
@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_error_plus_the_likelihood_of_the_scale(loss, num_classes):
    head = create("regression", num_classes, 5, loss=loss).double()
    features = torch.randn(20, 5, dtype=torch.float64)
    ranks = torch.randint(num_classes, (20,))
    residuals = head._scores(features)[:, 0].detach().numpy() - ranks.numpy()
    error = np.abs(residuals) if loss == "l1" else residuals**2
    scale = math.exp(head.log_scale.item()) + 1e-3
    plain = error - AROUND[loss].logpdf(residuals, scale=scale)
    assert head.loss(features, ranks).item() == pytest.approx(plain.mean(), abs=1e-10)


@EITHER
def test_the_output_learns_from_its_own_loss_alone(loss, gradients):
    head = create("regression", 6, 5, loss=loss).double()
    features = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    ranks = torch.randint(6, (20,))
    residuals = head._scores(features)[:, 0] - ranks
    plain = (residuals.abs() if loss == "l1" else residuals**2).mean()
    given_to = (features, head.linear.weight, head.linear.bias)
    ours = gradients(head.loss(features, ranks), *given_to)
    torch.testing.assert_close(ours, gradients(plain, *given_to))


@EITHER
@pytest.mark.parametrize("num_classes", [2, 3, 8, 101])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_probabilities_are_the_cells_of_the_distribution(loss, num_classes, scale):
    head = on_outputs(num_classes, loss, scale)
    outputs = torch.linspace(-2, num_classes + 1, 50, dtype=torch.float64)
    edges = np.array([-np.inf, *(np.arange(num_classes - 1) + 0.5), np.inf])
    cumulative = AROUND[loss].cdf(edges, loc=outputs[:, None].numpy(), scale=scale)
    probs = head.predict_proba(outputs[:, None]).detach().numpy()
    np.testing.assert_allclose(probs, np.diff(cumulative, axis=1), rtol=0, atol=1e-12)


@EITHER
@given(data=st.data(), num_classes=st.integers(2, 30), scale=st.floats(0.01, 20.0))
def test_the_median_is_the_output_rounded_and_clipped(loss, data, num_classes, scale):
    """The method's own rule. A tie between two ranks goes to the lower one, as in every median."""
    output = data.draw(st.floats(-5, num_classes + 5))
    assume(abs(output % 1 - 0.5) > 1e-6)  # at a tie the last digit of a sum decides
    head = on_outputs(num_classes, loss, scale)
    rank = head.predict(torch.tensor([[output]], dtype=torch.float64), decode="median").item()
    assert rank == min(max(round(output), 0), num_classes - 1)
    assert HEADS["regression"].decode == "median"


@pytest.mark.parametrize(("scale", "f"), [(0.2, 3.0), (1.0, 3.0), (1.0, 0.2)])
def test_far_cells_keep_their_logarithm(scale, f):
    """Where the probabilities themselves are zero in double precision."""
    log_probs = on_outputs(2000, "l1", scale).log_probs(torch.tensor([[f]], dtype=torch.float64))[0]
    k = np.arange(1, 1999)
    away = np.abs(k - f)
    # the integral of exp(−|x| / b) / 2b over a cell that f is not in
    closed = -away / scale + math.log(math.sinh(0.5 / scale))
    np.testing.assert_allclose(log_probs[1:-1].detach()[away > 0.5], closed[away > 0.5], rtol=1e-9)
    log_probs = on_outputs(400, "l2", scale).log_probs(torch.tensor([[f]], dtype=torch.float64))[0]
    near_edge = np.arange(20, 399) - 0.5
    upper = stats.norm.logsf(near_edge, loc=f, scale=scale)
    lower = stats.norm.logsf(near_edge + 1, loc=f, scale=scale)
    closed = upper + np.log1p(-np.exp(lower - upper))
    np.testing.assert_allclose(log_probs[20:-1].detach(), closed, rtol=1e-9)
