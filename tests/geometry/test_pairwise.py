import pytest
import torch
from scipy.spatial.distance import cdist

from layline.geometry import pairwise


@pytest.mark.parametrize("dim", [1, 2, 64, 512])
def test_squared_distances_agree_with_scipy(dim):
    x, y = torch.randn(7, dim).double(), torch.randn(5, dim).double()
    expected = torch.from_numpy(cdist(x.numpy(), y.numpy(), "sqeuclidean"))
    torch.testing.assert_close(pairwise.squared_distances(x, y), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dim", [2, 64, 512])
def test_cosines_agree_with_scipy(dim):
    x, y = torch.randn(7, dim).double(), torch.randn(5, dim).double()
    expected = 1 - torch.from_numpy(cdist(x.numpy(), y.numpy(), "cosine"))
    torch.testing.assert_close(pairwise.cosines(x, y), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e4])
def test_a_vector_is_exactly_at_distance_zero_from_itself(length):
    x = torch.randn(6, 512) * length
    assert (pairwise.squared_distances(x, x).diagonal() == 0).all()


def test_the_gradient_at_distance_zero_is_zero(gradients):
    x = torch.randn(4, 8, requires_grad=True)
    distances = pairwise.squared_distances(x, x.detach().clone())
    assert (gradients(distances.diagonal().sum(), x)[0] == 0).all()


def test_the_zero_vector_has_cosine_zero_and_a_bounded_gradient(gradients):
    x, y = torch.zeros(1, 8, requires_grad=True), torch.randn(3, 8)
    cosines = pairwise.cosines(x, y)
    assert (cosines == 0).all()
    assert gradients(cosines[0, 0], x)[0].norm() <= 1 + 1e-6


def test_unit_vectors_have_length_one():
    x = torch.randn(5, 9).double() * torch.tensor([1e-8, 1e-3, 1.0, 1e3, 1e8])[:, None]
    torch.testing.assert_close(pairwise.unit(x).norm(dim=-1), torch.ones(5).double())


@pytest.mark.parametrize("function", [pairwise.squared_distances, pairwise.cosines])
def test_gradients_agree_with_finite_differences(function):
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x, y))
