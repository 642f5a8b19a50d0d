"""Mean ranks, critical differences and paired tests: scipy's and Demšar's own numbers."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layline.bench.statistics import (
    cliques,
    compare_with_reference,
    critical_difference,
    difference_interval,
    holm,
    mean_ranks,
    select_runs,
    signed_rank,
    summary,
)
from layline.bench.tables import find_reference

# Few different values, so that there are ties.
tables = st.tuples(st.integers(2, 6), st.integers(3, 6)).flatmap(
    lambda shape: arrays(float, shape, elements=st.integers(0, 5).map(lambda v: v / 8))
)
DEMSAR = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]  # q at 0.05, k = 2 … 10


def table_of(values):
    values = np.asarray(values, dtype=float)
    return pd.DataFrame(values, columns=[f"m{i}" for i in range(values.shape[1])])


@given(tables, st.booleans())
def test_ranks_and_test_are_those_of_scipy(values, lower):
    found = mean_ranks(table_of(values), lower_is_better=lower)
    oracle = scipy.stats.rankdata(values if lower else -values, axis=1).mean(axis=0)
    np.testing.assert_allclose(found.ranks.loc[[f"m{i}" for i in range(len(oracle))]], oracle)
    k = values.shape[1]
    assert found.ranks.sum() == pytest.approx(k * (k + 1) / 2)
    assert found.ranks.is_monotonic_increasing
    if (np.ptp(values, axis=1) > 0).any():
        known = scipy.stats.friedmanchisquare(*values.T)
        assert (found.statistic, found.p) == pytest.approx((known.statistic, known.pvalue))
    else:
        assert (found.statistic, found.p) == (0.0, 1.0)


def test_a_method_without_a_number_somewhere_is_left_out_and_named():
    table = table_of([[0.1, 0.2, 0.3, 0.4], [0.1, math.nan, 0.3, 0.2]])
    found = mean_ranks(table, lower_is_better=True)
    assert found.left_out == ("m1",)
    assert found.ranks.to_dict() == {"m0": 1.0, "m2": 2.5, "m3": 2.5}
    assert "missing on some data set: m1." in found.notes[0]


@pytest.mark.parametrize(("k", "q"), list(enumerate(DEMSAR, start=2)))
def test_the_critical_difference_has_the_constants_of_demsar(k, q):
    assert critical_difference(k, 14) == pytest.approx(
        q * math.sqrt(k * (k + 1) / 6 / 14), abs=2e-3
    )


@given(st.lists(st.integers(4, 40).map(lambda v: v / 4), min_size=1, max_size=5), st.floats(0.1, 6))
def test_cliques_are_all_maximal_groups_found_by_trying(values, difference):
    ranks = pd.Series(values, index=[f"m{i}" for i in range(len(values))])
    alike = [
        set(group)
        for size in range(2, len(values) + 1)
        for group in itertools.combinations(ranks.index, size)
        if ranks[list(group)].max() - ranks[list(group)].min() < difference
    ]
    maximal = [group for group in alike if not any(group < other for other in alike)]
    found = [set(group) for group in cliques(ranks, difference)]
    assert len(found) == len(maximal)
    assert all(group in found for group in maximal)


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def frame_of(values, seeds=("0",)):
    """Runs from {method: [mae on each data set]}, shifted a little by the seed."""
    return pd.DataFrame(
        {"data": f"d{i}", "method": method, "seed": seed, "decode": "mode", "error": ""}
        | {"mae": mae + 0.001 * int(seed), "accuracy": 1 - mae}
        for method, row in values.items()
        for i, mae in enumerate(row)
        for seed in seeds
    )


@given(probabilities, st.floats(0.01, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p, alpha):
    rejected = set()
    for step, i in enumerate(np.argsort(p, kind="stable")):
        if p[i] * (len(p) - step) > alpha:
            break
        rejected.add(i)
    assert set(np.flatnonzero(holm(p) <= alpha)) == rejected


@settings(max_examples=25)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_signed_rank_is_that_of_scipy_without_zeros(steps):
    differences = np.array(steps) / 64
    found = signed_rank(differences)
    other = differences[differences != 0]
    assert found == pytest.approx(scipy.stats.wilcoxon(other).pvalue if len(other) else 1.0)
    assert found == pytest.approx(signed_rank(-differences))
    assert 0 < found <= 1


def test_wins_ties_and_losses_are_as_the_numbers_are_written():
    frame = frame_of({"ours": [0.5, 0.5, 0.5, 0.5], "x": [0.4, 0.5002, 0.6, 0.7]})
    found = compare_with_reference(frame, "ours", "mae", "mode").loc["x"]
    assert (found["wins"], found["ties"], found["losses"]) == (1, 1, 2)
    assert found["difference"] == pytest.approx((-0.1 + 0.0002 + 0.1 + 0.2) / 4)
    higher = compare_with_reference(frame, "ours", "accuracy", "mode").loc["x"]
    assert (higher["wins"], higher["losses"]) == (1, 3)  # 49.98 % is less than 50.00 %
    assert higher["difference"] == pytest.approx(-found["difference"])


def test_p_is_that_of_scipy_on_the_means_of_data_sets(long_frame):
    frame = long_frame(data=[f"d{i}" for i in range(8)], failed={("d1", "arc", "2")})
    found = compare_with_reference(frame, "line", "mae", "median")
    runs = frame[(frame.decode == "median") & (frame.error == "")]
    table = runs.pivot_table("mae", ["data", "seed"], "method")
    for method in ("arc", "sord"):
        both = table[["line", method]].dropna().groupby("data").mean()
        known = scipy.stats.wilcoxon(both["line"], both[method]).pvalue
        assert found.loc[method, "p"] == pytest.approx(known)
        assert found.loc[method, "pairs"] == len(both) == 8
    np.testing.assert_allclose(found["p_holm"], holm(found["p"]))
    assert "line" not in found.index


def test_the_interval_of_a_difference_is_drawn_over_data_sets(long_frame):
    frame = long_frame(data=[f"d{i}" for i in range(8)])
    found = compare_with_reference(frame, "line", "mae", "mode").loc["arc"]
    runs = frame[frame.decode == "mode"].pivot_table("mae", ["data"], "method")
    differences = (runs["arc"] - runs["line"]).to_numpy()
    draws = np.random.default_rng(1).choice(differences, (20000, 8)).mean(axis=1)
    assert found["low"] < found["difference"] < found["high"]
    # the correction moves the ends of eight draws a little
    width = found["high"] - found["low"]
    assert width == pytest.approx(np.ptp(np.quantile(draws, [0.025, 0.975])), rel=0.15)
    assert difference_interval(-differences) == pytest.approx(
        (-found["high"], -found["low"]), abs=0.05 * width
    )


def test_a_method_that_fails_on_a_hard_seed_does_not_win_by_it(long_frame):
    frame = long_frame(failed={(data, "arc", "0") for data in ("lev", "era", "swd")})
    frame["mae"] = frame["seed"].map(lambda seed: 2.0 if seed == "0" else 0.5)
    frame.loc[frame["error"] != "", "mae"] = np.nan
    line = compare_with_reference(frame, "line", "mae", "mode").loc["arc"]
    assert (line["wins"], line["ties"], line["losses"]) == (0, 3, 0)
    assert (line["difference"], line["p"]) == (0, 1)


BY = ("data", "method", "decode")


def test_a_summary_is_what_numpy_says_of_each_group(long_frame):
    failed = {("lev", "arc", "1"), *(("era", "arc", str(seed)) for seed in range(4))}
    frame = long_frame(failed=failed)
    frame.loc[frame.error != "", "mae"] = 1e6  # a number next to an error is not used
    found = summary(frame, "mae", BY)
    assert len(found) == 3 * 3 * 2
    for labels, line in found.iterrows():
        runs = frame[(frame[list(BY)] == list(labels)).all(axis=1)]
        values = runs[runs.error == ""].mae.to_numpy()
        assert (line["n"], line["failed"]) == (len(values), 4 - len(values))
        assert line["error"] == ("FloatingPointError" if len(values) < 4 else "")
        if len(values):
            assert (line["mean"], line["sd"]) == pytest.approx((values.mean(), values.std()))


def made_up(errors: list[list[float]]) -> pd.DataFrame:
    """One row per seed, setting and decoding, with random test errors."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            **{"data": "d", "method": "m", "recipe": "r", "backbone": "f"},
            **{"labels": "all", "stress": "none"},
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
