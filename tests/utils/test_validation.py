import math
import sys

import numpy as np
import pytest

from layline.utils import validation
from layline.utils.validation import require


@pytest.mark.parametrize(
    ("check", "right", "wrong", "rule"),
    [
        ("integer", np.int64(2), (1, 2.0, "3", None, True), "an integer, at least 2"),
        ("above", 2.5, (2, math.nan, math.inf, "3", None, True), "a finite number above 2"),
        ("at_least", 2, (1, math.nan), "a finite number, at least 2"),
    ],
)
def test_a_wrong_number_is_named_with_its_value(check, right, wrong, rule):
    function = getattr(validation, f"check_{check}")
    function("n", right, 2)
    for value in wrong:
        with pytest.raises(ValueError, match=f"n must be {rule}, got {value!r}: because"):
            function("n", value, 2, "because")


def test_an_unknown_name_is_answered_with_the_nearest_known_ones():
    known = {"linear": 1, "semicircular": 2}
    assert validation.find_known("layout", "linear", known) == 1
    with pytest.raises(ValueError, match=r"layout must be .* got 'linaer': did you mean linear"):
        validation.find_known("layout", "linaer", known)
    with pytest.raises(ValueError, match="got 'xyz': known are linear, semicircular"):
        validation.find_known("layout", "xyz", known)


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"a network needs timm: pip install layline\[images"):
        require("timm", extra="images", needed_by="a network")
