import numpy as np
import pytest
import torch
from scipy import integrate, stats

from layline.heads.unimodal import log_cells, log_normal_cdf
from layline.heads.gp_dnnor import with_tails

EDGES = [-30.0, -8.0, -1.0, -1e-3, 0.0, 1e-9, 1e-3, 0.5, 6.0, 7.0, 7.0001, 35.0, 36.0]


def test_cells_are_integrals_of_the_density():
    cells = log_cells(torch.tensor(EDGES, dtype=torch.float64)).numpy()
    for lower, upper, cell in zip(EDGES[:-1], EDGES[1:], cells, strict=True):
        # the density relative to its largest value, so that nothing underflows
        top = stats.norm.logpdf(min((lower, upper, np.clip(0, lower, upper)), key=abs))
        near = np.clip(0, lower, upper)
        step = min(upper - lower, 12.0)  # the rest is below the last digit
        start, end = (near, near + step) if near == lower else (near - step, near)
        if lower < 0 < upper:
            start, end = max(lower, -12), min(upper, 12)
        mass, _ = integrate.quad(
            lambda t, top=top: np.exp(stats.norm.logpdf(t) - top),
            start,
            end,
            epsabs=0,
            epsrel=1e-12,
        )
        # a cell is a difference: the digits it has are those that its width leaves
        atol = 1e-9 + 2 * np.finfo(float).eps / (upper - lower)
        np.testing.assert_allclose(cell, top + np.log(mass), rtol=1e-9, atol=atol)


def test_gradients_are_those_of_finite_differences_also_at_zero():
    edges = torch.tensor([-3.0, -1, 0, 0.5, 2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_cells, edges)


def test_gradients_are_finite_far_out():
    edges = torch.tensor([-1e5, -1e4, -50, 60, 1e4, 2e4], dtype=torch.float64, requires_grad=True)
    log_cells(edges).sum().backward()
    assert edges.grad.isfinite().all()


def test_with_tails_nothing_of_the_line_is_missing():
    for edges in ([-2.0, 0.5, 3.0], [30.0, 31.0], [-50.0, -45.0], [0.0]):
        cells = log_cells(with_tails(torch.tensor(edges, dtype=torch.float64)))
        assert len(cells) == len(edges) + 1
        torch.testing.assert_close(cells.exp().sum().item(), 1.0, rtol=0, atol=1e-14)
        expected = stats.norm.logcdf(edges[0]), stats.norm.logsf(edges[-1])
        np.testing.assert_allclose((cells[0].item(), cells[-1].item()), expected, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_normal_tail_and_its_slope_are_right_however_far(dtype, rtol):
    z = torch.tensor([-1e8, -1e6, -1e4, -300, -20, -2, -1e-3, 0, 1e-3, 2, 5], dtype=dtype)
    z.requires_grad_()
    values = log_normal_cdf(z)
    values.sum().backward()
    x = z.detach().double().numpy()
    near = x > -1e3
    np.testing.assert_allclose(values.double().detach(), stats.norm.logcdf(x), rtol=rtol)
    slope = np.where(near, np.exp(stats.norm.logpdf(x) - stats.norm.logcdf(x)), -x)
    np.testing.assert_allclose(z.grad.double(), slope, rtol=max(rtol, 1e-7))  # −x is right to 1/x²
