"""Figures for print: their geometry, what they name, and files that can be opened."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from layline.bench.statistics import cliques
from layline.bench.summaries import METRICS, intervals
from layline.reports.printed_figures import (
    bar_levels,
    best_first,
    critical_difference_diagram,
    draw_critical_difference,
    draw_intervals,
    forest_plot,
    leaders,
    new_figure,
    save_figure,
)

rank_lists = st.lists(st.integers(10, 340).map(lambda v: v / 10), min_size=2, max_size=34)
spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted).map(tuple))


def ranks_of(values):
    return pd.Series(values, index=[f"method-{i}" for i in range(len(values))], dtype=float)


@given(rank_lists)
def test_no_two_leader_lines_cross(values):
    found = leaders(ranks_of(values))
    assert sorted(leader.name for leader in found) == sorted(ranks_of(values).index)
    for one, other in itertools.permutations(found, 2):
        # one goes sideways at its level; other goes down at its rank, to its own level
        sideways = (0, one.rank) if one.side == "left" else (one.rank, 99)
        within = sideways[0] < other.rank < sideways[1]
        assert not (within and other.level > one.level)
        assert (one.side, one.level) != (other.side, other.level)


@given(rank_lists)
def test_names_are_on_both_sides_the_better_ones_at_the_left(values):
    found = leaders(ranks_of(values))
    left = [leader for leader in found if leader.side == "left"]
    right = [leader for leader in found if leader.side == "right"]
    assert 0 <= len(left) - len(right) <= 1
    assert max(leader.rank for leader in left) <= min(leader.rank for leader in right)
    for side in (left, right):
        assert sorted(leader.level for leader in side) == list(range(len(side)))


@given(spans)
def test_bars_on_one_level_do_not_touch_and_no_level_is_wasted(found):
    found = list(dict.fromkeys(found))
    levels = bar_levels(found)
    for (one, a), (other, b) in itertools.combinations(zip(found, levels, strict=True), 2):
        assert a != b or one[1] < other[0] or other[1] < one[0]
    deepest = max((sum(low <= x <= high for low, high in found) for x in range(21)), default=0)
    assert len(set(levels)) == deepest


@pytest.mark.parametrize("k", [2, 5, 12, 34])
@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_the_picture_is_written_and_has_grey_ink_only(tmp_path, k, ending):
    values = np.linspace(1, k, k) * 0.8 + 0.1 * k
    path = tmp_path / f"cd.{ending}"
    figure = critical_difference_diagram(ranks_of(values), data=12, title="costs 5 $ and _")
    save_figure(figure, path)
    if ending == "pdf":
        assert path.read_bytes().startswith(b"%PDF")
        assert b"CreationDate" not in path.read_bytes()
        return
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert np.ptp(pixels, axis=-1).max() == 0
    assert 0.01 < (pixels.mean(axis=-1) < 128).mean() < 0.5
    assert [child.name for child in tmp_path.iterdir()] == ["cd.png"]


@pytest.mark.parametrize("k", [2, 9, 34])
def test_every_method_is_named_once_and_no_text_covers_another(k):
    generator = np.random.default_rng(k)
    ranks = ranks_of(generator.uniform(1, k, size=k))
    difference = 0.3 * k
    found = cliques(ranks, difference)
    groups = [(ranks[group[0]], ranks[group[-1]]) for group in found]
    figure = new_figure(5.6, ((k + 1) // 2 + 0.5 * len(groups) + 4) * 0.2, layout=None)
    axis = figure.add_axes((0, 0, 1, 1))
    draw_critical_difference(axis, ranks, groups, difference)
    texts = [text for text in axis.texts if text.get_text()]
    written = " ".join(text.get_text() for text in texts)
    for name, rank in ranks.items():
        assert written.split().count(name) == 1
        assert f"{rank:.2f}" in written
    assert f"CD = {difference:.2f}" in written
    boxes = [text.get_window_extent() for text in texts]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    bars = [line for line in axis.lines if line.get_linewidth() == 3]
    assert len(bars) == len(groups)


def test_a_critical_difference_longer_than_the_axis_is_said():
    axis = new_figure(5, 3).add_subplot()
    draw_critical_difference(axis, ranks_of([1.2, 1.8]), [(1.2, 1.8)], 2.5)
    assert "CD = 2.50 (longer than the axis)" in [text.get_text() for text in axis.texts]
    equal = new_figure(5, 3).add_subplot()
    draw_critical_difference(equal, ranks_of([2.0, 2.0, 2.0]), [(2.0, 2.0)], 0.5)
    assert equal.get_xlim()[0] < 2 < equal.get_xlim()[1]


def test_one_method_alone_is_not_ranked():
    with pytest.raises(ValueError, match="ranks must be of at least 2 methods, got 1: methods are"):
        critical_difference_diagram(ranks_of([1.0]), data=5)


def test_an_unknown_format_is_refused(tmp_path):
    message = "the ending of a picture must be a known name, got '.gif'"
    with pytest.raises(ValueError, match=message):
        save_figure(new_figure(1, 1), tmp_path / "cd.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("metric", ["mae", "accuracy"])
def test_each_line_is_an_interval_in_the_unit_of_the_title(long_frame, metric):
    measure = METRICS[metric]
    found = intervals(long_frame(), metric, "mode").xs("era", level="data")
    axis = new_figure(4, 3).add_subplot()
    methods = ["arc", "line", "sord"]
    draw_intervals(axis, found, methods, measure)
    drawn = [line.get_xdata() for line in axis.lines]
    for place, method in enumerate(methods):
        line = found.loc[method] * measure.scale
        np.testing.assert_allclose(drawn[2 * place], [line["low"], line["high"]])
        np.testing.assert_allclose(drawn[2 * place + 1], [line["mean"]])
    assert [label.get_text() for label in axis.get_yticklabels()] == methods
    assert axis.yaxis_inverted()


def test_a_method_without_a_result_is_said_and_comes_last(long_frame):
    frame = long_frame(failed={("era", "arc", str(seed)) for seed in range(4)})
    found = intervals(frame, "mae", "mode")
    methods = best_first(found, METRICS["mae"])
    assert methods[-1] == "arc"
    axis = new_figure(4, 3).add_subplot()
    draw_intervals(axis, found.xs("era", level="data"), methods, METRICS["mae"])
    assert [text.get_text() for text in axis.texts] == ["× no result"]
    assert len(axis.lines) == 4


@pytest.mark.parametrize("metric", ["mae", "accuracy"])
def test_the_best_method_is_on_top(long_frame, metric):
    frame = long_frame()
    means = frame[frame.decode == "mode"].groupby("method")[metric].mean()
    expected = means.sort_values(ascending=METRICS[metric].lower_is_better).index
    assert best_first(intervals(frame, metric, "mode"), METRICS[metric]) == list(expected)


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_the_forest_plot_is_written(tmp_path, long_frame, ending):
    path = tmp_path / f"intervals.{ending}"
    data = ("lev", "5 $ and $", "swd", "esl", "<faces>")
    save_figure(forest_plot(long_frame(data=data, seeds=2), "qwk", "mode"), path)
    if ending == "pdf":
        assert path.read_bytes().startswith(b"%PDF")
        return
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert 0.001 < (pixels < 128).mean() < 0.5
