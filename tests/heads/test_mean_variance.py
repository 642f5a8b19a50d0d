import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from layline.heads import HEADS, create


def batch(num_classes=6, dim=5, n=20):
    return torch.randn(n, dim, dtype=torch.float64), torch.randint(num_classes, (n,))


@pytest.mark.parametrize(
    ("options", "weights"),
    [({}, (0.2, 0.05)), ({"mean_weight": 1.0, "variance_weight": 0.7}, (1.0, 0.7))],
)
@pytest.mark.parametrize("num_classes", [2, 6, 101])
def test_loss_is_the_formula(options, weights, num_classes):
    head = create("mean-variance", num_classes, 5, **options).double()
    features, ranks = batch(num_classes)
    probs = softmax(head._scores(features).detach().numpy(), axis=1)
    plain = []
    for row, y in zip(probs, ranks.tolist(), strict=True):
        mean = sum(k * p for k, p in enumerate(row))
        variance = sum((k - mean) ** 2 * p for k, p in enumerate(row))
        plain.append(-math.log(row[y]) + weights[0] * 0.5 * (mean - y) ** 2 + weights[1] * variance)
    assert head.loss(features, ranks).item() == pytest.approx(np.mean(plain), abs=1e-10)


def test_without_its_penalties_it_is_classification():
    head = create("mean-variance", 6, 5, mean_weight=0.0, variance_weight=0.0).double()
    plain = create("classification", 6, 5).double()
    plain.load_state_dict(head.state_dict())
    features, ranks = batch()
    torch.testing.assert_close(head.loss(features, ranks), plain.loss(features, ranks))


def test_its_own_rule_is_the_mean():
    assert HEADS["mean-variance"].decode == "mean"
    head = create("mean-variance", 6, 5).double()
    features, _ = batch()
    expected = head.predict_proba(features).detach().numpy() @ np.arange(6)
    assert head.predict(features, decode="mean").tolist() == np.rint(expected).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean_weight": -0.1}, "mean_weight must be a finite number, at least 0, got -0.1"),
        ({"variance_weight": math.nan}, "variance_weight must be .* got nan"),
        ({"variance_weight": math.inf}, "variance_weight must be .* got inf"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(options, message):
    with pytest.raises(ValueError, match=message):
        create("mean-variance", 5, 4, **options)


def test_printing_shows_the_options():
    text = repr(create("mean-variance", 5, 4, mean_weight=1.0))
    assert "mean_weight=1.0, variance_weight=0.05" in text
