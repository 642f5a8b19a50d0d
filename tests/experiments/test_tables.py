"""What stands in a table, which numbers are marked, and that its shape is whole."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.experiments.tables import Column, Entry, Table, fixed, ranked, signed

LOW = Column("MAE", digits=2, lower_is_better=True)
HIGH = Column("Accuracy", digits=2, lower_is_better=False)
NEITHER = Column("Epoch", digits=2)


def column_of(column, *entries):
    rows = tuple(f"m{i}" for i in range(len(entries)))
    return Table("caption", rows, (column,), tuple((entry,) for entry in entries))


def marks(table):
    return ["best" * e.is_best + "second" * e.is_second for (e,) in ranked(table).entries]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8), st.sampled_from([LOW, HIGH]))
def test_best_and_second_are_the_first_two_values_as_written(steps, column):
    values = [step / 500 for step in steps]  # two or three of them are written alike
    found = ranked(column_of(column, *map(Entry, values)))
    written = [float(f"{value:.2f}") for value in values]
    order = sorted(set(written), reverse=column is HIGH)
    for (entry,), value in zip(found.entries, written, strict=True):
        assert entry.is_best == (value == order[0])
        assert entry.is_second == (len(order) > 1 and value == order[1])


def test_what_has_no_number_or_lacks_failed_runs_has_no_mark():
    entries = Entry(0.1, n=4, failed=1), Entry(note="impossible"), Entry(0.3), Entry(0.2)
    assert marks(column_of(LOW, *entries)) == ["", "", "second", "best"]


def test_a_column_without_a_better_end_or_rivals_has_no_mark():
    assert marks(column_of(NEITHER, Entry(0.1, is_best=True), Entry(0.2))) == ["", ""]
    assert marks(column_of(LOW, Entry(0.1), Entry())) == ["", ""]


def test_columns_are_marked_each_by_itself():
    table = Table(
        "c", ("a", "b"), (LOW, HIGH), ((Entry(1.0), Entry(1.0)), (Entry(2.0), Entry(2.0)))
    )
    assert [[e.is_best for e in line] for line in ranked(table).entries] == [
        [True, False],
        [False, True],
    ]
    empty = Table("c", ("a",), (), ((),))
    assert ranked(empty) == empty


def test_the_difference_needs_both_numbers():
    assert Entry(57.31, reference=57.28).difference == pytest.approx(0.03)
    assert Entry(57.31).difference is None
    assert Entry(reference=57.28).difference is None


@pytest.mark.parametrize(
    ("entries", "shape"), [(((Entry(),),), r"\[1\]"), (((Entry(),), (Entry(),) * 2), r"\[1, 2\]")]
)
def test_a_table_with_holes_is_refused(entries, shape):
    message = f"entries must have 2 rows of 1 columns, got rows of {shape}"
    with pytest.raises(ValueError, match=message):
        Table("c", ("a", "b"), (LOW,), entries)


@pytest.mark.parametrize("name", ["mean", "sd", "reference", "reference_sd"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number or None, got {value}"):
        Entry(**{name: value})


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_numbers_are_written_rounded_and_zero_has_no_sign(value, digits):
    for write in (fixed, signed):
        text = write(value, digits)
        assert float(text) == pytest.approx(value, abs=0.5000001 * 10**-digits)
        assert len(text.partition(".")[2]) == digits
    assert fixed(value, digits).startswith("-") == (float(fixed(value, digits)) < 0)
    shown = float(fixed(value, digits))
    assert signed(value, digits)[0] == ("-" if shown < 0 else "+") or shown == 0
    assert signed(0.0, 2) == signed(-0.001, 2) == "0.00"


def test_tiny_probabilities_are_bounds():
    p = Column("p", form="p")
    assert [p.number(v) for v in (0.0, 0.0004, 0.001, 0.04, 1.0)] == [
        "<0.001",
        "<0.001",
        "0.001",
        "0.040",
        "1.000",
    ]
    assert Column("d", digits=1, form="signed").number(2.0) == "+2.0"
