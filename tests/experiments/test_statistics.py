"""One method against the others: scipy's tests, Holm by its definition, wins counted by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from layline.experiments.statistics import against, holm, signed_rank

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def by_definition(p):
    """Holm's adjusted p: the largest of (m − j + 1) p₍ⱼ₎ over the p that are not larger."""
    ordered = sorted(p)
    adjusted = [max((len(p) - j) * ordered[j] for j in range(i + 1)) for i in range(len(ordered))]
    return [min(1.0, adjusted[ordered.index(value)]) for value in p]


def frame_of(values, seeds=("0",)):
    """Runs from {method: [mae on each data set]}, shifted a little by the seed."""
    return pd.DataFrame(
        {"data": f"d{i}", "method": method, "seed": seed, "decode": "mode", "error": ""}
        | {"mae": mae + 0.001 * int(seed), "accuracy": 1 - mae}
        for method, row in values.items()
        for i, mae in enumerate(row)
        for seed in seeds
    )


@given(probabilities)
def test_holm_is_its_definition_up_to_ties(p):
    found = holm(p)
    order = np.argsort(p, kind="stable")
    assert (found >= np.asarray(p) - 1e-15).all()
    assert (found <= 1).all()
    assert (np.diff(found[order]) >= 0).all()
    if len(set(p)) == len(p):
        np.testing.assert_allclose(found, by_definition(p))


@given(probabilities, st.floats(0.01, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p, alpha):
    rejected = set()
    for step, i in enumerate(np.argsort(p, kind="stable")):
        if p[i] * (len(p) - step) > alpha:
            break
        rejected.add(i)
    assert set(np.flatnonzero(holm(p) <= alpha)) == rejected


@given(probabilities, st.randoms())
def test_holm_does_not_depend_on_the_order(p, random):
    order = list(range(len(p)))
    random.shuffle(order)
    np.testing.assert_allclose(holm([p[i] for i in order]), holm(p)[order])


def test_holm_does_not_count_what_was_not_tested():
    np.testing.assert_allclose(holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    assert holm([]).shape == (0,)


@settings(max_examples=25)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_signed_rank_is_that_of_scipy_without_zeros(steps):
    differences = np.array(steps) / 64
    found = signed_rank(differences)
    other = differences[differences != 0]
    assert found == pytest.approx(scipy.stats.wilcoxon(other).pvalue if len(other) else 1.0)
    assert found == pytest.approx(signed_rank(-differences))
    assert 0 < found <= 1


def test_signed_rank_of_few_is_counted_by_hand():
    assert signed_rank(np.array([0.5])) == 1.0
    assert signed_rank(np.array([0.1, 0.2, 0.3, 0.4, 0.5])) == pytest.approx(2 / 2**5)
    assert signed_rank(np.array([0.3 - (0.1 + 0.2), 0.0])) == 1.0
    assert math.isnan(signed_rank(np.array([])))


def test_wins_ties_and_losses_are_as_the_numbers_are_written():
    frame = frame_of({"ours": [0.5, 0.5, 0.5, 0.5], "x": [0.4, 0.5002, 0.6, 0.7]})
    found = against(frame, "ours", "mae", "mode").loc["x"]
    assert (found["wins"], found["ties"], found["losses"]) == (1, 1, 2)
    assert found["difference"] == pytest.approx((-0.1 + 0.0002 + 0.1 + 0.2) / 4)
    higher = against(frame, "ours", "accuracy", "mode").loc["x"]
    assert (higher["wins"], higher["losses"]) == (1, 3)  # 49.98 % is less than 50.00 %
    assert higher["difference"] == pytest.approx(-found["difference"])


@pytest.mark.parametrize(("tolerance", "ties"), [(0.0, 0), (0.001, 1), (0.1, 3), (1.0, 4)])
def test_a_tolerance_says_what_is_a_tie(tolerance, ties):
    frame = frame_of({"ours": [0.5, 0.5, 0.5, 0.5], "x": [0.4, 0.5002, 0.6, 0.7]})
    found = against(frame, "ours", "mae", "mode", tolerance=tolerance).loc["x"]
    assert found["ties"] == ties
    assert found["wins"] + found["ties"] + found["losses"] == 4


@pytest.mark.parametrize("pairs", ["data", "runs"])
def test_p_is_that_of_scipy_on_the_pairs(long_frame, pairs):
    frame = long_frame(data=[f"d{i}" for i in range(8)], failed={("d1", "arc", "2")})
    found = against(frame, "line", "mae", "median", pairs=pairs)
    runs = frame[(frame.decode == "median") & (frame.error == "")]
    table = runs.pivot_table("mae", ["data", "seed"], "method")
    for method in ("arc", "sord"):
        both = table[["line", method]].dropna()
        if pairs == "data":
            both = both.groupby("data").mean()
        known = scipy.stats.wilcoxon(both["line"], both[method]).pvalue
        assert found.loc[method, "p"] == pytest.approx(known)
        assert (
            found.loc[method, "pairs"]
            == len(both)
            == (8 if pairs == "data" else 32) - (pairs == "runs" and method == "arc")
        )
    np.testing.assert_allclose(found["p_holm"], holm(found["p"]))
    assert "line" not in found.index


def test_the_same_numbers_are_no_difference_and_one_data_set_no_evidence():
    frame = frame_of({"ours": [0.5, 0.25], "same": [0.5, 0.25]}, seeds=("0", "1"))
    found = against(frame, "ours", "mae", "mode", pairs="runs").loc["same"]
    assert (found["ties"], found["difference"], found["p"], found["pairs"]) == (2, 0, 1, 4)
    assert against(frame_of({"a": [0.1], "b": [0.2]}), "a", "mae", "mode").loc["b", "p"] == 1.0


def test_a_method_that_shares_no_data_set_with_the_reference_has_no_p():
    frame = frame_of({"ours": [0.5, math.nan], "x": [math.nan, 0.2], "y": [0.4, 0.3]})
    found = against(frame, "ours", "mae", "mode")
    assert found.loc["x", "pairs"] == 0
    assert math.isnan(found.loc["x", "p"])
    assert found.loc["y", "p_holm"] == found.loc["y", "p"]  # the only test


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lines", "mae", "mode"), "reference must be a known name, got 'lines'"),
        (("line", "maee", "mode"), "metric must be a known name, got 'maee': did you mean"),
        (("line", "mae", "mode", "seeds"), "pairs must be a known name, got 'seeds'"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(long_frame, arguments, message):
    with pytest.raises(ValueError, match=message):
        against(long_frame(), *arguments)


@pytest.mark.parametrize("pairs", ["data", "runs"])
def test_a_method_that_fails_on_a_hard_seed_does_not_win_by_it(long_frame, pairs):
    frame = long_frame(failed={(data, "arc", "0") for data in ("lev", "era", "swd")})
    frame["mae"] = frame["seed"].map(lambda seed: 2.0 if seed == "0" else 0.5)
    frame.loc[frame["error"] != "", "mae"] = np.nan
    line = against(frame, "line", "mae", "mode", pairs=pairs).loc["arc"]
    assert (line["wins"], line["ties"], line["losses"]) == (0, 3, 0)
    assert (line["difference"], line["p"]) == (0, 1)
