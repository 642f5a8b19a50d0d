"""The runs that are compared, and the tables of them, recomputed by pandas."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.bench.results import (
    comparison,
    find_reference,
    first_places,
    leaderboard,
    mean_rank_table,
    pairwise,
    recipe_gains,
    select_runs,
    tables,
)
from layline.bench.statistics import compare_with_reference
from layline.bench.summaries import METRICS, measured
from layline.bench.tables import TABLE_FORMATS, to_markdown


def made_up(errors: list[list[float]]) -> pd.DataFrame:
    """One row per seed and setting; what the test says is drawn."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            **{"data": "d", "method": "m", "recipe": "r", "backbone": "f"},
            **{"decode": decode, "error": ""},
            **{"seed": str(seed), "setting": str(setting), "validation_mae": error},
            "mae": rng.random(),
        }
        for seed, row in enumerate(errors)
        for setting, error in enumerate(row)
        for decode in ("mode", "median")
    )


@given(st.lists(st.lists(st.floats(0, 3), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_first_of_the_lowest_is_taken(errors):
    frame = made_up(errors)
    kept = select_runs(frame)
    assert len(kept) == 2 * len(errors)
    assert not kept.duplicated(["data", "method", "backbone", "seed", "decode"]).any()
    for seed, row in enumerate(errors):
        assert set(kept[kept["seed"] == str(seed)]["setting"]) == {str(int(np.argmin(row)))}


def test_the_test_part_has_no_say():
    frame = made_up([[0.5, 0.4, 0.6]] * 3)
    upside_down = frame.assign(mae=1 - frame["mae"])
    assert list(select_runs(frame)["setting"]) == list(select_runs(upside_down)["setting"])


def test_a_failed_setting_is_taken_only_if_all_failed():
    frame = made_up([[np.nan, 0.4, 0.6], [np.nan, np.nan, np.nan]])
    frame.loc[frame["validation_mae"].isna(), "error"] = "MemoryError: too much"
    kept = select_runs(frame).query("decode == 'mode'").set_index("seed")
    assert kept.loc["0", "setting"] == "1"
    assert kept.loc["1", "error"] == "MemoryError: too much"


def test_settings_are_chosen_by_the_metric_of_the_runs():
    frame = made_up([[0.5, 0.4, 0.6]]).assign(criterion=[-0.1, -0.1, -0.2, -0.2, -0.7, -0.7])
    assert set(select_runs(frame)["setting"]) == {"2"}
    left_by_an_earlier_version = frame.assign(criterion=np.nan)
    assert set(select_runs(left_by_an_earlier_version)["setting"]) == {"1"}


def test_one_setting_may_be_chosen_for_all_seeds_by_the_mean_of_some():
    frame = made_up([[0.5, 0.1, 0.4], [0.1, 0.6, 0.15], [0.9, 0.9, 0.1]])
    assert set(select_runs(frame, [0])["setting"]) == {"1"}
    assert set(select_runs(frame, [0, 1])["setting"]) == {"2"}
    assert list(select_runs(frame, [0, 1])["seed"]) == [s for s in "012" for _ in range(2)]
    without_others = frame[(frame["seed"] != "2") | (frame["setting"] == "2")]
    assert len(select_runs(without_others, [0, 1])) == 6


def test_each_metric_is_read_by_the_decoding_that_it_asks_for(long_frame):
    frame = long_frame()
    both = entries_of(leaderboard(frame, ["mode", "median"]))
    for title, decode, metric in (
        ("MAE, median", "median", "mae"),
        ("Accuracy (%), mode", "mode", "accuracy"),
        ("QWK, mode", "mode", "qwk"),
    ):
        alone = entries_of(leaderboard(frame, [decode]))
        for method in ("line", "arc", "sord"):
            assert both[method, title].mean == alone[method, METRICS[metric].title].mean
    assert (
        both["arc", "Mean rank"] == entries_of(leaderboard(frame, ["median"]))["arc", "Mean rank"]
    )


def test_who_is_first_is_compared_with_the_second_and_the_reference(long_frame):
    frame = long_frame(data=[f"d{i}" for i in range(6)])
    table, ranks = first_places(frame, ["mode"], "sord"), mean_rank_table(frame, ["mode"])
    for column, title in enumerate(each.title for each in ranks.columns):
        order = sorted(zip(ranks.entries, ranks.rows, strict=True), key=lambda r: r[0][column].mean)
        (first, second), lines = (name for _, name in order[:2]), {}
        for label, line in zip(table.rows, table.entries, strict=True):
            if label == title:
                assert line[0].note == first
                lines[line[2].note] = line
        assert set(lines) == {second, "sord"} - {first}
        metric = next(key for key, value in METRICS.items() if title.startswith(value.title))
        for other, line in lines.items():
            known = compare_with_reference(frame, other, metric, "mode").loc[first]
            assert line[4].mean == known["wins"]
            assert line[7].mean == pytest.approx(known["difference"] * METRICS[metric].scale)
            assert line[-2].mean == known["p"]


def test_order_is_kept():
    frame = made_up([[0.1, 0.2]] * 4)
    assert list(select_runs(frame)["seed"]) == [s for s in "0123" for _ in range(2)]


def test_several_features_are_several_data_sets():
    frame = pd.concat([made_up([[0.5]]), made_up([[0.5]]).assign(backbone="g")], ignore_index=True)
    assert set(select_runs(frame)["data"]) == {"d · f", "d · g"}
    assert set(select_runs(made_up([[0.5]]))["data"]) == {"d"}


def test_several_recipes_make_several_methods_of_one():
    frame = pd.concat([made_up([[0.5]]), made_up([[0.5]]).assign(recipe="q")], ignore_index=True)
    kept = select_runs(frame)
    assert list(kept["method"].unique()) == ["m · r", "m · q"]
    assert find_reference(kept, "m") == "m · r"
    alone = select_runs(made_up([[0.5]]))
    assert set(alone["method"]) == {"m"}
    assert find_reference(alone, "m") is None


def by_two_recipes(long_frame, metric):
    """Runs by two recipes, of which the second is lower in a metric."""
    both = [
        long_frame(seeds=2).assign(recipe=recipe, backbone="f", setting="")
        for recipe in ("old", "new")
    ]
    both[1][metric] *= np.random.default_rng(1).random(len(both[1]))
    return select_runs(pd.concat(both, ignore_index=True))


@pytest.mark.parametrize(("metric", "relative"), [("mae", True), ("accuracy", False)])
def test_recipes_are_compared_with_the_first(long_frame, metric, relative):
    frame = by_two_recipes(long_frame, metric)
    found = entries_of(recipe_gains(frame, metric, "median"))
    by_mean = frame[frame.decode == "median"].groupby(["method", "data"])[metric].mean()
    changes = {}
    for method in ("line", "arc", "sord"):
        for data in ("lev", "era", "swd"):
            old, new = by_mean[f"{method} · old", data], by_mean[f"{method} · new", data]
            changes[method, data] = 100 * (new - old) / (old if relative else 1)
            assert found[f"{method} · new", data].mean == pytest.approx(changes[method, data])
    of_line = [change for (method, _), change in changes.items() if method == "line"]
    assert found["line · new", "Mean"].mean == pytest.approx(np.mean(of_line))
    assert found["all methods · new", "Mean"].mean == pytest.approx(np.mean([*changes.values()]))


def test_recipes_have_tables_of_their_own_beside_those_of_the_methods(long_frame):
    made = dict(tables(by_two_recipes(long_frame, "mae"), ["mode"], "arc"))
    assert {"mae-mode-by-recipe", "accuracy-mode-by-recipe", "mae-mode-against-arc"} <= set(made)
    assert "arc · old" not in made["mae-mode-against-arc"].rows


def test_a_failed_run_leaves_no_change_of_recipe(long_frame):
    both = [
        long_frame(failed=failed).assign(recipe=recipe, backbone="f", setting="")
        for recipe, failed in (("old", ()), ("new", {("era", "arc", "1")}))
    ]
    found = entries_of(recipe_gains(select_runs(pd.concat(both, ignore_index=True)), "mae", "mode"))
    for row, column in (("arc", "era"), ("arc", "Mean"), ("all methods", "era")):
        assert found[f"{row} · new", column].mean is None
    assert found["all methods · new", "lev"].mean == pytest.approx(0)


SEEDS = range(4)


def entries_of(table):
    """Entries by the labels of their row and column."""
    return {
        (row, column.title): entry
        for row, line in zip(table.rows, table.entries, strict=True)
        for column, entry in zip(table.columns, line, strict=True)
    }


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


def test_the_caption_says_the_metric_its_better_end_and_the_decoding(long_frame):
    frame = long_frame()
    assert comparison(frame, "mae", "mode").caption.startswith(
        "MAE, lower is better, decoding by the mode"
    )
    assert "decoding" not in comparison(frame, "rps", "mode").caption


def test_failed_and_missing_entries_are_told_apart(long_frame):
    failed = {("lev", "arc", "1"), *(("era", "sord", str(seed)) for seed in SEEDS)}
    frame = long_frame(failed=failed)
    frame = frame[(frame.data != "swd") | (frame.method != "arc")]
    table = comparison(frame, "mae", "mode")
    found = entries_of(table)
    assert (found["arc", "lev"].n, found["arc", "lev"].failed) == (3, 1)
    assert found["sord", "era"].mean is None
    assert found["sord", "era"].error == "FloatingPointError"
    assert found["arc", "swd"].mean is None
    assert found["line", "lev"].mean is not None
    text = to_markdown(table)
    for part in ("(3 of 4)", "failed: FloatingPointError", "–"):
        assert part in text
    assert "missing on some data set: arc, sord." in text


def test_a_single_run_has_no_deviation(long_frame):
    frame = long_frame(seeds=1)
    assert comparison(frame, "mae", "mode").entries[0][0].sd is None


def test_the_order_of_the_runs_changes_nothing_but_the_order_of_the_table(long_frame):
    frame = long_frame(failed={("lev", "arc", "1")})
    shuffled = frame.sample(frac=1, random_state=1)
    one, other = (entries_of(comparison(f, "mae", "mode")) for f in (frame, shuffled))
    assert one.keys() == other.keys()
    for place, entry in one.items():
        assert other[place].mean == pytest.approx(entry.mean)
        assert (other[place].is_best, other[place].n) == (entry.is_best, entry.n)


def test_leaderboard_averages_every_metric_over_data_sets_best_first(long_frame):
    frame = long_frame(failed={("era", "arc", str(seed)) for seed in SEEDS})
    table = leaderboard(frame, ["mode"])
    found = entries_of(table)
    runs = frame[(frame.decode == "mode") & (frame.error == "")]
    for metric, measure in measured(frame).items():
        means = runs.groupby(["method", "data"])[metric].mean().groupby("method").mean()
        for method in table.rows:
            assert found[method, measure.title].mean == pytest.approx(means[method] * measure.scale)
    assert (found["arc", "MAE"].n, found["arc", "MAE"].failed) == (8, 4)
    assert not any(entry.is_best for entry in table.entries[-1])
    assert table.rows[-1] == "arc"
    ranks = [found[method, "Mean rank"].mean for method in table.rows[:-1]]
    assert ranks == sorted(ranks)
    assert found["arc", "Mean rank"].mean is None


def test_a_data_set_where_no_method_finished_takes_nobody_out_of_the_leaderboard(long_frame):
    failed = {("era", m, str(seed)) for m in ("line", "arc", "sord") for seed in SEEDS}
    table = leaderboard(long_frame(failed=failed), ["mode"])
    numbers = [entry for line in table.entries for entry in line[1:]]
    assert {(entry.n, entry.failed) for entry in numbers} == {(8, 0)}


def test_a_single_failed_run_shows_in_the_leaderboard_and_is_no_match_for_the_others(long_frame):
    whole = leaderboard(long_frame(), ["mode"])
    (winner,) = [row for row, e in zip(whole.rows, whole.entries, strict=True) if e[1].is_best]
    table = leaderboard(long_frame(failed={("era", winner, "1")}), ["mode"])
    entry = entries_of(table)[winner, "MAE"]
    assert (entry.n, entry.failed, entry.is_best) == (11, 1, False)
    assert "(11 of 12)" in to_markdown(table)


def test_a_data_set_that_a_method_was_not_run_on_shows_in_the_leaderboard(long_frame):
    frame = long_frame()
    table = leaderboard(frame[(frame.data != "swd") | (frame.method != "arc")], ["mode"])
    entry = entries_of(table)["arc", "MAE"]
    assert (entry.n, entry.failed, entry.is_best) == (8, 1, False)


def test_leaderboard_has_the_metrics_of_the_frame(long_frame):
    few = leaderboard(long_frame().drop(columns=["ece", "qwk"]), ["mode"])
    assert not {"ECE", "QWK"} & {column.title for column in few.columns}


def test_pairwise_shows_what_the_statistics_say_in_the_unit_of_the_title(long_frame):
    frame = long_frame(data=[f"d{i}" for i in range(7)])
    table = pairwise(frame, "line", "accuracy", "mode")
    known = compare_with_reference(frame, "line", "accuracy", "mode")
    found = entries_of(table)
    assert table.rows == ("arc", "sord")
    for method, line in known.iterrows():
        assert found[method, "Mean difference"].mean == pytest.approx(100 * line["difference"])
        assert found[method, "p (Holm)"].mean == pytest.approx(line["p_holm"])
        counts = [found[method, title].mean for title in ("Wins", "Ties", "Losses")]
        assert counts == [line["wins"], line["ties"], line["losses"]]
        assert sum(counts) == 7


def test_pairwise_without_a_common_data_set_has_a_dash(long_frame):
    frame = long_frame(data=("lev", "era"), methods=("line", "arc"))
    apart = (frame.data == "lev") == (frame.method == "line")
    text = to_markdown(pairwise(frame[apart], "line", "mae", "mode"))
    assert "–" in text


@pytest.mark.parametrize("write", TABLE_FORMATS.values(), ids=TABLE_FORMATS)
def test_one_method_one_data_set_one_seed_is_a_table_too(long_frame, write):
    frame = long_frame(data=("lev",), methods=("line",), seeds=1)
    for table in (
        comparison(frame, "mae", "mode"),
        leaderboard(frame, ["mode"]),
        pairwise(frame, "line", "mae", "mode"),
    ):
        assert write(table)


def test_nothing_finished_is_a_table_of_failures(long_frame):
    frame = long_frame(seeds=1, failed={(d, m, "0") for d in ("lev",) for m in ("line", "arc")})
    frame = frame[(frame.data == "lev") & (frame.method != "sord")]
    assert to_markdown(comparison(frame, "mae", "mode")).count("failed: FloatingPointError") == 2
    assert {entry.mean for entry in leaderboard(frame, ["mode"]).entries[0]} == {None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mea", "mode"), "metric must be a known name, got 'mea': did you mean"),
        (("mae", "best"), "decode must be a known name, got 'best': known are mode, median"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(long_frame, arguments, message):
    with pytest.raises(ValueError, match=message):
        comparison(long_frame(), *arguments)
