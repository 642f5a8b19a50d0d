import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.data.tables.cells import numbers_if_all, numbers_of, texts_of


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_keep_all_their_digits(values):
    assert numbers_of("a", texts_of(values)).tolist() == values


def test_a_single_precision_number_is_what_it_is():
    assert numbers_of("a", texts_of(np.array([0.1], np.float32))) == [np.float64(np.float32(0.1))]


def test_a_frame_and_a_file_give_the_same_texts():
    frame = pd.DataFrame({"a": [3.0, 1.5, None], "b": [True, False, True], "c": ["x ", "y", None]})
    assert texts_of(frame["a"]) == ["3", "1.5", ""]
    assert texts_of(frame["b"]) == ["True", "False", "True"]
    assert texts_of(frame["c"]) == ["x", "y", ""]
    assert texts_of(pd.array([1, None], dtype="Int64")) == ["1", ""]
    assert texts_of([None, pd.NaT, float("nan")]) == ["", "", ""]


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "NaN", "null", "None", "?"])
def test_what_is_missing_is_nan(missing):
    np.testing.assert_array_equal(numbers_if_all("a", ["1", missing]), [1, np.nan])


def test_booleans_are_numbers_and_other_words_are_not():
    np.testing.assert_array_equal(numbers_if_all("a", ["True", "false", "TRUE"]), [1, 0, 1])
    assert numbers_if_all("a", ["1", "yes"]) is None


def test_decimal_commas_are_not_guessed():
    with pytest.raises(ValueError, match="column 'a' must have decimal points, got '3,5': replace"):
        numbers_if_all("a", ["1", "3,5", "-0,25", ""])
    assert numbers_if_all("a", ["1", "3,5", "much"]) is None


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinity_is_refused(cell):
    with pytest.raises(ValueError, match=f"column 'a' must hold finite numbers, got '{cell}': "):
        numbers_if_all("a", ["1", cell])


def test_a_word_among_numbers_is_named_with_its_row():
    with pytest.raises(ValueError, match="column 'a' must hold finite numbers, got 'x' in row 3"):
        numbers_of("a", ["1", "x"], ["row 2", "row 3"])
