"""Layouts and the measures that they are made of. See also tests/contracts/test_layouts.py."""

import math

import pytest
import torch
from scipy.spatial.distance import cdist

from layline.geometry.layouts import (
    LAYOUTS,
    Linear,
    Semicircular,
    cosines,
    orthonormal_pair,
    squared_distances,
)

SIZES = [2, 3, 8, 101]


@pytest.mark.parametrize("dim", [1, 2, 512])
def test_measures_agree_with_scipy(dim):
    x, y = torch.randn(7, dim).double(), torch.randn(5, dim).double()
    expected = torch.from_numpy(cdist(x.numpy(), y.numpy(), "sqeuclidean"))
    torch.testing.assert_close(squared_distances(x, y), expected, rtol=1e-12, atol=0)
    expected = 1 - torch.from_numpy(cdist(x.numpy(), y.numpy(), "cosine"))
    torch.testing.assert_close(cosines(x, y), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("distance", [1e-2, 1.0, 1e4])
def test_single_precision_is_exact_to_its_last_digits_also_far_from_the_origin(offset, distance):
    x = offset + torch.randn(7, 512)
    y = x[:5] + distance * torch.randn(5, 512)
    expected = torch.from_numpy(cdist(x.double().numpy(), y.double().numpy(), "sqeuclidean"))
    torch.testing.assert_close(squared_distances(x, y), expected.float(), rtol=3e-7, atol=0)


@pytest.mark.parametrize(("length_x", "length_y"), [(1e-18, 1.0), (1e-18, 1e-18), (1e15, 1e15)])
def test_cosines_and_their_gradients_depend_on_directions_only(length_x, length_y, gradients):
    near = torch.randn(7, 64, requires_grad=True), torch.randn(5, 64, requires_grad=True)
    far = [(near[0] * length_x).detach(), (near[1] * length_y).detach()]
    far = [tensor.requires_grad_() for tensor in far]
    torch.testing.assert_close(cosines(*far), cosines(*near), rtol=1e-4, atol=1e-6)
    direction = torch.randn(7, 5)
    expected = gradients((cosines(*near) * direction).sum(), *near)
    scaled = gradients((cosines(*far) * direction).sum(), *far)
    torch.testing.assert_close(scaled[0] * length_x, expected[0], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(scaled[1] * length_y, expected[1], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("dim", [1, 2, 64])
def test_linear_is_equation_7(num_classes, dim):
    layout = Linear(num_classes, dim).double()
    expected = torch.arange(num_classes, dtype=torch.float64)[:, None] * layout.vectors[0]
    torch.testing.assert_close(layout.proxies(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("dim", [2, 64])
@pytest.mark.parametrize("lean", [-0.9, 0.0, 0.95])  # cosine between v0 and v1, roughly
def test_semicircular_is_equation_8_as_printed(num_classes, dim, lean):
    layout = Semicircular(num_classes, dim).double()
    with torch.no_grad():
        layout.vectors[1].mul_(1 - abs(lean)).add_(lean * layout.vectors[0])
    v0, v1 = layout.vectors
    gamma = torch.acos(v0 @ v1 / (v0.norm() * v1.norm()))
    angles = torch.arange(num_classes).double()[:, None] * math.pi / (num_classes - 1)
    expected = (
        torch.sin(gamma - angles) / torch.sin(gamma) * v0 / v0.norm()
        + torch.sin(angles) / torch.sin(gamma) * v1 / v1.norm()
    )
    torch.testing.assert_close(layout.proxies(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["linear", "semicircular"])
@pytest.mark.parametrize("num_classes", SIZES)
def test_every_class_is_closest_to_itself_then_to_its_neighbours(name, num_classes):
    proxies = LAYOUTS[name](num_classes, 16).proxies()
    for k, row in enumerate((proxies[:, None] - proxies).norm(dim=-1)):
        assert (row[k:].diff() > 0).all()
        assert (row[: k + 1].diff() < 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("dim", "lean"), [(2, 1.0), (64, 1.0), (64, 1e-5)])
def test_basis_is_orthonormal_even_when_the_vectors_almost_coincide(dim, lean, dtype):
    v0 = torch.randn(dim, dtype=dtype)
    basis = orthonormal_pair(torch.stack([v0, v0 + lean * torch.randn(dim, dtype=dtype)]))
    tolerance = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(basis @ basis.T, torch.eye(2, dtype=dtype), rtol=0, atol=tolerance)
    torch.testing.assert_close(basis[0], v0 / v0.norm())


@pytest.mark.parametrize("stiffness", [None, 0.3])
@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_around_the_whole_circle_the_nearest_is_the_arg_max(stiffness, num_classes):
    """Above the diameter, below it, exactly at both ends, and at the center."""
    layout = Semicircular(num_classes, 2, stiffness=stiffness).double()
    angles = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)[:, None]
    u0, u1 = orthonormal_pair(layout.vectors)
    ring = torch.cat([torch.cos(angles) * u0 + torch.sin(angles) * u1, u0[None], -u0[None]])
    best = layout.cosines(ring).max(dim=-1).values
    chosen = layout.cosines(ring).gather(1, layout.nearest("cosines", ring)[:, None])[:, 0]
    torch.testing.assert_close(chosen, best, rtol=0, atol=1e-12)
    ends = torch.stack([u0, -u0, 0 * u0])
    assert layout.nearest("cosines", ends).tolist() == [0, num_classes - 1, 0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_vectors_that_are_zero_or_parallel_give_finite_answers(name, gradients):
    layout = LAYOUTS[name](4, 6)
    for fill in (torch.zeros(6), torch.ones(6)):
        with torch.no_grad():
            layout.vectors.copy_(fill.expand_as(layout.vectors))
        features = torch.randn(3, 6)
        for measure in layout.measures:
            measured = getattr(layout, measure)(features)
            assert measured.isfinite().all()
            assert gradients(measured.sum(), layout.vectors)[0].isfinite().all()
            ranks = layout.nearest(measure, features)
            assert ((ranks >= 0) & (ranks < 4)).all()


@pytest.mark.parametrize("stiffness", [None, 0.3])
def test_angle_and_share_are_the_polar_form_of_the_cosines(stiffness):
    layout = Semicircular(7, 5, stiffness=stiffness).double()
    features = 3 * torch.randn(200, 5).double()
    angle, share = layout.polar(features)
    expected = share[:, None] * torch.cos(angle[:, None] - layout.angles())
    torch.testing.assert_close(layout.cosines(features), expected, rtol=0, atol=1e-12)
    assert ((share >= 0) & (share <= 1)).all()
