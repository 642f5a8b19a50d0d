"""Names from outside."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.reports.html import plot_text, script_json, shortened, valid_unicode


@given(st.text(max_size=60), st.integers(1, 40))
def test_a_shortened_text_fits_and_a_short_one_stays(text, most):
    found = shortened(text, most)
    assert len(found) <= most
    if len(text) <= most:
        assert found == text
    elif most > 3:
        assert found[0] == text[0]
        assert found[-1] == text[-1]


def test_what_is_no_unicode_becomes_a_question_mark():
    assert valid_unicode("a\udcffb 😀") == "a?b 😀"


@pytest.mark.parametrize("name", ["<b>x</b>", "a & b", "</script>", '<a href="x">'])
def test_plotly_sees_no_tags(name):
    assert "<" not in plot_text(name, 100)
    assert ">" not in plot_text(name, 100)


def test_json_stands_inside_a_script_as_it_is():
    values = {"a": ["</script><!--", "&amp;", "\u2028", "\udcff"], "b": 1.5, "c": None}
    text = script_json(values)
    assert json.loads(text) == values
    assert not set("<>&\u2028") & set(text)
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(float("nan"))
