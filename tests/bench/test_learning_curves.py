"""Learning curves and stress tests: relative differences, and a small grid from end to end."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from layline.bench.grid import Grid
from layline.bench.learning_curves import (
    compare_by_labels,
    find_curves,
    make_curve_tables,
    rank_overall,
)
from layline.bench.statistics import holm, select_runs, standard_runs
from layline.bench.store import Store, read_results
from layline.bench.tables import make_tables, to_csv, to_markdown
from layline.reports.bench import render_bench, write_bench_figures

# MAE by number of labels and method on two data sets; the second has no runs with 20 labels
MAE = {
    "5": {"line": [0.8, 0.5], "arc": [0.6, 0.6]},
    "20": {"line": [0.5], "arc": [0.4]},
    "all": {"line": [0.4, 0.2], "arc": [0.4, 0.1]},
}


@pytest.fixture
def small_frame():
    """Two seeds whose mean is the MAE above."""
    rows = [
        {"data": f"d{i}", "method": method, "labels": labels, "seed": str(seed), "decode": "mode"}
        | {"stress": "none", "recipe": "paper", "backbone": "mlp", "setting": "", "error": ""}
        | {"mae": mae + shift, "accuracy": 1 - mae + shift, "criterion": mae}
        for labels, methods in MAE.items()
        for method, values in methods.items()
        for i, mae in enumerate(values)
        for seed, shift in enumerate((-0.05, 0.05))
    ]
    return pd.DataFrame(rows)


def test_errors_are_compared_in_percent_and_scores_in_points(small_frame):
    found = compare_by_labels(small_frame, "line", "mae", "mode")["difference"]
    assert found["5", "arc"] == pytest.approx((-25 + 20) / 2)
    assert found["20", "arc"] == pytest.approx(-20)
    assert found["all", "arc"] == pytest.approx((0 - 50) / 2)
    points = compare_by_labels(small_frame, "line", "accuracy", "mode")
    assert points["difference"]["5", "arc"] == pytest.approx((20 - 10) / 2)
    assert points["pairs"].tolist() == [2, 1, 2]


def test_p_and_its_correction_are_those_of_each_number_of_labels(long_frame):
    frame = long_frame(data=[f"d{i}" for i in range(8)]).assign(labels="5")
    other = long_frame(data=[f"d{i}" for i in range(8)], seeds=2)
    found = compare_by_labels(pd.concat([frame, other]), "line", "mae", "mode")
    means = frame[frame["decode"] == "mode"].pivot_table("mae", "data", "method")
    p = [scipy.stats.wilcoxon(means[m] / means["line"] - 1).pvalue for m in ("arc", "sord")]
    np.testing.assert_allclose(found.loc["5", "p"], p)
    np.testing.assert_allclose(found.loc["5", "p_holm"], holm(p))


def test_ranks_over_all_sizes_count_every_pair_of_data_set_and_size(small_frame):
    ranks = rank_overall(small_frame, "mae", "mode")
    assert ranks.num_data == 5
    assert ranks.ranks.to_dict() == pytest.approx({"arc": (1 + 2 + 1 + 1.5 + 1) / 5, "line": 1.7})


def grid_of(frame, **more):
    names = frame["data"].unique()
    entries = [{"name": n, "source": "table", "group": f"group {n}"} for n in names]
    methods = [{"name": m, "method": "sord"} for m in frame["method"].unique()]
    return Grid.model_validate(
        {"data": entries, "methods": methods, "decodings": ["mode"], "reference": "line", **more}
    )


def test_there_are_tables_for_all_data_sets_and_for_each_group(small_frame):
    grid = grid_of(small_frame)
    tables = make_curve_tables(small_frame, grid)
    kinds = ("mae", "accuracy")
    suffixes = ("", "-group d0", "-group d1")
    assert set(tables) == {f"learning-curve-{k}{s}" for k in (*kinds, "ranks") for s in suffixes}
    text = to_markdown(tables["learning-curve-mae"])
    assert "Data sets: 2 (5 per class), 1 (20 per class), 2 (all labels)." in text
    assert "-2.5 p=1.000" in text
    curves = next(find_curves(small_frame, grid))
    assert curves.highlighted(grid) == ["arc"]
    assert curves.highlighted(grid_of(small_frame, highlight=["line"])) == []


def test_other_tables_use_the_runs_with_all_labels_or_the_most(small_frame):
    assert set(standard_runs(small_frame)["labels"]) == {"all"}
    assert set(standard_runs(small_frame[small_frame["labels"] != "all"])["labels"]) == {"20"}
    noise = small_frame.assign(stress="noise", mae=9.0)
    grid = grid_of(small_frame)
    both = make_tables(pd.concat([small_frame, noise]), grid)
    alone = make_tables(small_frame[small_frame["labels"] == "all"], grid)
    assert {k: to_csv(v) for k, v in both.items()} == {k: to_csv(v) for k, v in alone.items()}


def test_a_grid_of_labels_and_stress_tests_is_run_and_resumed(tree, tmp_path, go):
    tree |= {"labels": [3, "all"], "stress": ["none", "noise", "gap"], "seeds": [0]}
    tree["settings"]["training"]["epochs"] = 1
    tree["baselines"] = ["sklearn.linear_model:LogisticRegression"]
    own = {"name": "other", "labels": ["all"], "options": {"label": "grade", "test": 0.3}}
    tree["data"].append({**tree["data"][0], **own})
    grid = Grid.model_validate(tree)
    first = grid.model_copy(update={"labels": [3]})
    assert go(first.model_copy(update={"data": grid.data[:1]}), tmp_path)[0] == []
    failed, log = go(grid, tmp_path)
    assert failed == []
    assert "27 runs, 9 finished before" in log
    assert "ratings hard-linear paper mlp 3 per class noise 0  MAE" not in log
    assert "ratings hard-linear paper mlp gap 0  MAE" in log
    store, cells = Store(tmp_path), grid.cells()
    counts = {}
    for cell in cells:
        seen = store.run_folder(cell).read_environment()["counts"]
        key = (cell.labels["data"], cell.labels["stress"], cell.labels["labels"])
        counts[key] = {name: np.array(each) for name, each in seen.items()}
        assert counts[key]["test"].sum() == (27 if cell.labels["data"] == "other" else 18)
    limited = counts["ratings", "none", "3"]
    assert (limited["train"] + limited["validation"]).tolist() == [3, 3, 3]
    assert counts["ratings", "gap", "all"]["train"][1] == 0
    assert counts["ratings", "gap", "all"]["test"][1] > 0
    store.write_results(grid, cells)
    (tmp_path / "grid.toml").write_text(grid.to_toml())
    frame = read_results(tmp_path)
    assert frame["gap_mae"].notna().tolist() == (frame["stress"] == "gap").tolist()
    compared = select_runs(frame)
    assert len(compared) == len(frame)
    tables = make_curve_tables(compared, grid)
    assert {"learning-curve-mae", "learning-curve-mae-noise", "stress-gap"} <= set(tables)
    gap = frame[(frame["stress"] == "gap") & (frame["decode"] == "median")]
    gap = gap[(gap["method"] == "hard-linear") & (gap["labels"] == "all")]
    (row,) = (r for name, r in tables["stress-gap"].lines() if name == "hard-linear")
    assert row[-1][1].mean == pytest.approx(gap["gap_mae"].mean())
    write_bench_figures(tmp_path)
    names = {path.name for path in (tmp_path / "figures").glob("*.svg")}
    assert names == {f"learning-curve{each}.svg" for each in ("", "-noise", "-gap")}
    assert 'data-figure="curve-noise"' in render_bench(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [5, 5]}, "labels of ratings must not contain duplicates"),
        ({"labels": [0]}, "labels"),
        ({"labels": ["most"]}, "labels"),
        ({"stress": ["storm"]}, "stress"),
        ({"highlight": ["hard-liner"]}, "hard-linear"),
        ({"settings": {"data": {"per_class": 5}}}, "data.per_class cannot be set in a grid"),
        ({"settings": {"data": {"stress": "gap"}}}, "data.stress cannot be set in a grid"),
    ],
)
def test_wrong_labels_and_stress_tests_are_refused(tree, change, message):
    with pytest.raises(ValueError, match=message):
        Grid.model_validate({**tree, **change}).cells()
