"""The forest plot: what is drawn is what the intervals say."""

import numpy as np
import pytest
from PIL import Image

from layline.experiments.measures import MEASURES
from layline.experiments.summaries import intervals
from layline.reports.canvas import blank
from layline.reports.intervals import draw_intervals, order, save_intervals

SEEDS = range(4)


@pytest.mark.parametrize("metric", ["mae", "accuracy"])
def test_each_line_is_an_interval_in_the_unit_of_the_title(long_frame, metric):
    measure = MEASURES[metric]
    found = intervals(long_frame(), metric, "mode").xs("era", level="data")
    axis = blank(4, 3).add_subplot()
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
    frame = long_frame(failed={("era", "arc", str(seed)) for seed in SEEDS})
    found = intervals(frame, "mae", "mode")
    methods = order(found, MEASURES["mae"])
    assert methods[-1] == "arc"
    axis = blank(4, 3).add_subplot()
    draw_intervals(axis, found.xs("era", level="data"), methods, MEASURES["mae"])
    assert [text.get_text() for text in axis.texts] == ["× no result"]
    assert len(axis.lines) == 4


@pytest.mark.parametrize("metric", ["mae", "accuracy"])
def test_the_best_method_is_on_top(long_frame, metric):
    frame = long_frame()
    means = frame[frame.decode == "mode"].groupby("method")[metric].mean()
    expected = means.sort_values(ascending=MEASURES[metric].lower_is_better).index
    assert order(intervals(frame, metric, "mode"), MEASURES[metric]) == list(expected)


@pytest.mark.parametrize(("ending", "pooled"), [("png", False), ("png", True), ("pdf", False)])
def test_the_picture_is_written(tmp_path, long_frame, ending, pooled):
    path = tmp_path / f"intervals.{ending}"
    data = ("lev", "5 $ and $", "swd", "esl", "<faces>")
    save_intervals(path, long_frame(data=data, seeds=2), "qwk", "mode", pooled=pooled)
    if ending == "pdf":
        assert path.read_bytes().startswith(b"%PDF")
        return
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert 0.001 < (pixels < 128).mean() < 0.5
