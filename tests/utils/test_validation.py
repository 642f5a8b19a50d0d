import math
import sys

import numpy as np
import pytest

from layline.utils.optional import require
from layline.utils.validation import (
    check_above,
    check_at_least,
    check_boolean,
    check_integer,
    find_known,
)


@pytest.mark.parametrize("value", [1, 2.0, "3", None, True, [2]])
def test_anything_but_an_integer_is_refused_with_its_value(value):
    check_integer("n", np.int64(2), 2)
    with pytest.raises(ValueError, match=r"n must be an integer, at least 2, got .*: because"):
        check_integer("n", value, 2, "because")


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_numbers_not_above_the_bound_are_refused(value):
    check_above("x", np.float32(0.1), 0)
    with pytest.raises(ValueError, match=r"x must be a finite number above 0, got"):
        check_above("x", value, 0)


def test_at_least_includes_its_bound():
    check_at_least("x", 0, 0)
    with pytest.raises(ValueError, match=r"x must be a finite number, at least 0, got -1$"):
        check_at_least("x", -1, 0)


def test_a_switch_is_true_or_false_and_nothing_like_it():
    check_boolean("on", True)
    for value in (1, "true", None):
        with pytest.raises(ValueError, match="on must be true or false, got"):
            check_boolean("on", value)


def test_an_unknown_name_is_answered_with_the_nearest_known_ones():
    known = {"linear": 1, "semicircular": 2}
    assert find_known("layout", "linear", known) == 1
    with pytest.raises(ValueError, match=r"layout must be .* got 'linaer': did you mean linear"):
        find_known("layout", "linaer", known)
    with pytest.raises(ValueError, match="got 'xyz': known are linear, semicircular"):
        find_known("layout", "xyz", known)


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"a network needs timm: pip install layline\[images"):
        require("timm", extra="images", needed_by="a network")
