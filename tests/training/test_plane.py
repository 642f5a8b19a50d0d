"""The plane that a layout is drawn in."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from layline.geometry import LAYOUTS
from layline.training.plane import plane_of, share_shown

RNG = np.random.default_rng(0)


def rotation(dim):
    return np.linalg.qr(RNG.normal(size=(dim, dim)))[0]


def sample(dim, num_classes=5, count=120):
    """Features around proxies of their classes."""
    proxies = RNG.normal(size=(num_classes, dim))
    ranks = np.arange(count) % num_classes
    return proxies[ranks] + 0.3 * RNG.normal(size=(count, dim)), ranks, proxies


def proxies_of(name, num_classes, dim):
    torch.manual_seed(0)
    return LAYOUTS[name](num_classes, dim).proxies().detach().numpy()


@pytest.mark.parametrize("with_proxies", [True, False])
@pytest.mark.parametrize("dim", [3, 4, 64])
def test_the_axes_are_orthonormal(dim, with_proxies):
    features, ranks, proxies = sample(dim)
    axes = plane_of(features, ranks, proxies if with_proxies else None)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)


def test_two_dimensions_are_shown_as_they_are():
    features, ranks, proxies = sample(2)
    axes = plane_of(features, ranks, proxies)
    np.testing.assert_array_equal(features @ axes.T, features)
    assert share_shown(features, axes) == 1


def test_of_one_dimension_the_second_coordinate_is_zero():
    features, ranks, proxies = sample(1)
    points = features @ plane_of(features, ranks, proxies).T
    np.testing.assert_array_equal(points, np.c_[features, np.zeros(len(features))])


@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_a_line_is_drawn_as_a_line_in_equal_steps_from_left_to_right(num_classes):
    proxies = proxies_of("linear", num_classes, 16)
    features = proxies[np.arange(40) % num_classes] + RNG.normal(size=(40, 16))
    places = proxies @ plane_of(features, np.arange(40) % num_classes, proxies).T
    steps = np.diff(places, axis=0)
    np.testing.assert_allclose(steps[:, 1], 0, atol=1e-6)
    np.testing.assert_allclose(steps[:, 0], np.linalg.norm(proxies[1]), rtol=1e-5)


def test_beside_a_line_the_second_axis_is_where_the_features_vary_most():
    features = RNG.normal(size=(300, 6)) * [9, 1, 1, 5, 1, 1]
    proxies = np.arange(4)[:, None] * np.eye(6)[0]
    _, second = plane_of(features, np.arange(300) % 4, proxies)
    rest = PCA(1, svd_solver="full").fit(features[:, 1:]).components_[0]
    assert second[0] == pytest.approx(0)
    assert abs(second[1:] @ rest) == pytest.approx(1)


@pytest.mark.parametrize("num_classes", [3, 4, 9])
def test_a_semicircle_is_drawn_as_one_upright(num_classes):
    proxies = proxies_of("semicircular", num_classes, 32)
    features, ranks = RNG.normal(size=(50, 32)), np.arange(50) % num_classes
    places = proxies @ plane_of(features, ranks, proxies).T
    angles = np.pi - np.arange(num_classes) * np.pi / (num_classes - 1)
    np.testing.assert_allclose(places, np.c_[np.cos(angles), np.sin(angles)], atol=1e-5)


def test_without_proxies_it_is_that_of_the_principal_components():
    features, ranks, _ = sample(12)
    axes = plane_of(features, ranks, None)
    known = PCA(2, svd_solver="full").fit(features)
    np.testing.assert_allclose(np.abs(axes @ known.components_.T), np.eye(2), atol=1e-9)
    assert share_shown(features, axes) == pytest.approx(known.explained_variance_ratio_.sum())


@pytest.mark.parametrize("with_proxies", [True, False])
def test_turning_everything_turns_only_the_plane(with_proxies):
    features, ranks, proxies = sample(7)
    turn = rotation(7)
    kept, turned = (proxies, proxies @ turn) if with_proxies else (None, None)
    before = features @ plane_of(features, ranks, kept).T
    after = (features @ turn) @ plane_of(features @ turn, ranks, turned).T
    np.testing.assert_allclose(after[:, 0], before[:, 0], atol=1e-9)
    signs = 1 if with_proxies else np.sign(after[0, 1] * before[0, 1])
    np.testing.assert_allclose(after[:, 1] * signs, before[:, 1], atol=1e-9)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("with_proxies", [True, False])
def test_few_features_that_vary_nowhere_still_have_a_plane(count, with_proxies):
    features, ranks = np.ones((count, 5), dtype=np.float32), np.zeros(count, dtype=int)
    proxies = np.zeros((3, 5)) if with_proxies else None
    axes = plane_of(features, ranks, proxies)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
    assert share_shown(features, axes) == 1
