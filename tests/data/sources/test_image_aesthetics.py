import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from layline import data
from layline.data.sources.image_aesthetics import _draw, _photograph, read_image_aesthetics

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


@given(st.lists(st.integers(1, 5), min_size=5, max_size=12))
def test_the_rank_is_the_integer_part_of_the_median_minus_one(scores):
    photograph = _photograph("7", "nature", ",".join(map(str, scores)))
    assert photograph.rank == math.floor(median(scores)) - 1
    assert 0 <= photograph.rank <= 4


@given(st.integers(1, 5000), st.integers(0, 4))
def test_a_twentieth_and_a_fifth_are_held_out_rounded_up(count, seed):
    drawn = _draw(count, np.random.default_rng(seed))
    assert 20 * (len(drawn.validation) - 1) < count <= 20 * len(drawn.validation)
    held_out = len(drawn.validation) + len(drawn.test)
    assert len(drawn.test) == min(-(-count // 5), count - len(drawn.validation))
    assert len(drawn.train) == max(count - held_out, 0)
    assert sorted(np.concatenate(list(drawn.by_name().values()))) == list(range(count))


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
    with pytest.raises(ValueError, match="partition must be in 0…4, got 5"):
        data.read("image-aesthetics", tmp_path, 5)


def test_missing_photographs_are_left_out_and_counted(tmp_path):
    rows = rows_of(20)
    make(tmp_path, rows, files=[row[0] for row in rows if row[0] not in (3, 4, 2005)])
    dataset = read_image_aesthetics(tmp_path)
    assert len(dataset.inputs) == 18
    assert sum(len(part) for part in dataset.splits.by_name().values()) == 18
    assert dataset.notes == (
        "Photographs whose file is missing were left out: "
        "2 of 20 nature, 0 of 20 animals, 1 of 20 people, 0 of 20 urban.",
    )


def test_a_class_that_training_lacks_is_noted_and_stays(tmp_path):
    make(tmp_path, [(i, "nature", "2,2,3,4,4") for i in range(20)])
    dataset = read_image_aesthetics(tmp_path)
    assert len(dataset.classes) == 5
    (note,) = dataset.notes
    assert note.endswith("that is unacceptable or flawed or professional or exceptional.")
    dataset.check_complete()


def test_a_photograph_counts_once_in_a_category(tmp_path):
    twice = [(7, "nature", "1,1,1"), (7, "nature", "5,5,5"), (7, "urban", "2,2,2")]
    make(tmp_path, [*rows_of(5, ("nature",))[:4], *twice])
    dataset = read_image_aesthetics(tmp_path)
    assert sorted(dataset.inputs.names) == ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "7.jpg"]
    assert dataset.notes[0] == "1 lines repeat a photograph; the last counts."


@pytest.mark.parametrize("place", ["", "beauty", f"beauty/{TABLE}"])
def test_the_table_may_be_pointed_at_or_lie_one_folder_below(tmp_path, place):
    (tmp_path / "beauty").mkdir()
    make(tmp_path / "beauty", rows_of(20))
    assert len(read_image_aesthetics(tmp_path / place).inputs) == 20


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x1\tnature\t1,2,3", "#flickr_photo_id must be a whole number, got 'x1'"),
        ("1\tcity\t1,2,3", "category must be a known name, got 'city'"),
        ("1\tnature\t1,6,3", r"beauty_scores must be numbers in 1…5 .* got '1,6,3'"),
        ("1\tnature\t", "beauty_scores must be numbers in 1…5"),
        ("1\tnature", "beauty_scores must be numbers in 1…5"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, row, message):
    make(tmp_path, rows_of(5))
    with (tmp_path / TABLE).open("a") as stream:
        stream.write(row + "\n")
    with pytest.raises(ValueError, match=rf"line 22 of .*{TABLE}: {message}"):
        read_image_aesthetics(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"root must hold {TABLE}, got"):
        read_image_aesthetics(tmp_path)
    make(tmp_path, rows_of(5, ("nature",)))
    with pytest.raises(FileNotFoundError, match="root must have images of urban, got none"):
        read_image_aesthetics(tmp_path, category="urban")
    with pytest.raises(ValueError, match="category must be a known name, got 'natur'"):
        read_image_aesthetics(tmp_path, category="natur")
    (tmp_path / TABLE).write_text("id\tcategory\n")
    with pytest.raises(ValueError, match="must have the column #flickr_photo_id, got"):
        read_image_aesthetics(tmp_path)
    (tmp_path / "img_files").rename(tmp_path / "images")
    with pytest.raises(FileNotFoundError, match="root must hold the folder img_files"):
        read_image_aesthetics(tmp_path)
