"""The joint layout."""

import pytest
import torch

from layline.heads import create
from layline.heads.base import HasProxies
from layline.heads.joint_layout import LAYOUTS, count_coordinates


def direct(num_classes, **options):
    """A joint layout whose features are the coordinates."""
    dim = count_coordinates(num_classes, **options)
    return create("joint-layout", num_classes, dim, **options).double()


@pytest.mark.parametrize("num_classes", [2, 3, 8, 91])
def test_probabilities_are_those_of_the_squared_distances(num_classes):
    head = direct(num_classes, layouts=list(LAYOUTS))
    torch.nn.init.normal_(head.log_scales)
    features = torch.randn(20, head.dim).double()
    scales = head.log_scales.exp()
    blocks = [s * make(num_classes) for s, make in zip(scales, LAYOUTS.values(), strict=True)]
    squares = torch.cdist(features, torch.cat(blocks, dim=1)).square()
    expected = (-squares / 2).softmax(dim=1)
    # a head keeps its proxies in single precision
    torch.testing.assert_close(head.predict_proba(features), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num_classes", [3, 8, 101])
def test_ordered_layouts_are_ordered_and_the_simplex_is_not(num_classes):
    for name in ("line", "semicircle"):
        proxies = LAYOUTS[name](num_classes)
        for k, row in enumerate(torch.cdist(proxies, proxies)):
            assert (row[k:].diff() > 0).all()
            assert (row[: k + 1].diff() < 0).all()
    distances = torch.pdist(LAYOUTS["simplex"](num_classes))
    torch.testing.assert_close(distances, torch.full_like(distances, 2**0.5))


def test_features_of_another_dimension_pass_a_linear_layer():
    head = create("joint-layout", 5, 16, layouts=["line", "simplex"])
    assert (head.linear.in_features, head.linear.out_features) == (16, 6)
    assert not isinstance(head, HasProxies)
    assert isinstance(direct(5, layouts=["line", "simplex"]), HasProxies)


def test_features_on_the_proxies_have_the_rank_of_the_proxy():
    head = direct(6)
    assert head.predict(head.proxies().double()).tolist() == list(range(6))


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ("line", "layouts must be a list of names, got 'line'"),
        ((), r"layouts must be a list of names, got \(\)"),
        (("line", "circle"), "layouts must be a known name, got 'circle'"),
    ],
)
def test_wrong_layouts_are_named(layouts, message):
    with pytest.raises(ValueError, match=message):
        create("joint-layout", 5, layouts=layouts)
