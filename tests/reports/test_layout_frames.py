"""The frames of the layout animation."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from layline.reports.layout_frames import layout_frames, select_epochs
from layline.training.report_data import Snapshot

CLASSES = 5


def layout(scale=1.0, angle=0.0, flip=False, proxies=True, count=80):
    """A straight line of classes, rotated."""
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
        index=np.arange(count),
        proxies=(line @ turn).astype(np.float32) if proxies else None,
    )


def points_of(frame):
    flat = np.frombuffer(base64.b64decode(frame["points"]), dtype="<i2")
    return flat.reshape(-1, 2) * frame["scale"]


@pytest.mark.parametrize(("count", "best"), [(1, 1), (60, 7), (61, 2), (1000, 999)])
def test_the_first_the_best_and_the_last_epoch_are_selected(count, best):
    epochs = select_epochs([*range(1, count + 1)], best)
    assert len(epochs) == min(count, 60)
    assert epochs == sorted(set(epochs))
    assert {1, best, count} <= set(epochs)


@pytest.mark.parametrize("proxies", [True, False])
def test_rotations_between_epochs_are_removed(proxies):
    moments = {
        1: layout(angle=1.0, proxies=proxies),
        2: layout(angle=2.5, flip=True, proxies=proxies),
        3: layout(angle=-0.4, proxies=proxies),
    }
    frames = layout_frames(moments, layout(angle=0.7, proxies=proxies), 2, CLASSES)
    selected, *others = (frames["validation"][i] for i in (1, 0, 2))
    for frame in (*others, frames["test"]):
        np.testing.assert_allclose(points_of(frame), points_of(selected), atol=1e-3)
    centers = [
        points_of(selected)[np.arange(80) % CLASSES == k].mean(axis=0) for k in range(CLASSES)
    ]
    steps = np.diff(centers, axis=0)
    assert (steps[:, 0] > 0.8).all()  # from left to right
    assert np.abs(steps[:, 1]).max() < 0.2


def test_epochs_of_similar_size_share_a_view():
    near = layout_frames({1: layout(1.2), 2: layout()}, None, 2, CLASSES)["validation"]
    assert near[0]["view"] == near[1]["view"]
    far = layout_frames({1: layout(50.0), 2: layout()}, None, 2, CLASSES)["validation"]
    assert far[0]["view"] != far[1]["view"]


def test_missing_layouts_and_points_are_no_obstacle():
    assert layout_frames({}, None, 1, CLASSES)["validation"] == []
    assert layout_frames({4: layout(), 5: layout()}, None, 2, CLASSES)["start"] == 1
    none = replace(
        layout(), points=np.zeros((0, 2), np.float32), ranks=np.zeros(0), predicted=np.zeros(0)
    )
    (frame,) = layout_frames({1: none}, none, 1, CLASSES)["validation"]
    assert len(frame["proxies"]) == CLASSES


def test_proxies_that_are_directions_are_drawn_at_the_rim():
    turns = np.linspace(np.pi, 0, CLASSES)
    arc = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    far = replace(layout(scale=20.0), proxies=arc.astype(np.float32))
    frames = layout_frames({1: far}, far, 1, CLASSES, by_direction=True)
    for frame in (*frames["validation"], frames["test"]):
        lengths = np.linalg.norm(points_of(frame), axis=1)
        drawn = np.array(frame["proxies"])
        rim = np.linalg.norm(drawn, axis=1)
        np.testing.assert_allclose(rim, rim[0], rtol=1e-4)
        assert np.median(lengths) < rim[0] < 1.1 * lengths.max()
        np.testing.assert_allclose(drawn / rim[0], arc, atol=1e-4)
