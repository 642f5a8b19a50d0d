"""The worked-out steps of the line and the arc equal the plain computation, gradients included."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from layline.geometry import LAYOUTS, divergence
from layline.geometry.layouts import Free, Linear, Semicircular, linear
from layline.geometry.layouts import semicircular as arc
from layline.geometry.similarities import Cosine, NegativeEuclidean, StudentT

COMPOSITIONS = {
    "line": ("linear", StudentT(), {}),
    "line of fixed norm": ("linear", StudentT(), {"norm": 3.0}),
    "arc": ("semicircular", Cosine(), {}),
    "arc of another scale": ("semicircular", Cosine(scale=20.0), {}),
}
EVERY = pytest.mark.parametrize("composition", COMPOSITIONS)
PLACES = ["anywhere", "proxy", "ends", "zero", "far", "far on the line"]


def make(composition, num_classes, dim, dtype=torch.float64):
    name, similarity, options = COMPOSITIONS[composition]
    return LAYOUTS[name](num_classes, dim, **options).to(dtype), similarity


def features_at(place, layout, n=24):
    """Backbone with gradient, at a place where a formula may break, and their ranks."""
    ranks = torch.arange(n) % layout.num_classes
    proxies = layout.proxies().detach()
    features = {
        "anywhere": torch.randn(n, layout.dim),
        "proxy": proxies[ranks],
        "ends": proxies[(ranks % 2) * (layout.num_classes - 1)],
        "zero": torch.zeros(n, layout.dim),
        "far": 1e3 * torch.nn.functional.normalize(torch.randn(n, layout.dim)),
        "far on the line": 1e3 * torch.nn.functional.normalize(proxies[-1:]).expand(n, -1),
    }[place]
    return features.to(proxies.dtype).clone().requires_grad_(), ranks


def short(layout, similarity, features, ranks):
    return layout.basic_losses(similarity, features, ranks)


def plain(layout, similarity, features, ranks):
    log_p = divergence.log_p(layout, similarity, features)
    return divergence.basic_loss(divergence.log_q(layout, similarity, ranks), log_p)


def values_and_gradients(losses, weights, features, layout):
    wanted = (features, layout.vectors)
    return losses, *torch.autograd.grad((weights * losses).sum(), wanted)


@EVERY
@pytest.mark.parametrize("place", PLACES)
def test_the_short_way_equals_the_plain_one(composition, place):
    for num_classes, dim in itertools.product((2, 3, 8, 101), (2, 64)):
        torch.default_generator.manual_seed(0)  # as if each were a test of its own
        layout, similarity = make(composition, num_classes, dim)
        features, ranks = features_at(place, layout)
        weights = torch.rand(len(ranks), dtype=torch.float64)  # as a sample weight would
        arguments = (layout, similarity, features, ranks)
        ours = values_and_gradients(short(*arguments), weights, features, layout)
        theirs = values_and_gradients(plain(*arguments), weights, features, layout)
        for actual, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [6, 40, 1000])
def test_no_scale_of_the_cosine_overflows(scale, dtype):
    layout, similarity = LAYOUTS["semicircular"](8, 16).to(dtype), Cosine(scale=float(scale))
    for place in ("anywhere", "proxy", "ends", "zero"):
        features, ranks = features_at(place, layout)
        weights = torch.ones(len(ranks), dtype=dtype)
        ours, theirs = (
            values_and_gradients(
                way(layout, similarity, features, ranks), weights, features, layout
            )
            for way in (short, plain)
        )
        close = 20 * scale**2 * torch.finfo(dtype).eps  # logits are known to the scale's last digit
        for actual, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(actual, expected, rtol=close, atol=close)


@EVERY
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("num_classes", [8, 101])
def test_single_precision_keeps_four_digits_of_the_plain_one_in_double(
    composition, place, num_classes
):
    """Except for what rounding the features alone does: a gradient may be nothing but that."""
    layout, similarity = make(composition, num_classes, 512, torch.float32)
    features, ranks = features_at(place, layout)
    weights = torch.rand(len(ranks))
    losses = short(layout, similarity, features, ranks)
    ours = values_and_gradients(losses, weights, features, layout)
    layout.double()
    features = features.detach().double().requires_grad_()
    losses = plain(layout, similarity, features, ranks)
    theirs = values_and_gradients(losses, weights.double(), features, layout)
    torch.testing.assert_close(ours[0].double(), theirs[0], rtol=1e-4, atol=4e-6)
    lengths = torch.linalg.vector_norm(features, dim=1).clamp(min=1)
    rounding = torch.finfo(torch.float32).eps * lengths
    turned = (weights * rounding * lengths).sum() / torch.linalg.vector_norm(layout.vectors, dim=1)
    for actual, expected, noise in zip(ours[1:], theirs[1:], (rounding, turned), strict=True):
        miss = torch.linalg.vector_norm(actual.double() - expected, dim=1)
        size = torch.linalg.vector_norm(expected, dim=1)
        assert (miss <= 1e-4 * size + 4 * noise + 1e-5).all()


@settings(max_examples=40)
@given(
    composition=st.sampled_from(list(COMPOSITIONS)),
    num_classes=st.integers(2, 40),
    dim=st.integers(2, 9),
    exponent=st.floats(-4, 4),
    seed=st.integers(0, 2**20),
)
def test_they_agree_at_every_scale_of_the_vectors_and_features(
    composition, num_classes, dim, exponent, seed
):
    torch.manual_seed(seed)
    layout, similarity = make(composition, num_classes, dim)
    features, ranks = features_at("anywhere", layout, n=6)
    with torch.no_grad():
        features.mul_(10**exponent)
        layout.vectors.mul_(10 ** (exponent / 2))
    losses = [way(layout, similarity, features, ranks) for way in (short, plain)]
    torch.testing.assert_close(*losses, rtol=1e-9, atol=1e-10)
    ours, theirs = (torch.autograd.grad(x.sum(), (features, layout.vectors)) for x in losses)
    for actual, expected in zip(ours, theirs, strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-8 * scale + 1e-14)


class _Losses(torch.nn.Module):
    def __init__(self, layout, similarity):
        super().__init__()
        self.layout, self.similarity = layout, similarity

    def forward(self, features, ranks):
        return short(self.layout, self.similarity, features, ranks)


@EVERY
def test_first_and_second_derivatives_by_differences(composition):
    """With vectors that only the call knows, not the module: they must be the ones used.

    Where Q depends on the vectors, differences would see it move, and the loss must not.
    """
    module = _Losses(*make(composition, 5, 4))
    features, ranks = features_at("anywhere", module.layout, n=3)
    vectors = (module.layout.vectors.detach() + 0.1).requires_grad_(module.layout.constant)

    def losses(features, vectors):
        return functional_call(module, {"layout.vectors": vectors}, (features, ranks))

    assert torch.autograd.gradcheck(losses, (features, vectors))
    assert torch.autograd.gradgradcheck(losses, (features, vectors))


@EVERY
def test_second_derivatives_are_those_of_the_plain_computation(composition):
    layout, similarity = make(composition, 5, 4)
    features, ranks = features_at("anywhere", layout)
    wanted = (features, layout.vectors)
    found = []
    for way in (short, plain):
        losses = way(layout, similarity, features, ranks)
        first = torch.autograd.grad(losses.sum(), wanted, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        found.append(torch.autograd.grad(penalty, wanted))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@EVERY
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("frozen", [0, 1], ids=["backbone", "vectors"])
def test_what_is_frozen_changes_nothing_for_the_other(composition, create_graph, frozen):
    layout, similarity = make(composition, 5, 8)
    features, ranks = features_at("anywhere", layout)
    both = (features, layout.vectors)
    total = short(layout, similarity, features, ranks).sum()
    expected = torch.autograd.grad(total, both[1 - frozen])[0]
    both[frozen].requires_grad_(False)
    total = short(layout, similarity, features, ranks).sum()
    actual = torch.autograd.grad(total, both[1 - frozen], create_graph=create_graph)[0]
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@EVERY
def test_a_backward_pass_under_autocast_is_as_exact_as_without(composition):
    layout, similarity = make(composition, 8, 16, torch.float32)
    features, ranks = features_at("anywhere", layout)
    exact = torch.autograd.grad(short(layout, similarity, features, ranks).sum(), layout.vectors)
    losses = short(layout, similarity, features, ranks)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.autograd.grad(losses.sum(), layout.vectors)[0], exact[0])


@EVERY
def test_nothing_of_the_size_of_all_classes_waits_for_the_backward_pass(composition):
    layout, similarity = make(composition, 500, 16)
    features, ranks = features_at("anywhere", layout)
    kept = []
    count, leave = lambda t: kept.append(t.numel()) or t, lambda t: t
    with torch.autograd.graph.saved_tensors_hooks(count, leave):
        short(layout, similarity, features, ranks)
    assert kept
    assert max(kept) <= features.numel()


@pytest.mark.parametrize("block", [1, 17, 40])  # one sample at a time, and unequal parts
def test_a_line_taken_in_blocks_is_the_same_line(block, monkeypatch):
    layout, similarity = make("line", 8, 16)
    features, ranks = features_at("anywhere", layout)
    arguments = (layout, similarity, features, ranks)
    whole = values_and_gradients(short(*arguments), 1.0, features, layout)
    monkeypatch.setattr(linear, "BLOCK", block)
    blocks = values_and_gradients(short(*arguments), 1.0, features, layout)
    for expected, actual in zip(whole, blocks, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13)


def test_vectors_that_span_no_plane_still_have_finite_gradients():
    layout, similarity = make("arc", 5, 8)
    with torch.no_grad():
        layout.vectors[1] = 2 * layout.vectors[0]
    features, ranks = features_at("anywhere", layout)
    for gradient in values_and_gradients(
        short(layout, similarity, features, ranks), 1.0, features, layout
    ):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("num_classes", [2, 3, 8, 101])
@pytest.mark.parametrize("scale", [1.5, 6.0, 900.0])
def test_the_constants_of_the_arc_are_sums_over_q(num_classes, scale):
    similarity, layout = Cosine(scale=scale), Semicircular(num_classes, 4).double()
    log_q = divergence.log_q(layout, similarity, torch.arange(num_classes))
    c, of_classes = arc._arc_constants(num_classes, scale)
    mean, negative_entropy = of_classes[:2], of_classes[2]
    torch.testing.assert_close(mean, c @ log_q.exp().T, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(negative_entropy, (log_q.exp() * log_q).sum(dim=1))


@pytest.mark.parametrize(
    ("layout", "similarity"),
    [
        (Linear(4, 4), NegativeEuclidean()),
        (Semicircular(4, 4), StudentT()),
        (Linear(4, 4, stiffness=0.1), StudentT()),
        (Semicircular(4, 4, stiffness=0.3), Cosine()),
        (Free(4, 4), StudentT()),
    ],
)
def test_what_is_not_worked_out_is_left_to_the_plain_computation(layout, similarity):
    assert layout.basic_losses(similarity, torch.randn(2, 4), torch.tensor([0, 3])) is None


@pytest.mark.parametrize("length", [1e-20, 1e-18, 1e10])
def test_gradients_on_the_arc_stay_finite_at_every_length_of_a_feature(length):
    layout = Semicircular(8, 64)
    direction = torch.nn.functional.normalize(torch.randn(16, 64))
    ranks = torch.arange(16) % 8
    found = []
    for scale in (1.0, length):
        features = (direction * scale).requires_grad_()
        losses = layout.basic_losses(Cosine(), features, ranks)
        to_features, to_vectors = torch.autograd.grad(losses.sum(), (features, layout.vectors))
        found.append((losses, to_features * scale, to_vectors))
    for near, far in zip(*found, strict=True):
        torch.testing.assert_close(far, near, rtol=1e-3, atol=1e-5)
