import math

import numpy as np
import pytest
import torch
from dlordinal.losses import SORDLoss
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax, softmax

from layline.heads import create
from layline.heads.label_distribution import soft_labels


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


@pytest.mark.parametrize(("distance", "power"), [("squared", 2), ("absolute", 1)])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_cross_entropy_with_the_softened_label(distance, power, alpha, num_classes):
    head = create("sord", num_classes, 5, distance=distance, alpha=alpha).double()
    features, ranks = batch(num_classes)
    log_p = log_softmax(head._scores(features).detach().numpy(), axis=1)
    k = np.arange(num_classes)
    plain = [
        -(softmax(-alpha * np.abs(k - y) ** power) * row).sum()
        for row, y in zip(log_p, ranks.numpy(), strict=True)
    ]
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), abs=1e-10)


def test_the_defaults_are_squared_differences_of_ranks():
    plain, spelled_out = create("sord", 6, 5), create("sord", 6, 5, distance="squared", alpha=1.0)
    spelled_out.load_state_dict(plain.state_dict())
    features, ranks = torch.randn(9, 5), torch.arange(9) % 6
    assert plain.loss(features, ranks).item() == spelled_out.loss(features, ranks).item()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_absolute_distances_agree_with_dlordinal(alpha, gradients):
    """Its SORD knows absolute differences only; the squared ones are checked by hand above."""
    head = create("sord", 7, 5, distance="absolute", alpha=alpha).double()
    features, ranks = batch(7)
    features.requires_grad_()
    ours = head.loss(features, ranks)
    theirs = SORDLoss(alpha, 7, train_targets=ranks)(head._scores(features), ranks)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
    for a, b in zip(gradients(ours, features), gradients(theirs, features), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@given(st.integers(2, 60), st.floats(0.01, 20.0), st.sampled_from([1, 2]), st.data())
def test_the_softened_label_is_a_distribution_that_falls_on_both_sides(k, alpha, power, data):
    rank = data.draw(st.integers(0, k - 1))
    target = soft_labels(torch.tensor([rank]), k, alpha, power)[0]
    assert target.sum().item() == pytest.approx(1, abs=1e-12)
    assert target.argmax() == rank
    assert (target[: rank + 1].diff() >= 0).all()
    assert (target[rank:].diff() <= 0).all()


def test_the_squared_label_is_a_gaussian_of_variance_one_over_two_alpha():
    """So SORD and the first term of DLDL-v2 are one family."""
    density = stats.norm.pdf(np.arange(9), loc=np.arange(9)[:, None], scale=2)
    expected = density / density.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(soft_labels(torch.arange(9), 9, 1 / 8, 2), expected, rtol=1e-12)


def test_a_thousand_classes_and_extreme_logits_stay_finite():
    head = create("sord", 1000, 1000)
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(1000))
    logits = (1e4 * torch.randn(8, 1000)).requires_grad_()
    loss = head.loss(logits, torch.arange(8) * 142)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": "square"}, "distance must be .* got 'square': did you mean squared"),
        ({"alpha": 0.0}, "alpha must be a finite number above 0, got 0.0"),
        ({"alpha": math.inf}, "alpha must be .* got inf"),
        ({"alpha": math.nan}, "alpha must be .* got nan"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(options, message):
    with pytest.raises(ValueError, match=message):
        create("sord", 5, 4, **options)


def test_printing_shows_the_options():
    assert "distance='absolute', alpha=2.0" in repr(
        create("sord", 5, 4, distance="absolute", alpha=2.0)
    )
