"""What a run records for its report: the plane, layouts, proxies, mistakes, what to review."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.special import softmax
from sklearn.decomposition import PCA

from layline import heads
from layline.data.dataset import Dataset, Splits
from layline.data.images import ImageArrays
from layline.data.preprocessing import ImagePreprocessing
from layline.data.table_encoding import Rows, TableEncoding
from layline.evaluation.evaluate import Evaluation
from layline.evaluation.predictions import Predictions
from layline.geometry import LAYOUTS
from layline.model.description import ModelDescription
from layline.training.config import ReportConfig
from layline.training.record import (
    LONGER_SIDE,
    Snapshot,
    cells_of,
    choose_samples,
    describe_collapse,
    explained_variance,
    plane_of,
    samples_to_review,
    take_snapshot,
    worst_mistakes,
    write_pictures,
    write_proxies,
)
from layline.training.run_folder import RunFolder

RNG = np.random.default_rng(0)


def rotation(dim):
    return np.linalg.qr(RNG.normal(size=(dim, dim)))[0]


def sample(dim, num_classes=5, count=120):
    """Backbone around proxies of their classes."""
    proxies = RNG.normal(size=(num_classes, dim))
    ranks = np.arange(count) % num_classes
    return proxies[ranks] + 0.3 * RNG.normal(size=(count, dim)), ranks, proxies


def layout_proxies(name, num_classes, dim):
    torch.manual_seed(0)
    return LAYOUTS[name](num_classes, dim).proxies().detach().numpy()


@pytest.mark.parametrize("with_proxies", [True, False])
@pytest.mark.parametrize("dim", [3, 4, 64])
def test_the_axes_are_orthonormal(dim, with_proxies):
    features, ranks, proxies = sample(dim)
    axes = plane_of(features, ranks, proxies if with_proxies else None)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)


def test_two_dimensions_are_shown_as_they_are():
    features, ranks, proxies = sample(2)
    axes = plane_of(features, ranks, proxies)
    np.testing.assert_array_equal(features @ axes.T, features)
    assert explained_variance(features, axes) == 1


def test_of_one_dimension_the_second_coordinate_is_zero():
    features, ranks, proxies = sample(1)
    points = features @ plane_of(features, ranks, proxies).T
    np.testing.assert_array_equal(points, np.c_[features, np.zeros(len(features))])


@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_a_line_is_drawn_as_a_line_in_equal_steps_from_left_to_right(num_classes):
    proxies = layout_proxies("linear", num_classes, 16)
    features = proxies[np.arange(40) % num_classes] + RNG.normal(size=(40, 16))
    places = proxies @ plane_of(features, np.arange(40) % num_classes, proxies).T
    steps = np.diff(places, axis=0)
    np.testing.assert_allclose(steps[:, 1], 0, atol=1e-6)
    np.testing.assert_allclose(steps[:, 0], np.linalg.norm(proxies[1]), rtol=1e-5)


def test_beside_a_line_the_second_axis_is_where_the_features_vary_most():
    features = RNG.normal(size=(300, 6)) * [9, 1, 1, 5, 1, 1]
    proxies = np.arange(4)[:, None] * np.eye(6)[0]
    _, second = plane_of(features, np.arange(300) % 4, proxies)
    rest = PCA(1, svd_solver="full").fit(features[:, 1:]).components_[0]
    assert second[0] == pytest.approx(0)
    assert abs(second[1:] @ rest) == pytest.approx(1)


@pytest.mark.parametrize("num_classes", [3, 4, 9])
def test_a_semicircle_is_drawn_as_one_upright(num_classes):
    proxies = layout_proxies("semicircular", num_classes, 32)
    features, ranks = RNG.normal(size=(50, 32)), np.arange(50) % num_classes
    places = proxies @ plane_of(features, ranks, proxies).T
    angles = np.pi - np.arange(num_classes) * np.pi / (num_classes - 1)
    np.testing.assert_allclose(places, np.c_[np.cos(angles), np.sin(angles)], atol=1e-5)


def test_without_proxies_it_is_that_of_the_principal_components():
    features, ranks, _ = sample(12)
    axes = plane_of(features, ranks, None)
    known = PCA(2, svd_solver="full").fit(features)
    np.testing.assert_allclose(np.abs(axes @ known.components_.T), np.eye(2), atol=1e-9)
    assert explained_variance(features, axes) == pytest.approx(
        known.explained_variance_ratio_.sum()
    )


@pytest.mark.parametrize("count", [20, 400])
def test_in_many_dimensions_it_shows_almost_as_much_as_the_principal_components(count):
    features, ranks, _ = sample(700, count=count)
    axes = plane_of(features, ranks, None)
    known = PCA(2, svd_solver="full").fit(features).explained_variance_ratio_.sum()
    assert explained_variance(features, axes) == pytest.approx(known, rel=1e-3)
    np.testing.assert_array_equal(axes, plane_of(features, ranks, None))


@pytest.mark.parametrize("with_proxies", [True, False])
def test_turning_everything_turns_only_the_plane(with_proxies):
    features, ranks, proxies = sample(7)
    turn = rotation(7)
    kept, turned = (proxies, proxies @ turn) if with_proxies else (None, None)
    before = features @ plane_of(features, ranks, kept).T
    after = (features @ turn) @ plane_of(features @ turn, ranks, turned).T
    np.testing.assert_allclose(after[:, 0], before[:, 0], atol=1e-9)
    signs = 1 if with_proxies else np.sign(after[0, 1] * before[0, 1])
    np.testing.assert_allclose(after[:, 1] * signs, before[:, 1], atol=1e-9)


@pytest.mark.parametrize("dim", [5, 600])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("with_proxies", [True, False])
def test_few_features_that_vary_nowhere_still_have_a_plane(count, with_proxies, dim):
    features, ranks = np.ones((count, dim), dtype=np.float32), np.zeros(count, dtype=int)
    proxies = np.zeros((3, dim)) if with_proxies else None
    axes = plane_of(features, ranks, proxies)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
    assert explained_variance(features, axes) == 1


def taken(method="hard-linear", dim=6, index=None):
    torch.manual_seed(0)
    head = heads.create(method, 4, dim)
    features, ranks = torch.randn(30, dim), torch.arange(30) % 4
    return take_snapshot(features, ranks, head.predict(features), head, index), features, head


@pytest.mark.parametrize("method", ["hard-linear", "classification"])
def test_it_comes_back_from_its_file(tmp_path, method):
    before, *_ = taken(method, index=torch.arange(30))
    before.save(tmp_path / "layouts" / "test.npz")
    after = Snapshot.load(tmp_path / "layouts" / "test.npz")
    for name, value in vars(before).items():
        np.testing.assert_array_equal(getattr(after, name), value)
    assert (after.proxies is None) == (method == "classification")


def test_the_same_one_has_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        taken()[0].save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_in_two_dimensions_it_is_exact():
    found, features, head = taken(dim=2)
    np.testing.assert_array_equal(found.points, features.numpy())
    np.testing.assert_array_equal(found.proxies, head.proxies().detach().numpy())
    assert found.explained == 1


@pytest.mark.parametrize("method", heads.HEADS)
def test_every_head_has_one(method):
    found, *_ = taken(method)
    assert found.points.shape == (30, 2)
    assert np.isfinite(found.points).all()
    assert 0 < found.explained <= 1


def test_all_samples_are_drawn_if_they_are_few():
    assert choose_samples(5, 5, seed=0).tolist() == [0, 1, 2, 3, 4]
    assert choose_samples(5, 0, seed=0).tolist() == []


def test_of_many_the_seed_chooses_some_in_their_order():
    first, again, other = (choose_samples(500, 20, seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() == sorted(set(first.tolist()))
    assert len(first) == 20
    assert first.tolist() != other.tolist()


def test_proxies_have_their_similarities_beside_what_they_are_held_to(tmp_path):
    _, _, head = taken("soft-poisson")
    write_proxies(tmp_path / "proxies.npz", head)
    with np.load(tmp_path / "proxies.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    gaps = ((found["proxies"][:, None] - found["proxies"]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found["q"], softmax(-np.log1p(gaps), axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["u"].sum(axis=1), 1, rtol=1e-6)
    assert found["u"].argmax(axis=1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("method", "arrays"),
    [("hard-linear", {"proxies", "q"}), ("proxy-anchor", {"proxies"}), ("coral", None)],
)
def test_what_a_head_does_not_have_is_not_written(tmp_path, method, arrays):
    path = tmp_path / "proxies.npz"
    write_proxies(path, heads.create(method, 4, 6))
    assert path.exists() == (arrays is not None)
    if arrays is not None:
        with np.load(path, allow_pickle=False) as found:
            assert set(found) == arrays


RANKS = np.array([0, 2, 1, 0, 2, 1])
PREDICTED = np.array([0, 0, 2, 2, 2, 0])
PROBA = np.array(
    [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0.0, 0.4, 0.6], [0.1, 0.1, 0.8], [0, 0, 1], [0.7, 0.3, 0]]
)


@pytest.fixture
def dataset():
    """Nine wide images, of which the last six are tested; one name is no UTF-8."""
    pixels = np.random.default_rng(0).integers(0, 256, (9, 60, 240, 3), dtype=np.uint8)
    first, last, none = np.arange(3), np.arange(3, 9), np.arange(0)
    return Dataset(
        inputs=ImageArrays(pixels, [*"abcdefgh", "\udcff.jpg"]),
        ranks=np.array([0, 1, 2, *RANKS]),
        classes=("low", "mid", "high"),
        splits=Splits(first, none, last),
    )


def test_the_largest_error_comes_first_then_the_least_probable_truth():
    assert worst_mistakes(RANKS, PREDICTED, PROBA, 10).tolist() == [3, 1, 5, 2]
    assert worst_mistakes(RANKS, PREDICTED, PROBA, 2).tolist() == [3, 1]


def test_what_is_right_is_no_mistake():
    assert worst_mistakes(RANKS, RANKS, PROBA, 10).tolist() == []


def written(dataset, folder, predicted=PREDICTED, mistakes=10, review=0, ranges=None):
    """Write the files of a report and return both lists and the folder of thumbnails."""
    run, test = RunFolder(folder), dataset.splits.test
    inputs, ranks = dataset.inputs.subset(test), torch.from_numpy(dataset.ranks[test])
    found = Predictions(torch.from_numpy(PROBA).log(), {"mode": torch.from_numpy(predicted)})
    tested = Evaluation({"decode": "mode"}, inputs.names, dataset.classes, ranks, found, ranges)
    preparation = ImagePreprocessing(16, 18)
    description = ModelDescription("convnet", "arc", 4, dataset.classes, preparation)
    report = ReportConfig(mistakes=mistakes, review=review)
    model = description.build()
    snapshot = take_snapshot(torch.randn(len(ranks), 4), ranks, ranks, model.head)
    write_pictures(run, tested, inputs, snapshot, model, report)
    lists = (json.loads(path.read_text()) for path in (run.mistakes, run.review))
    return *lists, run.thumbnails


def test_each_is_written_with_its_classes_and_probabilities(dataset, tmp_path):
    records, _, pictures = written(dataset, tmp_path)
    assert [record["name"] for record in records] == ["g", "e", "\udcff.jpg", "f"]
    assert records[0] | {"probabilities": None} == {
        **{"name": "g", "true": "low", "predicted": "high", "image": "000003.jpg"},
        "probabilities": None,
    }
    assert records[0]["probabilities"] == [0.1, 0.1, 0.8]
    assert {path.name for path in pictures.iterdir()} == {f"{i:06}.jpg" for i in (3, 1, 5, 2)}


def test_a_thumbnail_is_small_and_keeps_its_ratio(dataset, tmp_path):
    *_, pictures = written(dataset, tmp_path)
    with Image.open(pictures / "000003.jpg") as image:
        assert (image.format, image.size) == ("JPEG", (LONGER_SIDE, LONGER_SIDE // 4))


def test_thumbnails_of_an_earlier_test_are_removed(dataset, tmp_path):
    written(dataset, tmp_path)
    records, _, pictures = written(dataset, tmp_path, mistakes=1)
    assert len(records) == 1
    assert [path.name for path in pictures.iterdir()] == ["000003.jpg"]


def test_a_model_without_mistakes_has_an_empty_list(dataset, tmp_path):
    records, _, pictures = written(dataset, tmp_path, predicted=RANKS)
    assert records == []
    assert not pictures.exists()


def test_labels_that_are_contradicted_come_first_then_the_least_certain():
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
    reasons = samples_to_review(ranks, predicted, proba, 4)
    assert list(reasons) == [3, 1, 2, 4]
    assert list(reasons.values()) == ["contradicts its label"] * 2 + ["uncertain"] * 2
    assert list(samples_to_review(ranks, predicted, proba, 2)) == [3, 2]
    assert list(samples_to_review(ranks, predicted, proba, 10)) == [3, 1, 2, 4, 0]
    assert samples_to_review(ranks, predicted, proba, 0) == {}


def test_a_label_that_agrees_is_never_contradicted():
    reasons = samples_to_review(RANKS, RANKS, PROBA, 10)
    assert set(reasons.values()) == {"uncertain"}


def test_what_to_review_has_its_reason_and_its_range(dataset, tmp_path):
    ends = torch.tensor([0, 0, 1, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 2, 1])
    _, records, _ = written(dataset, tmp_path, review=10, ranges=ends)
    assert len(records) == 6
    by_name = {record["name"]: record for record in records}
    assert by_name["g"]["reason"] == "uncertain"
    assert (by_name["g"]["low"], by_name["g"]["high"]) == ("mid", "high")
    _, records, _ = written(dataset, tmp_path, review=10)
    assert not any({"low", "high"} & set(record) for record in records)


def test_a_mistake_that_is_to_be_reviewed_has_one_thumbnail(dataset, tmp_path):
    mistakes, review, pictures = written(dataset, tmp_path, review=3)
    named = {record["name"]: record["image"] for record in mistakes}
    both = [record for record in review if record["name"] in named]
    assert both
    assert all(record["image"] == named[record["name"]] for record in both)
    kept = {record["image"] for record in (*mistakes, *review)}
    assert {path.name for path in pictures.iterdir()} == kept


def test_the_cells_of_a_row_are_given_as_they_stood():
    cells = {"size": ["1.5", "", "2"], "colour": ["red", "blue", "green"], "n": ["1", "2", "3"]}
    frame = pd.DataFrame(cells)
    encoding = TableEncoding.fit(frame, np.array([0, 1]))
    rows = Rows(encoding.apply(frame), ["a", "b", "c"], encoding)
    assert [cells_of(rows, index) for index in range(3)] == [
        {"size": 1.5, "colour": "red", "n": 1.0},
        {"size": None, "colour": "blue", "n": 2.0},
        {"size": 2.0, "colour": None, "n": 3.0},
    ]


@pytest.mark.parametrize("name", heads.HEADS)
def test_no_head_is_warned_of_before_it_is_trained(name):
    assert describe_collapse(heads.create(name, 5, 8)) is None


@pytest.mark.parametrize("name", ["hard-linear", "elastic-linear"])
def test_proxies_that_come_together_are_noticed(name):
    head = heads.create(name, 5, 8)
    with torch.no_grad():
        head.layout.vectors *= 0.05 / head.layout.vectors.norm()
    assert describe_collapse(head).startswith("The proxies have come together, 0.05 apart, before")
    assert "--set head.options.norm=3" in describe_collapse(head)


def test_proxies_that_are_kept_apart_cannot_come_together():
    head = heads.create("hard-linear", 5, 8, norm=0.01)
    assert describe_collapse(head) is None
