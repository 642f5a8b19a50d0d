"""What is true of every layout in the registry."""

import re
from pathlib import Path

import pytest
import torch

from layline.geometry import LAYOUTS as REGISTERED
from layline.geometry import SIMILARITIES, layouts
from layline.geometry.losses import log_q
from layline.heads import ConstrainedProxies


def layout_of_contributing():
    """The layout that CONTRIBUTING.md shows as an example, a class from outside."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(code.splitlines()) < 25
    place = {}
    exec(code, place)
    return place["QuarterCircle"]


LAYOUTS = {**REGISTERED, "of CONTRIBUTING": layout_of_contributing()}

SIZES = [(2, 2), (3, 64), (8, 2), (101, 64)]


# A layout with its options; one without any, such as a newcomer, is tested as it is.
OPTIONS = {
    "linear": [{}, {"norm": 3.0}, {"stiffness": 0.1}, {"norm": 3.0, "stiffness": 0.1}],
    "semicircular": [{}, {"stiffness": 0.3}],
}
VARIANTS = [pytest.param(n, o, id=f"{n}{o or ''}") for n in LAYOUTS for o in OPTIONS.get(n, [{}])]


def disturbed(name, num_classes, dim, **arguments):
    """A layout as it may be in the middle of training, in float64."""
    layout = LAYOUTS[name](num_classes, dim, **arguments).double()
    with torch.no_grad():
        for parameter in layout.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layout


def pairs(layout):
    """(what the layout answers, what the plain computation on its proxies gives)."""
    features = torch.randn(6, layout.dim, dtype=torch.float64, requires_grad=True)
    ranks = torch.randint(layout.num_classes, (6,))
    for measure in sorted(layout.measures):
        plain = getattr(layouts, measure)
        yield features, getattr(layout, measure)(features), plain(features, layout.proxies())
        proxies = layout.proxies()
        yield features, getattr(layout, f"proxy_{measure}")(ranks), plain(proxies[ranks], proxies)


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
@pytest.mark.parametrize(("num_classes", "dim"), SIZES)
def test_closed_forms_equal_the_plain_computation(name, arguments, num_classes, dim, gradients):
    layout = disturbed(name, num_classes, dim, **arguments)
    for features, closed, plain in pairs(layout):
        torch.testing.assert_close(closed, plain, rtol=1e-10, atol=1e-10)
        direction = torch.randn_like(plain) / plain.detach().abs().max()  # numbers of size one
        wanted = (features, *layout.parameters())
        ours = gradients((closed * direction).sum(), *wanted) if closed.requires_grad else None
        theirs = gradients((plain * direction).sum(), *wanted)
        for i, expected in enumerate(theirs):
            actual = torch.zeros_like(expected) if ours is None else ours[i]
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
@pytest.mark.parametrize("num_classes", [2, 3, 8, 101])
def test_nearest_is_the_arg_max_of_every_similarity_it_can_measure(name, arguments, num_classes):
    layout = disturbed(name, num_classes, 16, **arguments)
    near = layout.proxies()[torch.randint(num_classes, (300,))] + 0.2 * torch.randn(300, 16)
    for similarity in (s() for s in SIMILARITIES.values()):
        if similarity.measure in layout.measures:
            expected = similarity(getattr(layout, similarity.measure)(near)).argmax(dim=-1)
            assert torch.equal(layout.nearest(similarity.measure, near), expected)


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_proxy_is_exactly_at_distance_zero_from_itself(name, arguments, dtype):
    layout = LAYOUTS[name](8, 512, **arguments).to(dtype)
    distances = layout.proxy_squared_distances(torch.arange(8))
    assert distances.dtype == dtype
    assert (distances.diagonal() == 0).all()


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_constant_says_whether_the_proxies_move_against_each_other(name, arguments):
    layout = LAYOUTS[name](5, 4, **arguments).double()
    ranks = torch.arange(5)
    before = layout.proxy_squared_distances(ranks).detach().clone()
    with torch.no_grad():
        for parameter in layout.parameters():
            parameter.add_(torch.randn_like(parameter))
    after = layout.proxy_squared_distances(ranks)
    assert torch.allclose(before, after, atol=1e-12) == layout.constant


@pytest.mark.parametrize("name", ["linear", "semicircular"])
def test_hard_layouts_never_build_an_array_of_k_times_d(name):
    """The largest tensor of a step has n·d or n·K numbers, whichever is more."""
    num_classes, dim, n = 3000, 700, 4

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor):
                    self.seen = max(self.seen, tensor.numel())
            return result

    layout, features = LAYOUTS[name](num_classes, dim), torch.randn(n, dim, requires_grad=True)
    similarity = SIMILARITIES["student-t"]()
    with Largest() as largest:
        loss = ConstrainedProxies(layout, similarity)(features).sum()
        loss = loss + log_q(layout, similarity, torch.arange(n)).sum()
        loss.backward()
    assert largest.seen <= n * num_classes
    with Largest() as largest:
        layout.nearest("squared_distances", features)
    assert largest.seen <= n * dim
