"""Every substitute equals the function that it stands for, also where digits are lost easily."""

import numpy as np
import pytest
import scipy.special
import torch
from torch.nn import functional as F

from layline import exact_operations as exact

SMALL = np.concatenate([-np.logspace(-300, 0, 301)[:-1], np.logspace(-300, 2.5, 301)])
CASES = {
    "expm1": (exact.expm1, torch.expm1, np.concatenate([SMALL, [-700.0, -40.0]])),
    "log1p": (exact.log1p, torch.log1p, SMALL),
    "softplus": (exact.softplus, F.softplus, np.linspace(-700, 700, 2001)),
    "log_sigmoid": (exact.log_sigmoid, F.logsigmoid, np.linspace(-700, 700, 2001)),
    "erfcx": (exact.erfcx, torch.special.erfcx, np.linspace(-20, 1e4, 5001)),
    "erfc": (exact.erfc, torch.special.erfc, np.linspace(-6, 26, 2001)),
    "lgamma": (exact.lgamma, torch.lgamma, np.linspace(0.5, 5000, 5001)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_substitute_has_the_values_of_the_function(name):
    substitute, function, points = CASES[name]
    x = torch.tensor(points, dtype=torch.float64)
    torch.testing.assert_close(substitute(x), function(x), rtol=1e-13, atol=1e-14)
    near = torch.tensor(points[np.abs(points) < 80], dtype=torch.float32)
    torch.testing.assert_close(substitute(near), function(near), rtol=1e-5, atol=1e-30)


def test_the_tail_has_its_digits():
    x = np.array([1e-8, 0.3, 3.0, 30.0, 1e6])
    assert exact.erfcx(torch.tensor(x)).numpy() == pytest.approx(scipy.special.erfcx(x), rel=1e-13)


def test_adding_in_log_space_does_not_overflow():
    x = torch.tensor([[1000.0, 999.0], [-1000.0, -1001.0]])
    for keep in (True, False):
        torch.testing.assert_close(exact.logsumexp(x, [1], keep), torch.logsumexp(x, 1, keep))


@pytest.mark.parametrize("right", [False, True])
def test_a_search_counts_what_is_below(right):
    ordered = torch.tensor([0.0, 1.0, 1.0, 2.5])
    values = torch.tensor([[-1.0, 0.0, 0.5], [1.0, 2.5, 9.0]])
    expected = torch.searchsorted(ordered, values, right=right)
    assert torch.equal(exact.searchsorted(ordered, values, right=right), expected)
    each = torch.stack([ordered, ordered + 1])
    expected = torch.searchsorted(each, values, right=right)
    assert torch.equal(exact.searchsorted(each, values, right=right), expected)


def test_within_the_mode_they_stand_for_the_functions():
    x = torch.tensor([0.3, 1.7])
    with exact.ExactOperations():
        found = [torch.lgamma(x), x.expm1(), F.softplus(x), torch.special.erfcx(x), x.exp()]
    expected = [exact.lgamma(x), exact.expm1(x), exact.softplus(x), exact.erfcx(x), x.exp()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
