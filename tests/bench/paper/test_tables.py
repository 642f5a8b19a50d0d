"""The paper's tables, filled with results: recomputed by pandas."""

import re

import numpy as np
import pytest

from layline.bench.paper import REPRODUCTIONS
from layline.bench.paper.numbers import CATEGORIES, OVERALL
from layline.bench.paper.presets import PRESETS
from layline.bench.paper.tables import PaperGrid, with_overall
from layline.bench.tables import TABLE_FORMATS

PAPER, SMALL = PRESETS["paper"], PRESETS["small"]
TABLES = {name: r for name, r in REPRODUCTIONS.items() if isinstance(r, PaperGrid)}
SCALE = {"accuracy": 100, "mae": 1}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_row_and_column_of_the_paper_with_its_numbers(invented, name):
    each = TABLES[name]
    table = each.table(invented(each.cells(PAPER)), PAPER)
    assert table.rows == each.paper.printed.rows == tuple(each.methods)
    heads = [(column.group, column.title) for column in each.paper.columns]
    assert [(column.group, column.title) for column in table.columns] == heads
    for line, numbers in zip(table.entries, each.paper.printed.entries, strict=True):
        for entry, number in zip(line, numbers, strict=True):
            assert entry.mean is not None
            assert entry.failed == 0
            assert (entry.reference, entry.reference_sd) == (number.reference, number.reference_sd)
            if number.reference is not None:
                assert entry.difference == pytest.approx(entry.mean - number.reference)
    for render in TABLE_FORMATS.values():
        text = render(table)
        for word in re.findall(r"[A-Za-z-]{2,}", " ".join(table.rows)):
            assert word in text


@pytest.mark.parametrize("name", TABLES)
def test_the_numbers_of_a_table_are_those_that_pandas_gives(invented, name):
    each = TABLES[name]
    frame = invented(each.cells(PAPER), seed=1)
    table = each.table(frame, PAPER)
    runs = frame[frame["decode"] == "mode"]
    for row, line in zip(table.rows, table.entries, strict=True):
        for entry, column in zip(line, each.paper.columns, strict=True):
            of_row = runs[runs["row"] == row]
            if column.data == OVERALL:
                wide = of_row.pivot_table(index="partition", columns="data", values=column.metric)
                values = wide[list(CATEGORIES.values())].dropna().mean(axis=1)
            else:
                values = of_row.loc[of_row["data"] == column.data, column.metric]
            assert entry.n == len(values)
            assert entry.mean == pytest.approx(values.mean() * SCALE[column.metric])
            assert entry.sd == pytest.approx(values.std(ddof=0) * SCALE[column.metric])


@pytest.mark.parametrize("loss", ["failed", "absent"])
def test_overall_needs_all_four_categories_of_a_partition(invented, loss):
    frame = invented(TABLES["table-aesthetics"].cells(PAPER))
    frame = frame[(frame["row"] == "SORD") & (frame["decode"] == "mode")].reset_index(drop=True)
    gone = (frame["data"] == "urban") & (frame["partition"] == "2")
    if loss == "failed":
        frame.loc[gone, ["accuracy", "mae"]] = np.nan
        frame.loc[gone, "error"] = "ValueError: no"
    else:
        frame = frame[~gone]
    whole = with_overall(frame).query("data == 'overall'").set_index("partition")
    errors = whole["error"].to_dict()
    assert {partition for partition, error in errors.items() if error} == {"2"}
    entry = TABLES["table-aesthetics"].table(frame, PAPER).entries[4][4]
    assert (entry.n, entry.failed) == (4, 1)


def test_a_table_says_which_data_are_not_the_papers():
    each = TABLES["table-norm"]
    assert not any("Not the paper's" in note for note in each.notes(PAPER))
    (note,) = [n for n in each.notes(SMALL) if "Not the paper's data" in n]
    assert "Historical Color is photo-quality (levels 5, distortion all)" in note
    assert any("IA is the mean over the four categories" in n for n in each.notes(SMALL))
    assert any("Decoding: mode" in n for n in each.notes(PAPER))
