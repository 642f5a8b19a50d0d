"""What a run records for its report: the plane, layouts, proxies, mistakes, what to review."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.special import softmax
from sklearn.decomposition import PCA

from layline import heads
from layline.data.images import ImageArrays
from layline.data.preprocessing import ImagePreprocessing
from layline.data.tables import Rows, TableEncoding
from layline.evaluation.evaluate import Evaluation
from layline.evaluation.predictions import Predictions
from layline.geometry import LAYOUTS
from layline.training.config import ReportConfig
from layline.training.report_data import (
    LONGER_SIDE,
    Snapshot,
    fit_plane,
    read_cells,
    samples_to_review,
    take_snapshot,
    write_proxies,
    write_report_data,
)
from layline.training.run_folder import RunFolder

RNG = np.random.default_rng(0)


def sample(dim, num_classes=5, count=120):
    """Features around the proxies of their classes."""
    proxies = RNG.normal(size=(num_classes, dim))
    ranks = np.arange(count) % num_classes
    return proxies[ranks] + 0.3 * RNG.normal(size=(count, dim)), ranks, proxies


def layout_proxies(name, num_classes, dim):
    torch.manual_seed(0)
    return LAYOUTS[name](num_classes, dim).proxies().detach().numpy()


@pytest.mark.parametrize("with_proxies", [True, False])
@pytest.mark.parametrize(("count", "dim"), [(120, 64), (1, 8), (3, 600), (0, 8)])
def test_the_axes_are_orthonormal(count, dim, with_proxies):
    features, ranks, proxies = sample(dim, count=count)
    axes = fit_plane(features, ranks, proxies if with_proxies else None)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-6)


def test_a_line_is_drawn_as_a_line_with_the_largest_variance_across():
    proxies = layout_proxies("linear", 5, 16)
    features = RNG.normal(size=(200, 16)) * np.linspace(3, 0.1, 16)
    axes = fit_plane(features, np.arange(200) % 5, proxies)
    x, y = (proxies @ axes.T).T
    np.testing.assert_allclose(np.diff(x), np.diff(x)[0], rtol=1e-4)
    assert np.diff(x)[0] > 0
    np.testing.assert_allclose(y, y[0], atol=1e-4)
    rest = features - np.outer(features @ axes[0], axes[0])
    best = PCA(1).fit(rest).components_[0]
    assert abs(best @ axes[1]) == pytest.approx(1, abs=1e-4)


def test_a_semicircle_is_drawn_upright():
    proxies = layout_proxies("semicircular", 8, 16)
    axes = fit_plane(RNG.normal(size=(50, 16)), np.arange(50) % 8, proxies)
    x, y = (proxies @ axes.T).T
    assert (np.diff(x) > 0).all()
    assert y[len(y) // 2] > y[0]
    np.testing.assert_allclose(np.hypot(x, y), 1, rtol=1e-4)


def test_without_proxies_the_plane_is_that_of_the_principal_components():
    features, ranks, _ = sample(20, count=300)
    features, ranks = torch.from_numpy(features), torch.from_numpy(ranks)
    head = heads.create("coral", 5, 20)
    snapshot = take_snapshot(features, torch.arange(300), ranks, ranks, head)
    best = PCA(2, svd_solver="full").fit(features).explained_variance_ratio_.sum()
    assert snapshot.explained == pytest.approx(best, abs=1e-6)


def make_snapshot(method, dim=6):
    torch.manual_seed(0)
    head = heads.create(method, 4, dim)
    features, ranks = torch.randn(30, dim), torch.arange(30) % 4
    index = torch.arange(30)
    return take_snapshot(features, index, ranks, ranks.roll(1), head), features, head


@pytest.mark.parametrize("method", ["arc", "coral"])
def test_a_snapshot_survives_its_file(tmp_path, method):
    snapshot, features, _ = make_snapshot(method, dim=2)
    np.testing.assert_allclose(snapshot.points, features, rtol=1e-6)  # exact in two dimensions
    snapshot.save(tmp_path / "a.npz")
    found = Snapshot.load(tmp_path / "a.npz")
    for name, value in vars(snapshot).items():
        np.testing.assert_array_equal(getattr(found, name), value)
    assert (found.proxies is None) == (method == "coral")


def test_proxies_are_written_with_their_similarities_and_smoothing(tmp_path):
    path = tmp_path / "proxies.npz"
    write_proxies(path, heads.create("coral", 4, 6))
    assert not path.exists()
    write_proxies(path, make_snapshot("soft-poisson")[2])
    with np.load(path, allow_pickle=False) as arrays:
        found = dict(arrays)
    gaps = ((found["proxies"][:, None] - found["proxies"]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found["q"], softmax(-np.log1p(gaps), axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["u"].sum(axis=1), 1, rtol=1e-6)
    assert found["u"].argmax(axis=1).tolist() == [0, 1, 2, 3]


RANKS = np.array([0, 2, 1, 0, 2, 1])
PREDICTED = np.array([0, 0, 2, 2, 2, 0])
PROBA = np.array(
    [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0.0, 0.4, 0.6], [0.1, 0.1, 0.8], [0, 0, 1], [0.7, 0.3, 0]]
)


def make_evaluation(ranks, predicted, proba, names=(), ranges=None):
    decisions = {"mode": torch.from_numpy(predicted)}
    features = torch.arange(6.0 * len(ranks)).view(-1, 6)
    predictions = Predictions(torch.from_numpy(proba).log(), decisions, features=features)
    classes = ("low", "mid", "high")
    ranks = torch.from_numpy(ranks)
    return Evaluation({"decode": "mode"}, names, classes, ranks, predictions, ranges)


def test_contradicted_labels_come_first_then_the_least_certain():
    ranks, predicted = np.array([0, 0, 1, 2, 1]), np.array([0, 2, 1, 0, 0])
    proba = np.array(
        [
            [1.0, 0.0, 0.0],
            [0.01, 0.09, 0.9],  # ninety times as probable as the label
            [0.3, 0.4, 0.3],  # between all classes
            [0.98, 0.01, 0.01],  # ninety-eight times
            [0.5, 0.4, 0.1],  # wrong, but not sure
        ]
    )
    evaluation = make_evaluation(ranks, predicted, proba)
    reasons = samples_to_review(evaluation, 4)
    assert list(reasons) == [3, 1, 2, 4]
    assert list(reasons.values()) == ["contradicts its label"] * 2 + ["uncertain"] * 2


def test_mistakes_and_review_share_small_thumbnails(tmp_path):
    folder = RunFolder(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 60, 240, 3), dtype=np.uint8)
    inputs = ImageArrays(pixels, [*"abcde", "\udcff.jpg"])  # the last is not valid UTF-8
    ends = np.array([0, 0, 1, 1, 2, 0]), np.array([0, 1, 2, 2, 2, 1])
    evaluation = make_evaluation(RANKS, PREDICTED, PROBA, inputs.names, ends)
    head, preparation = heads.create("arc", 3, 6), ImagePreprocessing(48, 48)
    model = SimpleNamespace(head=head, description=SimpleNamespace(inputs=preparation))
    most = ReportConfig(mistakes=10, review=3)
    write_report_data(folder, evaluation, inputs, torch.arange(6), model, most)
    mistakes, review = (json.loads(p.read_text()) for p in (folder.mistakes, folder.review))
    # the largest error first, then the least probable label
    assert [record["name"] for record in mistakes] == ["d", "b", "\udcff.jpg", "c"]
    assert mistakes[0] == {
        **{"name": "d", "true": "low", "predicted": "high", "image": "000003.jpg"},
        "probabilities": [0.1, 0.1, 0.8],
    }
    assert all({"reason", "low", "high"} <= set(record) for record in review)
    images = {record["image"] for record in (*mistakes, *review)}
    assert {path.name for path in folder.thumbnails.iterdir()} == images
    with Image.open(folder.thumbnails / "000003.jpg") as image:
        assert (image.format, image.size) == ("JPEG", (LONGER_SIDE, LONGER_SIDE // 4))


def test_the_cells_of_a_row_are_those_of_the_table():
    cells = {"size": ["1.5", "", "2"], "colour": ["red", "blue", "green"], "n": ["1", "2", "3"]}
    frame = pd.DataFrame(cells)
    encoding = TableEncoding.fit(frame, np.array([0, 1]))
    rows = Rows(encoding.apply(frame), ["a", "b", "c"], encoding)
    assert [read_cells(rows, index) for index in range(3)] == [
        {"size": 1.5, "colour": "red", "n": 1.0},
        {"size": None, "colour": "blue", "n": 2.0},
        {"size": 2.0, "colour": None, "n": 3.0},
    ]
