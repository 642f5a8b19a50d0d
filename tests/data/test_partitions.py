import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.data import stratified_holdout

COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=8)
SEEDS = st.integers(0, 1000)


def samples(counts, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


@given(COUNTS, st.floats(0, 0.999), SEEDS)
def test_the_parts_are_sorted_and_make_up_the_whole(counts, fraction, seed):
    ranks = samples(counts)
    kept, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held_out) > 0).all()
    assert sorted([*kept, *held_out]) == list(range(len(ranks)))


@given(COUNTS, st.floats(0, 0.999), SEEDS)
def test_every_class_keeps_a_sample_and_the_total_is_as_promised(counts, fraction, seed):
    ranks = samples(counts)
    kept, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    assert set(ranks[kept]) == set(ranks)
    wanted = max(1, round(fraction * len(ranks))) if fraction > 0 else 0
    assert len(held_out) == min(wanted, len(ranks) - len(counts))


@given(st.lists(st.integers(3, 30), min_size=1, max_size=8), st.floats(0.01, 0.5), SEEDS)
def test_no_class_is_a_whole_sample_away_from_its_share(counts, fraction, seed):
    ranks = samples(counts)
    _, held_out = stratified_holdout(ranks, fraction, np.random.default_rng(seed))
    shares = np.bincount(ranks[held_out], minlength=len(counts))
    assert (np.abs(shares - len(held_out) * np.array(counts) / len(ranks)) < 1).all()


def test_the_largest_remainders_get_the_rest():
    ranks = samples([10, 14, 16])  # shares of 4: 1.0, 1.4, 1.6
    _, held_out = stratified_holdout(ranks, 0.1, np.random.default_rng(0))
    assert np.bincount(ranks[held_out]).tolist() == [1, 1, 2]


def test_a_tie_is_broken_by_chance():
    ranks = samples([5, 5])
    drawn = {
        int(ranks[stratified_holdout(ranks, 0.1, np.random.default_rng(seed))[1][0]])
        for seed in range(20)
    }
    assert drawn == {0, 1}


def test_single_samples_are_never_held_out():
    kept, held_out = stratified_holdout(np.arange(5), 0.5, np.random.default_rng(0))
    assert len(held_out) == 0
    assert kept.tolist() == [0, 1, 2, 3, 4]


def test_what_a_single_sample_cannot_give_the_others_do():
    ranks = np.array([0] + [1] * 9)
    _, held_out = stratified_holdout(ranks, 0.5, np.random.default_rng(0))
    assert len(held_out) == 5
    assert 0 not in held_out


def test_the_generator_decides():
    ranks = samples([50, 50])
    first, again, other = (
        stratified_holdout(ranks, 0.2, np.random.default_rng(seed))[1].tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_fraction_that_leaves_nothing_is_named(fraction):
    with pytest.raises(ValueError, match=rf"fraction must be in \[0, 1\), got {fraction}"):
        stratified_holdout(np.arange(4), fraction, np.random.default_rng(0))
