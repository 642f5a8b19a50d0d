"""The layout epoch by epoch."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from layline.reports.layout_frames import align, layout_frames, shown_epochs
from layline.training.record import Snapshot

CLASSES = 5
RNG = np.random.default_rng(0)


def layout(scale=1.0, angle=0.0, flip=False, proxies=True, count=80):
    """A straight line of classes, turned."""
    rng = np.random.default_rng(1)
    ranks = np.arange(count) % CLASSES
    line = np.c_[np.arange(CLASSES), np.zeros(CLASSES)]
    points = line[ranks] + 0.2 * rng.normal(size=(count, 2))
    c, s = np.cos(angle), np.sin(angle)
    turn = scale * np.array([[c, s], [-s, c]]) @ np.diag([1, -1 if flip else 1])
    return Snapshot(
        points=(points @ turn).astype(np.float32),
        ranks=ranks.astype(np.uint8),
        predicted=((ranks + (rng.random(count) < 0.2)) % CLASSES).astype(np.uint8),
        explained=0.5,
        proxies=(line @ turn).astype(np.float32) if proxies else None,
    )


def points_of(frame):
    flat = np.frombuffer(base64.b64decode(frame["points"]), dtype="<i2")
    return flat.reshape(-1, 2) * frame["scale"]


@pytest.mark.parametrize(("count", "best"), [(1, 1), (60, 7), (61, 2), (200, 101), (1000, 999)])
def test_the_first_the_best_and_the_last_epoch_are_among_the_shown(count, best):
    epochs = shown_epochs([*range(1, count + 1)], best)
    assert len(epochs) == min(count, 60)
    assert epochs == sorted(set(epochs))
    assert {1, best, count} <= set(epochs)


def test_marks_that_are_missing_do_not_count():
    a = RNG.normal(size=(6, 2))
    b = a @ np.array([[0, 1], [-1, 0]])
    a[2] = np.nan
    np.testing.assert_allclose(align(a, b), [[0, 1], [-1, 0]], atol=1e-12)


@pytest.mark.parametrize("proxies", [True, False])
def test_what_only_turned_between_epochs_stands_still(proxies):
    moments = {
        1: layout(angle=1.0, proxies=proxies),
        2: layout(angle=2.5, flip=True, proxies=proxies),
        3: layout(angle=-0.4, proxies=proxies),
    }
    found = layout_frames(moments, layout(angle=0.7, proxies=proxies), 2, CLASSES)
    kept, *others = (found["validation"][i] for i in (1, 0, 2))
    for frame in (*others, found["test"]):
        np.testing.assert_allclose(points_of(frame), points_of(kept), atol=1e-3)
    centres = [points_of(kept)[np.arange(80) % CLASSES == k].mean(axis=0) for k in range(CLASSES)]
    steps = np.diff(centres, axis=0)
    assert (steps[:, 0] > 0.8).all()  # from left to right
    assert np.abs(steps[:, 1]).max() < 0.2


def test_the_same_proxies_stay_where_they_are_whatever_the_samples():
    """The test part of the kept epoch has other samples and the same proxies."""
    moment, rng = layout(angle=1.0), np.random.default_rng(2)
    tested = replace(moment, points=moment.points + rng.normal(1, 1, moment.points.shape))
    found = layout_frames({1: moment}, tested, 1, CLASSES)
    (frame,) = found["validation"]
    np.testing.assert_allclose(found["test"]["proxies"], frame["proxies"], atol=0.05)
    assert frame["proxies"][-1] == pytest.approx([CLASSES - 1, 0], abs=1e-4)


def test_points_lose_little_when_they_are_packed():
    moment = layout(scale=3.0)
    (frame,) = layout_frames({1: moment}, None, 1, CLASSES)["validation"]
    largest = np.abs(moment.points).max()
    np.testing.assert_allclose(points_of(frame), moment.points, atol=largest / 30000)
    said = np.frombuffer(base64.b64decode(frame["predicted"]), dtype="<u2")
    np.testing.assert_array_equal(said, moment.predicted)


def test_epochs_of_one_size_share_a_view_and_others_have_their_own():
    near = layout_frames({1: layout(1.2), 2: layout()}, None, 2, CLASSES)["validation"]
    assert near[0]["view"] == near[1]["view"]
    far = layout_frames({1: layout(50.0), 2: layout()}, None, 2, CLASSES)["validation"]
    assert far[0]["view"] != far[1]["view"]
    for frame in (*near, *far):
        for place, (low, high) in zip(np.array(frame["proxies"]).T, frame["view"], strict=True):
            assert low < place.min()
            assert place.max() < high


def test_a_best_epoch_that_was_not_recorded_is_no_obstacle():
    found = layout_frames({4: layout(), 5: layout()}, None, 2, CLASSES)
    assert found["start"] == 1
    assert found["test"] is None


def test_without_points_proxies_are_shown():
    none = replace(
        layout(), points=np.zeros((0, 2), np.float32), ranks=np.zeros(0), predicted=np.zeros(0)
    )
    (frame,) = layout_frames({1: none}, none, 1, CLASSES)["validation"]
    assert len(frame["proxies"]) == CLASSES
    assert frame["points"] == ""


def test_without_layouts_there_is_nothing_to_show():
    assert layout_frames({}, None, 1, CLASSES)["validation"] == []


def test_proxies_that_stand_for_directions_are_drawn_among_the_outer_samples():
    turns = np.linspace(np.pi, 0, CLASSES)
    arc = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    far = replace(layout(scale=20.0), proxies=arc.astype(np.float32))
    found = layout_frames({1: far}, far, 1, CLASSES, by_direction=True)
    for frame in (*found["validation"], found["test"]):
        lengths = np.linalg.norm(points_of(frame), axis=1)
        drawn = np.array(frame["proxies"])
        rim = np.linalg.norm(drawn, axis=1)
        np.testing.assert_allclose(rim, rim[0], rtol=1e-4)
        assert np.median(lengths) < rim[0] < 1.1 * lengths.max()
        np.testing.assert_allclose(drawn / rim[0], arc, atol=1e-4)  # their directions stay
    none = replace(far, points=np.zeros((0, 2), np.float32), ranks=np.zeros(0, int))
    (frame,) = layout_frames({1: none}, None, 1, CLASSES, by_direction=True)["validation"]
    np.testing.assert_allclose(frame["proxies"], arc, atol=1e-4)
