from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.data.class_order import is_number, known_order, scales


def test_numbers_are_as_programs_write_them():
    assert all(map(is_number, ["1", "-1.5", "+.5", "2.", "1e-3", "007"]))
    assert not any(map(is_number, ["", "1,5", "nan", "inf", "1_000", "0x1", "one", "1 2", "²"]))


def test_no_two_scales_contradict_each_other():
    for one, other in combinations(scales(), 2):
        for a, b in combinations(one.keys() & other.keys(), 2):
            assert (one[a] - one[b]) * (other[a] - other[b]) >= 0, (a, b)


@pytest.mark.parametrize("scale", scales(), ids=lambda scale: next(iter(scale)))
def test_a_scale_gives_its_order_however_it_is_written(scale):
    last = {place: word.upper().replace(" ", "_") for word, place in scale.items()}
    first = {place: word for word, place in reversed(scale.items())}
    for names in (list(last.values()), list(first.values())[::-1]):
        assert known_order(names)[0] == names
        assert "known scale" in known_order(names)[1]


@pytest.mark.parametrize(
    "ordered",
    [
        ["2", "10"],
        ["-1", "0", "1e1", "11"],
        ["1.25", "1.5", "2"],
        ["grade 1", "Grade 2", "grade 10"],
        ["1930s", "1940s"],
        ["Q1", "Q2", "Q3"],
        ["part 9 of 12", "part 10 of 12"],
        ["-10 °C", "-5 °C", "3 °C"],
        ["00-02", "03-06", "07-13", "54-up"],
        ["0-2 years", "3 years", "4 to 9 years", "10+ years"],
        ["age 0–2", "age 3–6"],
        ["<20", "20-40", ">40"],
        ["under 20", "20 to 40", "over 40"],
        ["5 or less", "6-10", "more than 10"],
        ["≤5", ">5"],
        ["(-inf, 0.5]", "(0.5, 1.0]", "(1.0, inf]"],
        ["0-9", "10-19", "20 and above"],
        ["1-poor", "2-fair", "10-good"],
        ["stage I", "stage II", "stage IV", "stage IX"],
        ["0", "I", "II", "III"],
        ["none", "Mild", "MODERATE", "severe"],
        ["No DR", "Mild", "Moderate", "Severe", "Proliferative DR"],
        ["NonDemented", "VeryMildDemented", "MildDemented", "ModerateDemented"],
        ["low risk", "medium risk", "high risk"],
        ["damage: none", "damage: minor", "damage: major"],
        ["children", "teens", "adults"],
        ["S", "M", "L"],
    ],
)
def test_what_names_say_of_their_order_is_taken(ordered):
    assert known_order(reversed(ordered))[0] == ordered
    assert known_order(set(ordered[1:]))[0] == ordered[1:]


@pytest.mark.parametrize(
    "names",
    [
        ["red", "green"],
        ["A", "B", "C"],
        ["medium", "moderate", "high"],
        ["low", "mid", "high", "other"],
        ["not good", "not bad"],
        ["0-10", "5-15"],
        ["10-5", "4-1"],
        ["0-9", "10-19", "unknown"],
        ["route 66", "apollo 11"],
        ["1", "1.0", "2"],
        ["I", "V", "X"],
        ["age 3", "grade 4"],
        ["", "low"],
    ],
)
def test_an_order_that_is_in_doubt_is_not_known(names):
    assert known_order(names) is None


@given(st.lists(st.integers(0, 10**6), unique=True, min_size=2))
def test_numbers_inside_names_are_ordered_by_value(numbers):
    names = [f"part {n} of x" for n in numbers]
    assert known_order(names)[0] == [f"part {n} of x" for n in sorted(numbers)]


@given(st.lists(st.integers(0, 999), unique=True, min_size=3).map(sorted))
def test_ranges_between_bounds_are_ordered_by_them(bounds):
    names = [f"{low}-{high}" for low, high in pairwise(bounds)]
    names = [f"<{bounds[0]}", *names, f"{bounds[-1]}+"]
    assert known_order(names)[0] == names


@given(st.sets(st.text(), min_size=1, max_size=5))
def test_any_names_can_be_asked_and_none_is_lost(names):
    known = known_order(names)
    assert known is None or sorted(known[0]) == sorted(names)
