"""What reproductions read from the results of their runs."""

import re

import numpy as np
import pandas as pd
import pytest

from layline.experiments.paper import REPRODUCTIONS
from layline.experiments.paper.figures import Sweep, drawn_epochs, read_snapshots
from layline.experiments.paper.numbers import CATEGORIES, OVERALL
from layline.experiments.paper.presets import PRESETS
from layline.experiments.paper.tables import PaperGrid, with_overall
from layline.experiments.tables import TABLE_FORMATS
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder

PAPER, SMALL = PRESETS["paper"], PRESETS["small"]
TABLES = {name: r for name, r in REPRODUCTIONS.items() if isinstance(r, PaperGrid)}
SWEEPS = {name: r for name, r in REPRODUCTIONS.items() if isinstance(r, Sweep)}
SCALE = {"accuracy": 100, "mae": 1}


def invented(cells, seed=0):
    """Results that nobody trained for: one row per cell and decoding."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {**cell.labels, "decode": decode, "accuracy": a, "mae": m, "error": ""}
        for cell in cells
        for decode in ("mode", "median")
        for a, m in [rng.random(2)]
    )


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_row_and_column_of_the_paper_with_its_numbers(name):
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
def test_the_numbers_of_a_table_are_those_that_pandas_gives(name):
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


@pytest.mark.parametrize("name", SWEEPS)
def test_the_points_of_a_curve_and_its_table_are_those_that_pandas_gives(name):
    each = SWEEPS[name]
    frame = invented(each.cells(SMALL), seed=2)
    runs = frame[frame["decode"] == "mode"]
    table = each.table(frame, SMALL)
    for curve in each.curves(frame):
        of_row = runs[runs["row"] == curve.name]
        assert [f"{x:g}" for x in curve.x] == list(of_row["x"].unique())
        for metric, scale in SCALE.items():
            groups = of_row.groupby("x", sort=False)[metric]
            means, deviations = (groups.mean() * scale), (groups.std(ddof=0) * scale)
            found = curve.metrics[metric]
            assert [entry.mean for entry in found] == pytest.approx(means.tolist())
            assert [entry.sd for entry in found] == pytest.approx(deviations.tolist())
            title = {"mae": "MAE", "accuracy": "Accuracy (%)"}[metric]
            heads = [(column.group, column.title) for column in table.columns]
            place = heads.index((curve.name, title))
            shown = [line[place].mean for line in table.entries if not line[place].note]
            assert shown == pytest.approx(means.tolist())


def test_the_layouts_have_a_table_of_their_numbers():
    each = REPRODUCTIONS["figure-layouts"]
    frame = invented(each.cells(SMALL))
    table = each.table(frame, SMALL)
    runs = frame[frame["decode"] == "mode"].set_index("row")
    for row, (accuracy, mae) in zip(table.rows, table.entries, strict=True):
        assert accuracy.mean == pytest.approx(100 * runs.loc[row, "accuracy"])
        assert mae.mean == pytest.approx(runs.loc[row, "mae"])


def test_what_is_impossible_says_so_in_its_field():
    each = SWEEPS["figure-dimension"]
    table = each.table(invented(each.cells(SMALL)), SMALL)
    noted = [
        (row, column.group, entry.note)
        for row, line in zip(table.rows, table.entries, strict=True)
        for column, entry in zip(table.columns, line, strict=True)
        if entry.note
    ]
    assert noted == [("1", "H-S", "impossible")] * 2
    assert table.notes[-1] == f"H-S with d = 1 is impossible: {each.impossible()['H-S', '1']}."


def test_a_run_that_failed_leaves_a_gap_and_its_kind_of_error():
    each = SWEEPS["figure-scale"]
    frame = invented(each.cells(SMALL))
    frame.loc[frame["x"] == "4", ["accuracy", "mae"]] = np.nan
    frame.loc[frame["x"] == "4", "error"] = "FloatingPointError: the loss is not finite"
    (curve,) = each.curves(frame)
    assert curve.x == (2, 6, 8, 10)
    table = each.table(frame, SMALL)
    assert {entry.error for entry in table.entries[1]} == {"FloatingPointError"}
    assert "failed: FloatingPointError" in TABLE_FORMATS["md"](table)


@pytest.mark.parametrize("loss", ["failed", "absent"])
def test_overall_needs_all_four_categories_of_a_partition(loss):
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


@pytest.mark.parametrize(
    ("epochs", "shown"),
    [(48, (1, 13, 48)), (96, (1, 26, 96)), (8, (1, 2, 8)), (3, (1, 3)), (1, (1,))],
)
def test_layouts_are_drawn_after_the_epochs_of_the_paper_or_as_far_through(epochs, shown):
    assert drawn_epochs(epochs) == shown


def test_the_layouts_of_a_run_are_read_from_its_folder(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match="layouts must be recorded, got none"):
        read_snapshots(folder)
    points, ranks = np.zeros((3, 2), dtype=np.float32), np.arange(3)
    for moment in ("test", *range(1, 4)):
        size = 10.0 if moment == "test" else moment
        Snapshot(points + size, ranks, ranks, 1.0, proxies=points).save(folder.layout(moment))
    found = read_snapshots(folder)
    assert {title: each.points[0, 0] for title, each in found.items()} == {
        "test": 10,
        "validation, epoch 1": 1,
        "validation, epoch 3": 3,
    }
