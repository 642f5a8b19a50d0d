import tarfile

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data.sources.adience import read_adience

PARTS = ("train", "val", "test")


def line(album, photo, label):
    return f"{album}@N00/landmark_aligned_face.{album}.{photo}_o.jpg {label}"


def official_lists(fold):
    """Four albums in training and validation, one of the fold in test; every age group in each."""
    albums = [album for album in range(5) if album != fold]
    return {
        "train": [line(album, f"t{k}", k) for album in albums for k in range(8)],
        "val": [line(album, f"v{k}", k) for album in albums for k in range(8)],
        "test": [line(fold, f"{part}{k}", k) for part in "tv" for k in range(8)],
    }


def write_lists(folder, change=None):
    for fold in range(5):
        place = folder / f"test_fold_is_{fold}"
        place.mkdir(parents=True)
        lists = official_lists(fold)
        if change is not None:
            change(lists)
        for part, lines in lists.items():
            (place / f"age_{part}.txt").write_text("\n".join(lines) + "\n")
        (place / "age_train_subset.txt").write_text("not read\n")
    return folder


@pytest.fixture
def root(tmp_path):
    for album in range(5):
        (tmp_path / "aligned" / f"{album}@N00").mkdir(parents=True)
        for photo in (f"{part}{k}" for part in "tv" for k in range(8)):
            path = tmp_path / "aligned" / line(album, photo, 0).split()[0]
            Image.new("RGB", (6, 6)).save(path)
    write_lists(tmp_path / "adience")
    return tmp_path


def listed(dataset, part):
    return [f"{dataset.inputs.names[i]} {dataset.ranks[i]}" for i in dataset.splits.by_name()[part]]


@pytest.mark.parametrize("fold", range(5))
def test_a_fold_is_what_its_lists_say(root, fold):
    dataset = data.read("adience", root, fold)
    expected = official_lists(fold)
    assert listed(dataset, "train") == expected["train"]
    assert listed(dataset, "validation") == expected["val"]
    assert listed(dataset, "test") == expected["test"]
    assert dataset.classes == ("0-2", "4-6", "8-13", "15-20", "25-32", "38-43", "48-53", "60+")
    dataset.check_complete()


def test_nobody_in_test_is_seen_before_and_every_album_is_tested_once(root):
    tested = []
    for fold in range(5):
        dataset = read_adience(root, partition=fold)
        albums = np.array([name.partition("/")[0] for name in dataset.inputs.names])
        parts = {name: set(albums[part]) for name, part in dataset.splits.by_name().items()}
        assert not parts["test"] & (parts["train"] | parts["validation"])
        tested += parts["test"]
    assert sorted(tested) == [f"{album}@N00" for album in range(5)]


def test_images_are_found_below_aligned(root):
    assert read_adience(root).inputs.load(0).shape == (6, 6, 3)
    lists = root / "adience"
    assert read_adience(root / "aligned", lists=lists).inputs.load(0).shape == (6, 6, 3)


def test_lists_may_lie_elsewhere_or_in_an_archive(root, tmp_path_factory):
    elsewhere = write_lists(tmp_path_factory.mktemp("lists"))
    archive = elsewhere / "folds.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(elsewhere, arcname="adience", filter=lambda m: m if "gz" not in m.name else None)
    expected = listed(read_adience(root, partition=2), "train")
    for lists in (elsewhere, str(archive)):
        assert listed(read_adience(root, partition=2, lists=lists), "train") == expected


def test_what_validation_shares_with_training_is_said(root):
    (note,) = read_adience(root).notes
    assert note.startswith("4 of the 4 folders of validation are also in training, and 0 images")


def test_repeated_lines_stay_and_are_counted(root, tmp_path_factory):
    def repeat(lists):
        lists["train"] += [lists["train"][0], lists["val"][0]]
        lists["test"] += [lists["test"][0]] * 2

    lists = write_lists(tmp_path_factory.mktemp("lists"), repeat)
    dataset = read_adience(root, lists=lists)
    assert [len(part) for part in dataset.splits.by_name().values()] == [34, 32, 18]
    assert "1 images are in both lists; none is in test" in dataset.notes[0]
    assert dataset.notes[1].endswith("image: 1 in train, 0 in validation, 2 in test.")


@pytest.mark.parametrize("part", ["train", "val"])
def test_lists_that_mix_people_are_refused(root, tmp_path_factory, part):
    def mix(lists):
        lists[part].append(lists["test"][0].replace("_t0_", "_new_"))

    lists = write_lists(tmp_path_factory.mktemp("lists"), mix)
    with pytest.raises(ValueError, match=r"1 folders are both in .* such as 0@N00"):
        read_adience(root, lists=lists)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("only/one.jpg", r"Line 3 of .*age_train.txt is not folder/file and a label"),
        ("flat.jpg 3", r"Line 3 of .* is not folder/file and a label: 'flat.jpg 3'"),
        ("../up/a.jpg 3", r"Line 3 of .* is not folder/file and a label"),
        ("/elsewhere/a.jpg 3", r"Line 3 of .* is not folder/file and a label"),
        ("a/b.jpg 8", r"label in line 3 of .*age_train.txt must be in 0…7"),
        ("a/b.jpg -1", r"label in line 3 of .* must be in 0…7"),
        ("a/b.jpg (25, 32)", r"label in line 3 of .* must be in 0…7"),
    ],
)
def test_a_malformed_line_is_named(root, tmp_path_factory, bad, message):
    lists = write_lists(
        tmp_path_factory.mktemp("lists"), lambda parts: parts["train"].insert(2, bad)
    )
    with pytest.raises(ValueError, match=message):
        read_adience(root, lists=lists)


def test_empty_lines_are_passed_over(root, tmp_path_factory):
    lists = write_lists(tmp_path_factory.mktemp("lists"), lambda parts: parts["val"].insert(2, ""))
    assert len(read_adience(root, lists=lists).splits.validation) == 32


def test_what_is_missing_is_named(root, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not contain test_fold_is_0/age_train.txt"):
        read_adience(root / "aligned")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read_adience(root, lists=tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="has no folder 'aligned'"):
        read_adience(root / "adience")
    (root / "adience" / "test_fold_is_1" / "age_val.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"does not contain test_fold_is_1/age_val.txt"):
        read_adience(root, partition=1)


def test_an_archive_that_is_none_is_named(root, tmp_path):
    (tmp_path / "folds.tar.gz").write_bytes(b"\x1f\x8bjunk")
    with pytest.raises(ValueError, match="neither a folder nor an intact archive"):
        read_adience(root, lists=tmp_path / "folds.tar.gz")
