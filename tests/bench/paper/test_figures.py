"""The paper's figures, read from results: recomputed by pandas."""

import numpy as np
import pytest

from layline.bench.paper import REPRODUCTIONS
from layline.bench.paper.figures import Sweep, drawn_epochs, read_snapshots
from layline.bench.paper.presets import PRESETS
from layline.bench.tables import TABLE_FORMATS
from layline.training.record import Snapshot
from layline.training.run_folder import RunFolder

PAPER, SMALL = PRESETS["paper"], PRESETS["small"]
SWEEPS = {name: r for name, r in REPRODUCTIONS.items() if isinstance(r, Sweep)}
SCALE = {"accuracy": 100, "mae": 1}


@pytest.mark.parametrize("name", SWEEPS)
def test_the_points_of_a_curve_and_its_table_are_those_that_pandas_gives(invented, name):
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


def test_the_layouts_have_a_table_of_their_numbers(invented):
    each = REPRODUCTIONS["figure-layouts"]
    frame = invented(each.cells(SMALL))
    table = each.table(frame, SMALL)
    runs = frame[frame["decode"] == "mode"].set_index("row")
    for row, (accuracy, mae) in zip(table.rows, table.entries, strict=True):
        assert accuracy.mean == pytest.approx(100 * runs.loc[row, "accuracy"])
        assert mae.mean == pytest.approx(runs.loc[row, "mae"])


def test_what_is_impossible_says_so_in_its_field(invented):
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


def test_a_run_that_failed_leaves_a_gap_and_its_kind_of_error(invented):
    each = SWEEPS["figure-scale"]
    frame = invented(each.cells(SMALL))
    frame.loc[frame["x"] == "4", ["accuracy", "mae"]] = np.nan
    frame.loc[frame["x"] == "4", "error"] = "FloatingPointError: the loss is not finite"
    (curve,) = each.curves(frame)
    assert curve.x == (2, 6, 8, 10)
    table = each.table(frame, SMALL)
    assert {entry.error for entry in table.entries[1]} == {"FloatingPointError"}
    assert "failed: FloatingPointError" in TABLE_FORMATS["md"](table)


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
