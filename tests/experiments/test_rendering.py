"""Tables as text: every format keeps its columns whatever the labels, and CSV keeps the numbers."""

import re
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.experiments.rendering import FORMATS, content, remark, to_csv, to_latex, to_markdown
from layline.experiments.tables import Column, Entry, Table, ranked

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
    return ranked(
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
    assert f"{content(entry, MAE)} {remark(entry, MAE, 'paper')}".rstrip() == text


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
    table = ranked(table)
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


def test_the_formats_are_known_by_their_endings():
    assert {"md": to_markdown, "tex": to_latex, "csv": to_csv} == FORMATS
