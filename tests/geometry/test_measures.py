import pytest
import torch
from scipy.spatial.distance import cdist

from layline.geometry.layouts import cosines, squared_distances


@pytest.mark.parametrize("dim", [1, 2, 64, 512])
def test_squared_distances_agree_with_scipy(dim):
    x, y = torch.randn(7, dim).double(), torch.randn(5, dim).double()
    expected = torch.from_numpy(cdist(x.numpy(), y.numpy(), "sqeuclidean"))
    torch.testing.assert_close(squared_distances(x, y), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("offset", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("distance", [1e-2, 1.0, 1e4])
def test_single_precision_is_exact_to_its_last_digits_also_far_from_the_origin(offset, distance):
    x = offset + torch.randn(7, 512)
    y = x[:5] + distance * torch.randn(5, 512)
    expected = torch.from_numpy(cdist(x.double().numpy(), y.double().numpy(), "sqeuclidean"))
    torch.testing.assert_close(squared_distances(x, y), expected.float(), rtol=3e-7, atol=0)


@pytest.mark.parametrize("dim", [2, 64, 512])
def test_cosines_agree_with_scipy(dim):
    x, y = torch.randn(7, dim).double(), torch.randn(5, dim).double()
    expected = 1 - torch.from_numpy(cdist(x.numpy(), y.numpy(), "cosine"))
    torch.testing.assert_close(cosines(x, y), expected, rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e4])
def test_a_vector_is_exactly_at_distance_zero_from_itself(length):
    x = torch.randn(6, 512) * length
    assert (squared_distances(x, x).diagonal() == 0).all()


def test_the_gradient_at_distance_zero_is_zero(gradients):
    x = torch.randn(4, 8, requires_grad=True)
    distances = squared_distances(x, x.detach().clone())
    assert (gradients(distances.diagonal().sum(), x)[0] == 0).all()


def test_the_zero_vector_has_cosine_zero_and_a_bounded_gradient(gradients):
    x, y = torch.zeros(1, 8, requires_grad=True), torch.randn(3, 8)
    found = cosines(x, y)
    assert (found == 0).all()
    assert gradients(found[0, 0], x)[0].norm() <= 1 + 1e-6


@pytest.mark.parametrize("function", [squared_distances, cosines])
def test_gradients_agree_with_finite_differences(function):
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x, y))
