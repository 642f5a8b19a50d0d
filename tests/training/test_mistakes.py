"""The worst mistakes of a model."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from layline.data.base import Dataset, Partition
from layline.data.images.files import ImageArrays
from layline.data.table import Rows, TableEncoding
from layline.training.mistakes import LONGER_SIDE, cells_of, worst, write_mistakes

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
        partition=Partition(first, none, last),
    )


def test_the_largest_error_comes_first_then_the_least_probable_truth():
    assert worst(RANKS, PREDICTED, PROBA, 10).tolist() == [3, 1, 5, 2]
    assert worst(RANKS, PREDICTED, PROBA, 2).tolist() == [3, 1]


def test_what_is_right_is_no_mistake():
    assert worst(RANKS, RANKS, PROBA, 10).tolist() == []


def written(dataset, folder, predicted=PREDICTED, most=10):
    file, pictures = folder / "mistakes.json", folder / "mistakes"
    write_mistakes(file, pictures, dataset, predicted, PROBA, most, None)
    return json.loads(file.read_text()), pictures


def test_each_is_written_with_its_classes_and_probabilities(dataset, tmp_path):
    records, pictures = written(dataset, tmp_path)
    assert [record["name"] for record in records] == ["g", "e", "\udcff.jpg", "f"]
    assert records[0] | {"probabilities": None} == {
        **{"name": "g", "true": "low", "predicted": "high", "image": "000.jpg"},
        "probabilities": None,
    }
    assert records[0]["probabilities"] == [0.1, 0.1, 0.8]
    assert {path.name for path in pictures.iterdir()} == {f"00{i}.jpg" for i in range(4)}


def test_a_thumbnail_is_small_and_keeps_its_ratio(dataset, tmp_path):
    _, pictures = written(dataset, tmp_path)
    with Image.open(pictures / "000.jpg") as image:
        assert (image.format, image.size) == ("JPEG", (LONGER_SIDE, LONGER_SIDE // 4))


def test_thumbnails_of_an_earlier_test_are_removed(dataset, tmp_path):
    written(dataset, tmp_path)
    records, pictures = written(dataset, tmp_path, most=1)
    assert len(records) == 1
    assert [path.name for path in pictures.iterdir()] == ["000.jpg"]


def test_a_model_without_mistakes_has_an_empty_list(dataset, tmp_path):
    records, pictures = written(dataset, tmp_path, predicted=RANKS)
    assert records == []
    assert not pictures.exists()


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
