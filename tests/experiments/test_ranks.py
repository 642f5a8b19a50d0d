"""Mean ranks, Friedman's test and Nemenyi's difference: scipy's and Demšar's own numbers."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layline.experiments.ranks import cliques, critical_difference, mean_ranks

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


@given(tables, st.randoms())
def test_the_order_of_data_sets_and_methods_does_not_matter(values, random):
    table = table_of(values)
    rows, columns = list(table.index), list(table.columns)
    random.shuffle(rows)
    random.shuffle(columns)
    one = mean_ranks(table, lower_is_better=True)
    other = mean_ranks(table.loc[rows, columns], lower_is_better=True)
    assert one.ranks.to_dict() == pytest.approx(other.ranks.to_dict())
    assert one.p == pytest.approx(other.p)


def test_a_method_without_a_number_somewhere_is_left_out_and_named():
    table = table_of([[0.1, 0.2, 0.3, 0.4], [0.1, math.nan, 0.3, 0.2]])
    found = mean_ranks(table, lower_is_better=True)
    assert found.left_out == ("m1",)
    assert found.ranks.to_dict() == {"m0": 1.0, "m2": 2.5, "m3": 2.5}
    assert "without a rank: m1." in found.sentences[0]


def test_a_data_set_without_any_number_does_not_count():
    table = table_of([[0.1, 0.2], [math.nan, math.nan]])
    found = mean_ranks(table, lower_is_better=True)
    assert (found.data, found.left_out) == (1, ())
    nothing = mean_ranks(table.tail(1), lower_is_better=True)
    assert (nothing.data, nothing.left_out, len(nothing.ranks)) == (0, ("m0", "m1"), 0)


@pytest.mark.parametrize("values", [[[0.1, 0.2], [0.2, 0.1]], [[0.1, 0.2, 0.3]]])
def test_two_methods_or_one_data_set_have_no_friedman_test(values):
    found = mean_ranks(table_of(values), lower_is_better=True)
    assert (found.statistic, found.p, found.sentences) == (None, None, ())


def test_equal_numbers_are_equal_in_spite_of_floating_point():
    found = mean_ranks(table_of([[0.1 + 0.2, 0.3, 0.4]]), lower_is_better=True)
    assert found.ranks.to_dict() == {"m0": 1.5, "m1": 1.5, "m2": 3.0}


@pytest.mark.parametrize(("k", "q"), list(enumerate(DEMSAR, start=2)))
def test_the_critical_difference_has_the_constants_of_demsar(k, q):
    assert critical_difference(k, 14) == pytest.approx(
        q * math.sqrt(k * (k + 1) / 6 / 14), abs=2e-3
    )


def test_the_example_of_demsar():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.01)
    assert critical_difference(4, 14, alpha=0.10) == pytest.approx(1.12, abs=0.01)


def test_two_methods_need_the_normal_quantile():
    expected = scipy.stats.norm.ppf(0.995) / math.sqrt(20)
    assert critical_difference(2, 20, alpha=0.01) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 5), "k must be at least 2 and n at least 1, got k = 1 and n = 5"),
        ((3, 0), "got k = 3 and n = 0"),
        ((3, 5, 5), "alpha must be between 0 and 1, got 5"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        critical_difference(*arguments)


@given(st.lists(st.integers(4, 40).map(lambda v: v / 4), min_size=1, max_size=7), st.floats(0.1, 6))
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


def test_exactly_the_critical_difference_is_significant():
    ranks = pd.Series({"a": 1.0, "b": 2.0, "c": 2.5})
    assert cliques(ranks, 1.0) == [("b", "c")]
    assert cliques(ranks, 1.01) == [("a", "b"), ("b", "c")]
    assert cliques(ranks, 9.0) == [("a", "b", "c")]
    assert cliques(ranks, 0.1) == []
