"""Tables: their marks and shape, and that every format keeps its columns whatever the labels."""

import math
import re
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.bench.tables import (
    Column,
    Entry,
    Table,
    entry_remark,
    entry_text,
    mark_best,
    to_csv,
    to_latex,
    to_markdown,
    write_fixed,
    write_signed,
)

LOW = Column("MAE", digits=2, lower_is_better=True)
HIGH = Column("Accuracy", digits=2, lower_is_better=False)
NEITHER = Column("Epoch", digits=2)


def column_of(column, *entries):
    rows = tuple(f"m{i}" for i in range(len(entries)))
    return Table("caption", rows, (column,), tuple((entry,) for entry in entries))


def marks(table):
    return ["best" * e.is_best + "second" * e.is_second for (e,) in mark_best(table).entries]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8), st.sampled_from([LOW, HIGH]))
def test_best_and_second_are_the_first_two_values_as_written(steps, column):
    values = [step / 500 for step in steps]  # two or three of them are written alike
    found = mark_best(column_of(column, *map(Entry, values)))
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
    assert [[e.is_best for e in line] for line in mark_best(table).entries] == [
        [True, False],
        [False, True],
    ]
    empty = Table("c", ("a",), (), ((),))
    assert mark_best(empty) == empty


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
    for write in (write_fixed, write_signed):
        text = write(value, digits)
        assert float(text) == pytest.approx(value, abs=0.5000001 * 10**-digits)
        assert len(text.partition(".")[2]) == digits
    assert write_fixed(value, digits).startswith("-") == (float(write_fixed(value, digits)) < 0)
    shown = float(write_fixed(value, digits))
    assert write_signed(value, digits)[0] == ("-" if shown < 0 else "+") or shown == 0
    assert write_signed(0.0, 2) == write_signed(-0.001, 2) == "0.00"


def test_tiny_probabilities_are_bounds():
    p = Column("p", form="p")
    assert [p.write(v) for v in (0.0, 0.0004, 0.001, 0.04, 1.0)] == [
        "<0.001",
        "<0.001",
        "0.001",
        "0.040",
        "1.000",
    ]
    assert Column("d", digits=1, form="signed").write(2.0) == "+2.0"


MAE = Column("MAE", group="Adience", digits=2, lower_is_better=True)
TWO = Column("Accuracy (%)", group="Adience", digits=2, lower_is_better=False)
P = Column("p", form="p")

labels = st.text(st.sampled_from("ab_%&#${}~^\\|*<>[]`\n é±≥−-1"), min_size=1, max_size=8)
numbers = st.none() | st.floats(-1e3, 1e3)
entries = st.builds(
    Entry,
    mean=numbers,
    sd=st.none() | st.floats(0, 10),
    n=st.integers(0, 5),
    failed=st.integers(0, 2),
    error=st.sampled_from(["", "Value_Error"]),
    note=st.just("") | labels,
    reference=numbers,
)


@st.composite
def tables(draw):
    rows = tuple(draw(st.lists(labels, min_size=1, max_size=4)))
    column = st.builds(Column, title=labels, group=st.just("") | labels, lower_is_better=st.none())
    columns = tuple(draw(st.lists(column, min_size=1, max_size=4)))
    width = len(columns)
    line = st.lists(entries, min_size=width, max_size=width).map(tuple)
    fields = tuple(draw(st.lists(line, min_size=len(rows), max_size=len(rows))))
    return Table(draw(labels), rows, columns, fields, notes=tuple(draw(st.lists(labels))))


def sample():
    return mark_best(
        Table(
            caption="Results of H_L",
            rows=("hard_linear", "soft & poisson", "coral"),
            columns=(MAE, TWO, P),
            entries=(
                (Entry(0.4124, 0.0101, 4, 1, "E"), Entry(57.31, 2.1, 5, reference=57.28), Entry(0)),
                (Entry(0.5, 0.02, 5), Entry(61.5, 1.0, 5), Entry(0.04)),
                (Entry(0.6, 0.1, 5), Entry(failed=5, error="FloatingPointError"), Entry()),
            ),
            notes=("Half of 50 %.",),
        )
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (Entry(0.412, 0.01, 5), "0.41 ± 0.01"),
        (Entry(0.412, n=1), "0.41"),
        (Entry(0.412, 0.01, 4, 1, "E"), "0.41 ± 0.01 (4 of 5)"),
        (Entry(failed=5, error="FloatingPointError"), "failed: FloatingPointError"),
        (Entry(failed=5), "failed: unknown error"),
        (Entry(note="needs d ≥ 2"), "needs d ≥ 2"),
        (Entry(), "–"),
        (Entry(57.31, 2.1, reference=57.28), "57.31 ± 2.10 (paper 57.28, +0.03)"),
        (Entry(57.31, 2.1, reference=57.31), "57.31 ± 2.10 (paper 57.31, 0.00)"),
        (Entry(0.6, reference=0.65, reference_sd=0.07), "0.60 (paper 0.65 ± 0.07, -0.05)"),
        (Entry(0.6, n=1, failed=1, reference=0.7), "0.60 (1 of 2) (paper 0.70, -0.10)"),
        (Entry(failed=1, error="E", reference=0.65), "failed: E (paper 0.65)"),
    ],
)
def test_an_entry_says_its_number_or_why_there_is_none(entry, text):
    assert f"{entry_text(entry, MAE)} {entry_remark(entry, MAE)}".rstrip() == text


def test_markdown_as_a_reader_sees_it():
    lines = to_markdown(sample()).splitlines()
    assert lines[0] == "**Results of H_L**"
    fields = [[f.strip() for f in line.strip("|").split("|")] for line in lines[2:7]]
    assert fields[0] == ["Method", "MAE", "Accuracy (%)", "p"]
    assert fields[2][1::2] == ["0.41 ± 0.01 (4 of 5)", "<0.001"]
    assert fields[2][2] == "<u>57.31 ± 2.10</u> (paper 57.28, +0.03)"
    assert fields[3][1:3] == ["**0.50 ± 0.02**", "**61.50 ± 1.00**"]
    assert fields[4][1:] == ["<u>0.60 ± 0.10</u>", "failed: FloatingPointError", "–"]
    assert lines[-1] == "Half of 50 %."


def test_markdown_names_the_groups_where_there_are_several():
    other = Column("MAE", group="Faces")
    table = Table("c", ("a",), (MAE, other), ((Entry(1.0), Entry(2.0)),))
    assert "| Adience · MAE | Faces · MAE |" in to_markdown(table)


@given(tables())
def test_every_line_of_markdown_has_the_same_columns(table):
    blocks = to_markdown(table).split("\n\n")
    lines = blocks[1].splitlines()
    assert len(lines) == len(table.rows) + 2
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines]
    assert set(bars) == {len(table.columns) + 2}
    assert len({len(line) for line in lines}) == 1
    assert len(blocks) == 2 + len(table.notes) or not all(n.split() for n in table.notes)


@given(tables())
def test_latex_is_balanced_and_has_the_same_columns_in_every_row(table):
    text = to_latex(table)
    depth = 0
    for brace in re.findall(r"(?<!\\)(?:\\\\)*([{}])", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    assert not re.search(r"(?<!\\)[#%~]", text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    grouped = any(column.group for column in table.columns)
    assert len(rows) == len(table.rows) + 1 + grouped
    for row in rows[grouped:]:
        assert len(re.findall(r"(?<!\\)&", row)) == len(table.columns)
        assert not row.startswith("[")  # it would be the option of the line break before
    if grouped:
        spans = [int(width) for width in re.findall(r"\\multicolumn\{(\d+)\}", rows[0])]
        assert sum(spans) == len(table.columns)
        assert len(re.findall(r"(?<!\\)&", rows[0])) == len(spans)
    assert [re.findall(rf"\\{word}\{{(\w+)\}}", text) for word in ("begin", "end")] == [
        ["table", "tabular"],
        ["tabular", "table"],
    ]


def test_latex_as_a_paper_prints_it():
    text = to_latex(sample())
    assert r"\begin{tabular}{lccc}" in text
    assert r" & \multicolumn{2}{c}{Adience} & \multicolumn{1}{c}{} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"hard\_linear & 0.41 $\pm$ 0.01 {\scriptsize (4 of 5)} & " in text
    assert r"\underline{57.31 $\pm$ 2.10} {\scriptsize (paper 57.28, +0.03)} & $<$0.001 \\" in text
    assert r"soft \& poisson & \textbf{0.50 $\pm$ 0.02} & \textbf{61.50 $\pm$ 1.00}" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1


def test_latex_rules_lie_under_their_groups():
    groups = ["", "A", "A", "B", "", "A"]
    columns = tuple(Column(f"c{i}", group=group) for i, group in enumerate(groups))
    text = to_latex(Table("c", ("a",), columns, ((Entry(),) * 6,)))
    assert re.findall(r"\\cmidrule\(lr\)\{(.+?)\}", text) == ["3-4", "5-5", "7-7"]


def test_latex_writes_a_minus_and_keeps_a_hyphen():
    column = Column("Mean difference", digits=1, form="signed")
    text = to_latex(Table("a-1", ("soft-2 b",), (column,), ((Entry(-1.5),),)))
    assert r"soft-2 b & $-$1.5 \\" in text
    assert r"\caption{a-1}" in text
    assert "multicolumn" not in text


@given(tables())
def test_csv_read_by_pandas_has_every_number_with_all_digits(table):
    table = mark_best(table)
    found = pd.read_csv(StringIO(to_csv(table)))
    flat = [entry for line in table.entries for entry in line]
    assert len(found) == len(table.rows) * len(table.columns)
    for name in ("mean", "sd", "reference", "difference", "n", "failed"):
        expected = [getattr(entry, name) for entry in flat]
        expected = [np.nan if value is None else value for value in expected]
        np.testing.assert_allclose(found[name].to_numpy(dtype=float), expected, rtol=1e-14)
    raw = pd.read_csv(StringIO(to_csv(table)), keep_default_na=False, dtype=str)
    assert [float(text) for text in raw["mean"] if text] == [
        entry.mean for entry in flat if entry.mean is not None
    ]
    assert raw["note"].tolist() == [entry.note for entry in flat]
    assert raw["column"].tolist() == [c.title for c in table.columns] * len(table.rows)
    assert raw["row"].tolist() == [row for row in table.rows for _ in table.columns]


def test_csv_pivots_into_the_table():
    found = pd.read_csv(StringIO(to_csv(sample())))
    wide = found.pivot_table(index="row", columns="column", values="mean", sort=False)
    assert wide.loc["soft & poisson", "MAE"] == 0.5
    assert found.set_index(["row", "column"])["best"].loc[("soft & poisson", "MAE")]
    numpy = Table("c", ("a",), (P,), ((Entry(np.float64(0.25)),),))
    assert "a,,p,0.25,," in to_csv(numpy)
