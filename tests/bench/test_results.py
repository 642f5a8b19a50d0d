"""The runs that are compared, and their tables, recomputed by pandas."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.bench.grid import Grid
from layline.bench.results import (
    comparison,
    find_reference,
    leaderboard,
    make_tables,
    mean_rank_table,
    measured,
    reference_table,
    select_runs,
)
from layline.bench.statistics import METRICS, compare_with_reference
from layline.bench.tables import to_csv, to_latex, to_markdown

SEEDS = range(4)


def made_up(errors: list[list[float]]) -> pd.DataFrame:
    """One row per seed, setting and decoding, with random test errors."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            **{"data": "d", "method": "m", "recipe": "r", "backbone": "f"},
            **{"decode": decode, "error": "", "mae": rng.random()},
            **{"seed": str(seed), "setting": str(setting), "criterion": error},
        }
        for seed, row in enumerate(errors)
        for setting, error in enumerate(row)
        for decode in ("mode", "median", "mean")
    )


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_first_of_the_best_settings_on_validation_is_chosen(steps):
    """Equal scores stay equal, whatever the number of decodings."""
    errors = [[step / 50 for step in row] for row in steps]
    kept = select_runs(made_up(errors))
    assert len(kept) == 3 * len(errors)
    for seed, row in enumerate(errors):
        assert set(kept[kept["seed"] == str(seed)]["setting"]) == {str(int(np.argmin(row)))}


def test_test_errors_have_no_influence():
    frame = made_up([[0.5, 0.4, 0.6]] * 3)
    reversed_errors = frame.assign(mae=1 - frame["mae"])
    assert list(select_runs(frame)["setting"]) == list(select_runs(reversed_errors)["setting"])


def test_a_failed_setting_is_chosen_only_if_all_failed():
    frame = made_up([[np.nan, 0.4, 0.6], [np.nan, np.nan, np.nan]])
    frame.loc[frame["criterion"].isna(), "error"] = "MemoryError: too much"
    kept = select_runs(frame).query("decode == 'mode'").set_index("seed")
    assert kept.loc["0", "setting"] == "1"
    assert kept.loc["1", "error"] == "MemoryError: too much"


def test_some_seeds_may_choose_one_setting_for_all():
    frame = made_up([[0.5, 0.1, 0.4], [0.1, 0.6, 0.15], [0.9, 0.9, 0.1]])
    assert set(select_runs(frame, [0])["setting"]) == {"1"}
    assert set(select_runs(frame, [0, 1])["setting"]) == {"2"}
    without_others = frame[(frame["seed"] != "2") | (frame["setting"] == "2")]
    assert len(select_runs(without_others, [0, 1])) == 9


def test_backbones_make_data_sets_and_recipes_make_methods():
    one = made_up([[0.5]])
    several = select_runs(pd.concat([one, one.assign(backbone="g")], ignore_index=True))
    assert set(several["data"]) == {"d · f", "d · g"}
    recipes = select_runs(pd.concat([one, one.assign(recipe="q")], ignore_index=True))
    assert list(recipes["method"].unique()) == ["m · r", "m · q"]
    assert find_reference(recipes, "m") == "m · r"
    assert find_reference(select_runs(one), "m") is None


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


def test_failed_and_missing_entries_differ(long_frame):
    failed = {("lev", "arc", "1"), *(("era", "sord", str(seed)) for seed in SEEDS)}
    frame = long_frame(failed=failed)
    frame = frame[(frame.data != "swd") | (frame.method != "arc")]
    found = entries_of(comparison(frame, "mae", "mode"))
    assert (found["arc", "lev"].n, found["arc", "lev"].failed) == (3, 1)
    assert (found["sord", "era"].mean, found["sord", "era"].error) == (None, "FloatingPointError")
    assert (found["arc", "swd"].mean, found["arc", "swd"].failed) == (None, 0)
    text = to_markdown(comparison(frame, "mae", "mode"))
    for part in ("(3 of 4)", "failed: FloatingPointError", "–", "some data set: arc, sord."):
        assert part in text


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


def test_each_metric_uses_its_own_decoding(long_frame):
    frame = long_frame()
    for table in (leaderboard, mean_rank_table):
        both = entries_of(table(frame, ["mode", "median"]))
        for title, decode in {"MAE": "median", "Accuracy (%)": "mode"}.items():
            alone = entries_of(table(frame, [decode]))
            for method in ("line", "arc", "sord"):
                place = method, f"{title}, {decode}"
                assert both[place].mean == alone[place].mean


def test_a_data_set_where_no_method_finished_takes_nobody_out_of_the_leaderboard(long_frame):
    failed = {("era", m, str(seed)) for m in ("line", "arc", "sord") for seed in SEEDS}
    table = leaderboard(long_frame(failed=failed), ["mode"])
    numbers = [entry for line in table.entries for entry in line[1:]]
    assert {(entry.n, entry.failed) for entry in numbers} == {(8, 0)}


def test_the_reference_table_shows_the_statistics_in_the_unit_of_the_title(long_frame):
    frame = long_frame(data=[f"d{i}" for i in range(7)])
    table = reference_table(frame, "line", "accuracy", "mode")
    known = compare_with_reference(frame, "line", "accuracy", "mode")
    found = entries_of(table)
    assert table.rows == ("arc", "sord")
    for method, line in known.iterrows():
        assert found[method, "Mean difference"].mean == pytest.approx(100 * line["difference"])
        assert found[method, "p (Holm)"].mean == pytest.approx(line["p_holm"])
        counts = [found[method, title].mean for title in ("Wins", "Ties", "Losses")]
        assert counts == [line["wins"], line["ties"], line["losses"]]
        assert sum(counts) == 7


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
