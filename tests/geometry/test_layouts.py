import math

import pytest
import torch

from layline.geometry.layouts import (
    LAYOUTS,
    Linear,
    Semicircular,
    Spacing,
    orthonormal_pair,
)

SIZES = [2, 3, 8, 101]


def equation_8(v0, v1, num_classes):
    """The semicircular layout as the paper prints it."""
    beta = math.pi / (num_classes - 1)
    gamma = torch.acos(v0 @ v1 / (v0.norm() * v1.norm()))
    k = torch.arange(num_classes, dtype=v0.dtype)[:, None]
    return (
        torch.sin(gamma - k * beta) / torch.sin(gamma) * v0 / v0.norm()
        + torch.sin(k * beta) / torch.sin(gamma) * v1 / v1.norm()
    )


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("dim", [1, 2, 64])
def test_linear_is_equation_7(num_classes, dim):
    layout = Linear(num_classes, dim).double()
    expected = torch.arange(num_classes, dtype=torch.float64)[:, None] * layout.vectors[0]
    torch.testing.assert_close(layout.proxies(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("dim", [2, 64])
@pytest.mark.parametrize("lean", [-0.9, -0.3, 0.0, 0.6, 0.95])  # cosine between v0 and v1, roughly
def test_semicircular_is_equation_8_as_printed(num_classes, dim, lean):
    layout = Semicircular(num_classes, dim).double()
    with torch.no_grad():
        layout.vectors[1].mul_(1 - abs(lean)).add_(lean * layout.vectors[0])
    expected = equation_8(*layout.vectors, num_classes)
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


def test_proxies_of_the_semicircle_have_length_one_and_opposite_ends():
    proxies = Semicircular(8, 32).double().proxies()
    torch.testing.assert_close(proxies.norm(dim=-1), torch.ones(8).double())
    torch.testing.assert_close(proxies[0], -proxies[-1])


@pytest.mark.parametrize("norm", [1.0, 3.0, 5.0, 7.0])
def test_a_fixed_norm_is_the_step_whatever_the_vector_becomes(norm):
    layout = Linear(6, 16, norm=norm).double()
    with torch.no_grad():
        layout.vectors.mul_(40)
    steps = layout.proxies().diff(dim=0)
    torch.testing.assert_close(steps.norm(dim=-1), torch.full((5,), norm).double())
    torch.testing.assert_close(steps[0] / norm, layout.vectors[0] / layout.vectors[0].norm())


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_a_norm_that_is_not_positive_is_refused(norm):
    with pytest.raises(ValueError, match=f"norm must be .* above 0, got {norm}"):
        Linear(5, 4, norm=norm)


@pytest.mark.parametrize("stiffness", [None, 0.3])
def test_a_semicircle_needs_a_plane(stiffness):
    with pytest.raises(ValueError, match=r"dim must be .* at least 2, got 1"):
        Semicircular(5, 1, stiffness=stiffness)


@pytest.mark.parametrize("num_classes", SIZES)
def test_elastic_positions_increase_from_zero_to_the_span_for_any_weights(num_classes):
    spacing = Spacing(num_classes, stiffness=0.1).double()
    torch.nn.init.normal_(spacing.weights, std=3)
    positions = spacing.positions(torch.tensor(5.0).double())
    assert positions[0] == 0
    assert (positions.diff() > 0).all()
    assert positions[-1].item() == pytest.approx(5)


@pytest.mark.parametrize("stiffness", [None, 0.3])
@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_around_the_whole_circle_the_nearest_is_the_arg_max(stiffness, num_classes):
    """Above the diameter, below it, and exactly at both ends."""
    layout = Semicircular(num_classes, 2, stiffness=stiffness).double()
    angles = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)[:, None]
    u0, u1 = orthonormal_pair(layout.vectors)
    ring = torch.cat([torch.cos(angles) * u0 + torch.sin(angles) * u1, u0[None], -u0[None]])
    cosines = layout.cosines(ring)
    best = cosines.max(dim=-1).values
    chosen = cosines.gather(1, layout.nearest("cosines", ring)[:, None])[:, 0]
    torch.testing.assert_close(chosen, best, rtol=0, atol=1e-12)
    assert layout.nearest("cosines", torch.stack([u0, -u0])).tolist() == [0, num_classes - 1]


def test_the_centre_of_the_circle_goes_to_the_lowest_rank_as_the_arg_max_does():
    layout = Semicircular(8, 4)
    centre = torch.zeros(1, 4)
    assert layout.nearest("cosines", centre).item() == layout.cosines(centre).argmax().item() == 0


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
    assert ((angle > -math.pi) & (angle <= math.pi)).all()
