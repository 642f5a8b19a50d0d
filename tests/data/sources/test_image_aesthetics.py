import math
from statistics import median

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data.sources.image_aesthetics import read_image_aesthetics

TABLE = "beauty-icwsm15-dataset.tsv"
HEADER = "#flickr_photo_id\tcategory\tbeauty_scores"
CATEGORIES = ("nature", "animals", "people", "urban")


def make(root, rows, files=None):
    """Write the table, and an image for each row or for those named."""
    lines = [HEADER, *("\t".join(map(str, row)) for row in rows)]
    (root / TABLE).write_text("\n".join(lines) + "\n")
    (root / "img_files").mkdir()
    for number in [row[0] for row in rows] if files is None else files:
        Image.new("RGB", (5, 5)).save(root / "img_files" / f"{number}.jpg")
    return root


def rows_of(each, categories=CATEGORIES):
    return [
        (1000 * c + i, category, ",".join([str(i % 5 + 1)] * 5))
        for c, category in enumerate(categories)
        for i in range(each)
    ]


def by_name(dataset):
    return {
        part: {dataset.inputs.names[i] for i in indices}
        for part, indices in dataset.splits.by_name().items()
    }


def test_the_rank_is_the_integer_part_of_the_median_minus_one(tmp_path):
    rng = np.random.default_rng(0)
    scores = [rng.integers(1, 6, rng.integers(5, 13)).tolist() for _ in range(60)]
    make(tmp_path, [(i, "nature", ",".join(map(str, each))) for i, each in enumerate(scores)])
    dataset = read_image_aesthetics(tmp_path)
    for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True):
        assert rank == math.floor(median(scores[int(name.removesuffix(".jpg"))])) - 1


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_category_is_a_data_set_of_its_own(tmp_path, category):
    make(tmp_path, rows_of(41))
    dataset = data.read("image-aesthetics", tmp_path, category=category)
    assert {part: len(names) for part, names in by_name(dataset).items()} == {
        "train": 29,
        "validation": 3,
        "test": 9,
    }
    first = 1000 * CATEGORIES.index(category)
    assert set(dataset.inputs.names) == {f"{first + i}.jpg" for i in range(41)}
    assert all(
        int(name.removesuffix(".jpg")) % 1000 % 5 == rank
        for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True)
    )
    assert dataset.classes[0] == "unacceptable"
    assert dataset.classes[4] == "exceptional"
    assert dataset.notes == ()
    assert dataset.inputs.load(0).shape == (5, 5, 3)


def test_five_partitions_all_different_each_always_the_same_in_any_order_of_lines(tmp_path):
    rows = rows_of(60)
    make(tmp_path, rows)
    drawn = [by_name(read_image_aesthetics(tmp_path, partition=p)) for p in range(5)]
    assert len({frozenset(parts["test"]) for parts in drawn}) == 5
    (tmp_path / TABLE).write_text(
        "\n".join([HEADER, *("\t".join(map(str, row)) for row in rows[::-1])])
    )
    assert by_name(read_image_aesthetics(tmp_path, partition=4)) == drawn[4]
    with pytest.raises(ValueError, match="partitions 0…4, got 5"):
        data.read("image-aesthetics", tmp_path, 5)


def test_missing_photographs_are_left_out_and_counted(tmp_path):
    rows = rows_of(20)
    make(tmp_path, rows, files=[row[0] for row in rows if row[0] not in (3, 4, 2005)])
    dataset = read_image_aesthetics(tmp_path)
    assert len(dataset.inputs) == 18
    assert sum(len(part) for part in dataset.splits.by_name().values()) == 18
    assert dataset.notes == (
        "Photographs whose file is missing are not used: "
        "2 of 20 nature, 0 of 20 animals, 1 of 20 people, 0 of 20 urban.",
    )


def test_a_class_that_training_lacks_is_noted_and_stays(tmp_path):
    make(tmp_path, [(i, "nature", "2,2,3,4,4") for i in range(20)])
    dataset = read_image_aesthetics(tmp_path)
    assert len(dataset.classes) == 5
    (note,) = dataset.notes
    assert note.endswith("that are unacceptable or flawed or professional or exceptional.")
    dataset.check_complete()


def test_a_photograph_counts_once_in_a_category(tmp_path):
    twice = [(7, "nature", "1,1,1"), (7, "nature", "5,5,5"), (7, "urban", "2,2,2")]
    make(tmp_path, [*rows_of(5, ("nature",))[:4], *twice])
    dataset = read_image_aesthetics(tmp_path)
    assert sorted(dataset.inputs.names) == ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "7.jpg"]
    assert dataset.notes[0] == "1 lines repeat a photograph; the last is used."


@pytest.mark.parametrize("place", ["", "beauty", f"beauty/{TABLE}"])
def test_the_table_may_be_pointed_at_or_lie_one_folder_below(tmp_path, place):
    (tmp_path / "beauty").mkdir()
    make(tmp_path / "beauty", rows_of(20))
    assert len(read_image_aesthetics(tmp_path / place).inputs) == 20


@pytest.mark.parametrize(
    "row",
    ["x1\tnature\t1,2,3", "1\tcity\t1,2,3", "1\tnature\t1,6,3", "1\tnature\t", "1\tnature"],
)
def test_a_malformed_line_is_named(tmp_path, row):
    make(tmp_path, rows_of(5))
    with (tmp_path / TABLE).open("a") as stream:
        stream.write(row + "\n")
    with pytest.raises(ValueError, match=rf"Line 22 of .*{TABLE} is not"):
        read_image_aesthetics(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=f"does not contain the table of the scores, {TABLE}"
    ):
        read_image_aesthetics(tmp_path)
    make(tmp_path, rows_of(5, ("nature",)))
    with pytest.raises(FileNotFoundError, match="no images of urban"):
        read_image_aesthetics(tmp_path, category="urban")
    with pytest.raises(ValueError, match="category must be a known name, got 'natur'"):
        read_image_aesthetics(tmp_path, category="natur")
    (tmp_path / TABLE).write_text("id\tcategory\n")
    with pytest.raises(ValueError, match="has no column #flickr_photo_id"):
        read_image_aesthetics(tmp_path)
    (tmp_path / "img_files").rename(tmp_path / "images")
    with pytest.raises(FileNotFoundError, match="the folder of the photographs, img_files"):
        read_image_aesthetics(tmp_path)
