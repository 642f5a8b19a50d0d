import pytest

from layline.amounts import amount


@pytest.mark.parametrize(("count", "words"), [(0, "0 runs"), (1, "1 run"), (21, "21 runs")])
def test_only_one_is_no_plural(count, words):
    assert amount(count, "run") == words
