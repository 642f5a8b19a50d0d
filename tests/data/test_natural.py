import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.data.natural import is_number, natural_key, natural_order


@pytest.mark.parametrize(
    "ordered",
    [
        ["2", "10"],
        ["00-02", "03-06", "07-13", "54-up"],
        ["grade 9", "grade 10"],
        ["1930s", "1940s"],
        ["a", "B", "c"],
        ["-1", "0", "1e1", "11"],
        ["1.25", "1.5", "2"],
        ["", "a", "a1", "a1b", "a2"],
    ],
)
def test_names_are_ordered_as_people_read_them(ordered):
    assert natural_order(reversed(ordered)) == ordered


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_numbers_inside_names_are_ordered_by_value(numbers):
    assert natural_order(f"part {n} of x" for n in numbers) == [
        f"part {n} of x" for n in sorted(numbers)
    ]


@given(st.lists(st.text()))
def test_any_names_can_be_ordered(names):
    assert sorted(natural_order(names)) == sorted(names)


def test_ties_stay_as_they_were():
    assert natural_order(["b", "A", "a", "a01", "a1"]) == ["A", "a", "a01", "a1", "b"]
    assert natural_key("Grade 07") == natural_key("grade 7")


@pytest.mark.parametrize("text", ["1", "-1.5", "+.5", "2.", "1e-3", "007"])
def test_these_are_numbers(text):
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "1,5", "nan", "inf", "1_000", "0x1", "one", "1 2", "²"])
def test_these_are_not(text):
    assert not is_number(text)
