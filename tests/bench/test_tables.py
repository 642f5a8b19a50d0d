"""Tables: marks, and formats that keep their columns whatever the labels."""

import re
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.bench.grid import Grid
from layline.bench.statistics import METRICS
from layline.bench.tables import (
    Column,
    Entry,
    Table,
    comparison,
    entry_remark,
    entry_text,
    leaderboard,
    make_tables,
    measured,
    to_csv,
    to_latex,
    to_markdown,
    write_tables,
)

LOW = Column("MAE", digits=2, lower_is_better=True)
HIGH = Column("Accuracy", digits=2, lower_is_better=False)
P = Column("p", form="p")


def column_of(column, *entries):
    found = {f"m{i}": entry for i, entry in enumerate(entries)}
    return Table.of_columns("caption", list(found), {column: found})


def marks(table):
    return ["best" * e.is_best + "second" * e.is_second for (e,) in table.entries]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8), st.sampled_from([LOW, HIGH]))
def test_best_and_second_are_the_first_two_rounded_values(steps, column):
    values = [step / 500 for step in steps]  # two or three of them are rounded alike
    found = column_of(column, *map(Entry, values))
    rounded = [float(f"{value:.2f}") for value in values]
    order = sorted(set(rounded), reverse=column is HIGH)
    for (entry,), value in zip(found.entries, rounded, strict=True):
        assert entry.is_best == (value == order[0])
        assert entry.is_second == (len(order) > 1 and value == order[1])


def test_incomplete_numbers_and_columns_without_a_direction_have_no_mark():
    entries = Entry(0.1, n=4, failed=1), Entry(note="impossible"), Entry(0.3), Entry(0.2)
    assert marks(column_of(LOW, *entries)) == ["", "", "second", "best"]
    assert marks(column_of(Column("Epoch"), Entry(0.1), Entry(0.2))) == ["", ""]
    assert marks(column_of(LOW, Entry(0.1), Entry())) == ["", ""]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (Entry(0.412, 0.01, 5), "0.41 ± 0.01"),
        (Entry(0.412, n=1), "0.41"),
        (Entry(0.412, 0.01, 4, 1, "E"), "0.41 ± 0.01 (4 of 5)"),
        (Entry(failed=5, error="FloatingPointError"), "failed: FloatingPointError"),
        (Entry(note="impossible"), "impossible"),
        (Entry(), "–"),
        (Entry(57.31, 2.1, reference=57.28), "57.31 ± 2.10 (paper 57.28, +0.03)"),
        (Entry(57.31, 2.1, reference=57.31), "57.31 ± 2.10 (paper 57.31, 0.00)"),
        (Entry(0.6, reference=0.65, reference_sd=0.07), "0.60 (paper 0.65 ± 0.07, -0.05)"),
        (Entry(failed=1, error="E", reference=0.65), "failed: E (paper 0.65)"),
    ],
)
def test_an_entry_is_a_number_or_the_reason_why_there_is_none(entry, text):
    assert f"{entry_text(entry, LOW)} {entry_remark(entry, LOW)}".rstrip() == text


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
    rows = tuple(draw(st.lists(labels, min_size=1, max_size=4, unique=True)))
    column = st.builds(Column, title=labels, group=st.just("") | labels, lower_is_better=st.none())
    columns = tuple(draw(st.lists(column, min_size=1, max_size=4, unique_by=lambda c: c.title)))
    width = len(columns)
    line = st.lists(entries, min_size=width, max_size=width).map(tuple)
    fields = tuple(draw(st.lists(line, min_size=len(rows), max_size=len(rows))))
    return Table(draw(labels), rows, columns, fields, notes=tuple(draw(st.lists(labels))))


def sample():
    other = Column("Accuracy (%)", group="Faces", digits=2, lower_is_better=False)
    columns = {
        LOW: (Entry(0.4124, 0.0101, 4, 1, "E"), Entry(0.5, 0.02, 5), Entry(0.6, 0.1, 5)),
        other: (
            Entry(57.31, 2.1, 5, reference=57.28),
            Entry(61.5, 1.0, 5),
            Entry(failed=5, error="FloatingPointError"),
        ),
        P: (Entry(0), Entry(0.04), Entry()),
    }
    rows = ("hard_linear", "soft & poisson", "coral")
    named = {column: dict(zip(rows, each, strict=True)) for column, each in columns.items()}
    return Table.of_columns("Results of H_L", rows, named, notes=("Half of 50 %.",))


@given(tables())
def test_every_line_of_markdown_has_the_same_columns(table):
    lines = to_markdown(table).split("\n\n")[1].splitlines()
    assert len(lines) == len(table.rows) + 2
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines]
    assert set(bars) == {len(table.columns) + 2}
    assert len({len(line) for line in lines}) == 1


def test_latex_is_written_on_demand(tmp_path):
    text = to_latex(sample())
    assert r"soft \& poisson & \textbf{0.50 ± 0.02} & \textbf{61.50 ± 1.00}" in text
    assert r"hard\_linear & 0.41 ± 0.01 (4 of 5) & 57.31 ± 2.10 (paper 57.28, +0.03)" in text
    assert all(text.count(rule) == 1 for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    write_tables(tmp_path, {"a": sample()})
    assert {path.name for path in tmp_path.iterdir()} == {"a.md", "a.csv"}
    write_tables(tmp_path, {"a": sample()}, latex=True)
    assert (tmp_path / "a.tex").read_text() == text


@given(tables())
def test_csv_has_every_number_with_all_digits(table):
    text = to_csv(table)
    found = pd.read_csv(StringIO(text))
    flat = [entry for line in table.entries for entry in line]
    assert len(found) == len(table.rows) * len(table.columns)
    for name in ("mean", "sd", "reference", "difference", "n", "failed"):
        expected = [getattr(entry, name) for entry in flat]
        expected = [np.nan if value is None else value for value in expected]
        np.testing.assert_allclose(found[name].to_numpy(dtype=float), expected, rtol=1e-14)
    raw = pd.read_csv(StringIO(text), keep_default_na=False, dtype=str)
    assert raw["note"].tolist() == [entry.note for entry in flat]
    assert raw["column"].tolist() == [c.title for c in table.columns] * len(table.rows)
    assert raw["row"].tolist() == [row for row in table.rows for _ in table.columns]


SEEDS = range(4)


def entries_of(table):
    """Give the entries by the labels of their row and column."""
    return {(row, column.title): entry for row, fields in table.lines() for column, entry in fields}


@pytest.mark.parametrize("metric", ["mae", "accuracy", "rps"])
def test_comparison_has_mean_and_deviation_of_every_method_and_data_set(long_frame, metric):
    frame = long_frame()
    table = comparison(frame, metric, "median")
    found, scale = entries_of(table), METRICS[metric].scale
    assert table.rows == ("line", "arc", "sord")
    assert [column.title for column in table.columns] == ["lev", "era", "swd", "Mean rank"]
    groups = frame[frame.decode == "median"].groupby(["method", "data"])[metric]
    for (method, data), values in groups:
        entry = found[method, data]
        assert entry.mean == pytest.approx(scale * values.mean())
        assert entry.sd == pytest.approx(scale * np.std(values.to_numpy()))
        assert (entry.n, entry.failed) == (4, 0)
    means = groups.mean().unstack("data")
    ranks = means.rank(ascending=METRICS[metric].lower_is_better).mean(axis=1)
    for method in table.rows:
        assert found[method, "Mean rank"].mean == pytest.approx(ranks[method])
    best = means.idxmin() if METRICS[metric].lower_is_better else means.idxmax()
    for data in ("lev", "era", "swd"):
        assert [m for m in table.rows if found[m, data].is_best] == [best[data]]


def test_leaderboard_averages_every_metric_over_data_sets_best_first(long_frame):
    frame = long_frame(failed={("era", "arc", str(seed)) for seed in SEEDS})
    table = leaderboard(frame, ["mode"])
    found = entries_of(table)
    runs = frame[(frame.decode == "mode") & (frame.error == "")]
    for name, metric in measured(frame).items():
        title = f"{metric.title}, mode" if metric.decode else metric.title
        means = runs.groupby(["method", "data"])[name].mean().groupby("method").mean()
        for method in table.rows:
            assert found[method, title].mean == pytest.approx(means[method] * metric.scale)
    assert (found["arc", "MAE, mode"].n, found["arc", "MAE, mode"].failed) == (8, 4)
    assert not any(entry.is_best for entry in table.entries[-1])
    assert table.rows[-1] == "arc"
    assert found["arc", "Mean rank"].mean is None
    ranks = [found[method, "Mean rank"].mean for method in table.rows[:-1]]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("convert", [to_markdown, to_csv, to_latex])
@pytest.mark.parametrize(
    "failed", [(), {("lev", m, str(s)) for m in ("line", "arc") for s in SEEDS}]
)
def test_a_grid_has_five_tables_also_if_nothing_finished(long_frame, convert, failed):
    frame = long_frame(data=("lev",), methods=("line", "arc"), failed=failed)
    frame = frame.assign(recipe="paper")
    grid = Grid(
        data=[{"name": "lev", "source": "table"}],
        methods=["line", "arc"],
        decodings=["mode", "median"],
        reference="line",
    )
    made = make_tables(frame, grid)
    assert list(made) == ["leaderboard", "mae", "accuracy", "ranks", "against-reference"]
    assert all(convert(table) for table in made.values())
