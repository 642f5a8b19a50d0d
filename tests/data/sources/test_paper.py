"""The data sets of the paper: their partitions are those of the protocol."""

import io
import math
import shutil
from statistics import median

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data.detect import list_images
from layline.data.sources import paper
from layline.data.sources.paper import (
    AGES,
    CATEGORIES,
    DECADES,
    read_adience,
    read_historical_color,
    read_image_aesthetics,
)

TREE = "HistoricalColor-ECCV2012/data/imgs/decade_database"
TABLE = "beauty-icwsm15-dataset.tsv"
HEADER = "#flickr_photo_id\tcategory\tbeauty_scores"


def jpeg(shade=0):
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (shade % 256, 0, 0)).save(stream, "JPEG")
    return stream.getvalue()


def by_name(dataset):
    return {
        split: {dataset.inputs.names[i] for i in index}
        for split, index in dataset.splits.by_name().items()
    }


def sizes_of(dataset):
    return [len(index) for index in dataset.splits.by_name().values()]


def make_decades(folder, each=265):
    for decade in DECADES:
        (folder / decade).mkdir(parents=True)
        for i in range(each):
            (folder / decade / f"img{i}.jpg").write_bytes(jpeg(i))
    return folder


@pytest.fixture(scope="module")
def decades(tmp_path_factory):
    """The whole tree; tests only read it."""
    root = tmp_path_factory.mktemp("historical")
    make_decades(root / TREE)
    return root


def test_every_decade_gives_210_5_and_50(decades):
    dataset = read_historical_color(decades)
    assert (dataset.classes, dataset.notes) == (DECADES, ())
    for index, each in zip(dataset.splits.by_name().values(), (210, 5, 50), strict=True):
        assert np.bincount(dataset.ranks[index]).tolist() == [each] * 5
    assert len(set.union(*by_name(dataset).values())) == 5 * 265
    for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True):
        assert name.startswith(DECADES[rank])


def test_ten_partitions_are_different_and_do_not_depend_on_the_order_of_files(decades, monkeypatch):
    drawn = [by_name(data.read("historical-color", decades, p)) for p in range(10)]
    assert len({frozenset(splits["test"]) for splits in drawn}) == 10
    monkeypatch.setattr(paper, "list_images", lambda folder: [list_images(folder)[0][::-1], []])
    for inner in (TREE, TREE.rpartition("/")[0]):
        assert by_name(read_historical_color(decades / inner, partition=3)) == drawn[3]
    with pytest.raises(ValueError, match="partitions 0…9, got 10"):
        data.read("historical-color", decades, 10)


def test_fewer_images_are_refused_unless_shares_are_wanted(tmp_path):
    with pytest.raises(FileNotFoundError, match="Unpack its archives"):
        read_historical_color(tmp_path)
    make_decades(tmp_path, each=53)
    with pytest.raises(ValueError, match=r"needs 265 images, got 1930s 53, .* Get the whole"):
        read_historical_color(tmp_path)
    dataset = read_historical_color(tmp_path, proportional=True)
    assert sizes_of(dataset) == [5 * 42, 5, 5 * 10]
    assert "not the published protocol" in dataset.notes[0]
    with pytest.raises(ValueError, match="proportional must be true or false, got 'yes'"):
        read_historical_color(tmp_path, proportional="yes")
    shutil.rmtree(tmp_path / "1970s")
    with pytest.raises(FileNotFoundError, match="1970s"):
        read_historical_color(tmp_path)


def test_a_surplus_file_that_is_no_image_is_left_out(decades, tmp_path):
    shutil.copytree(decades / TREE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "1940s" / "broken.jpg").write_bytes(b"junk")
    dataset = read_historical_color(tmp_path)
    assert by_name(dataset) == by_name(read_historical_color(decades))
    assert dataset.notes == ("1940s/broken.jpg cannot be decoded and is not used.",)
    (tmp_path / "1940s" / "broken.jpg").write_bytes(jpeg())
    dataset = read_historical_color(tmp_path)
    assert sum(sizes_of(dataset)) == 5 * 265
    assert "265 of each are used" in dataset.notes[0]


def face(album, photo, label):
    return f"{album}@N00/landmark_aligned_face.{album}.{photo}_o.jpg {label}"


def official_lists(fold):
    """Four albums in training and validation, one of the fold in test; every age group in each."""
    albums = [album for album in range(5) if album != fold]
    return {
        "train": [face(album, f"t{k}", k) for album in albums for k in range(8)],
        "val": [face(album, f"v{k}", k) for album in albums for k in range(8)],
        "test": [face(fold, f"{split}{k}", k) for split in "tv" for k in range(8)],
    }


def write_lists(folder, change=None):
    for fold in range(5):
        place = folder / f"test_fold_is_{fold}"
        place.mkdir(parents=True)
        lists = official_lists(fold)
        if change is not None:
            change(lists)
        for split, lines in lists.items():
            (place / f"age_{split}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    root = tmp_path_factory.mktemp("adience")
    for fold in range(5):
        for line in official_lists(fold)["test"]:
            path = root / "aligned" / line.split()[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg())
    write_lists(root / "folds")
    return root


def test_a_fold_is_what_its_lists_say_and_nobody_in_test_is_seen_before(faces):
    tested = []
    for fold in range(5):
        dataset = data.read("adience", faces, fold)
        lines = [
            f"{name} {rank}" for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True)
        ]
        expected = official_lists(fold)
        for lists, index in zip(expected.values(), dataset.splits.by_name().values(), strict=True):
            assert [lines[i] for i in index] == lists
        albums = {
            split: {n.partition("/")[0] for n in own} for split, own in by_name(dataset).items()
        }
        assert not albums["test"] & (albums["train"] | albums["validation"])
        tested += albums["test"]
        assert dataset.classes == AGES
        dataset.check_complete()
    assert sorted(tested) == [f"{album}@N00" for album in range(5)]
    assert read_adience(faces / "aligned", lists=faces / "folds").inputs.load(0).shape == (4, 4, 3)


def test_repeated_lines_stay(faces, tmp_path):
    def repeat(lists):
        lists["train"] += [lists["train"][0], "", lists["val"][0]]
        lists["test"] += [lists["test"][0]] * 2

    dataset = read_adience(faces, lists=write_lists(tmp_path, repeat))
    assert sizes_of(dataset) == [34, 32, 18]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("only/one.jpg", r"Line 3 of .*age_val.txt must be folder/file and a label"),
        ("a/b.jpg 8", r"Line 3 of .* a label in 0…7, got 'a/b.jpg 8'"),
        ("a/b.jpg (25, 32)", r"Line 3 of .* a label in 0…7"),
        ("0@N00/new.jpg 3", "0@N00 is both in test and elsewhere"),
    ],
)
def test_a_wrong_line_is_named(faces, tmp_path, bad, message):
    lists = write_lists(tmp_path, lambda lists: lists["val"].insert(2, bad))
    with pytest.raises(ValueError, match=message):
        read_adience(faces, lists=lists)


def make_table(root, rows, files=None):
    """Write the table, and an image for each row or for those named."""
    root.mkdir(exist_ok=True)
    lines = [HEADER, *("\t".join(map(str, row)) for row in rows)]
    (root / TABLE).write_text("\n".join(lines) + "\n")
    (root / "img_files").mkdir(exist_ok=True)
    for number in [row[0] for row in rows] if files is None else files:
        (root / "img_files" / f"{number}.jpg").write_bytes(jpeg())
    return root


def rows_of(each):
    return [
        (1000 * c + i, category, ",".join([str(i % 5 + 1)] * 5))
        for c, category in enumerate(CATEGORIES)
        for i in range(each)
    ]


def test_the_rank_is_the_integer_part_of_the_median_minus_one(tmp_path):
    rng = np.random.default_rng(0)
    scores = [rng.integers(1, 6, rng.integers(5, 13)).tolist() for _ in range(60)]
    rows = [(i, "nature", ",".join(map(str, each))) for i, each in enumerate(scores)]
    dataset = read_image_aesthetics(make_table(tmp_path, rows))
    for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True):
        assert rank == math.floor(median(scores[int(name.removesuffix(".jpg"))])) - 1


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_category_is_a_data_set_of_its_own(tmp_path, category):
    make_table(tmp_path / "beauty", rows_of(41))
    dataset = data.read("image-aesthetics", tmp_path, category=category)
    assert sizes_of(dataset) == [29, 3, 9]
    first = 1000 * CATEGORIES.index(category)
    assert set(dataset.inputs.names) == {f"{first + i}.jpg" for i in range(41)}
    assert dataset.notes == ()
    table = tmp_path / "beauty" / TABLE
    assert by_name(read_image_aesthetics(table, category=category)) == by_name(dataset)


def test_five_partitions_are_different_and_do_not_depend_on_the_order_of_lines(tmp_path):
    make_table(tmp_path, rows_of(60))
    drawn = [by_name(read_image_aesthetics(tmp_path, partition=p)) for p in range(5)]
    assert len({frozenset(splits["test"]) for splits in drawn}) == 5
    make_table(tmp_path, rows_of(60)[::-1])
    assert by_name(read_image_aesthetics(tmp_path, partition=4)) == drawn[4]


def test_missing_photographs_and_classes_are_noted(tmp_path):
    rows = [(i, "nature", "2,2,3,4,4") for i in range(20)]
    dataset = read_image_aesthetics(make_table(tmp_path, [*rows, rows[0]], files=range(2, 20)))
    assert len(dataset.inputs) == sum(sizes_of(dataset)) == 18
    assert dataset.notes[0] == "The files of 2 of 20 photographs are missing."
    assert dataset.notes[1].endswith("unacceptable or flawed or professional or exceptional.")
    dataset.check_complete()


@pytest.mark.parametrize(
    "row", ["x1\tnature\t1,2,3", "1\tcity\t1,2", "1\tnature\t1,6", "1\tnature"]
)
def test_a_malformed_line_is_named(tmp_path, row):
    make_table(tmp_path, rows_of(5))
    with (tmp_path / TABLE).open("a") as stream:
        stream.write(row + "\n")
    with pytest.raises(ValueError, match=rf"Line 22 of .*{TABLE} is not"):
        read_image_aesthetics(tmp_path)
