"""Images in a folder per class."""

import numpy as np
import pytest
from PIL import Image

from layline.data import draw_splits, read


def put(root, folder, count=1):
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (2, 2), (i, 0, 0)).save(root / folder / f"{i}.png")


@pytest.fixture
def flat(tmp_path):
    for name in ("grade 10", "grade 9", "Grade 1"):
        put(tmp_path, name, 10)
    return tmp_path


@pytest.fixture
def ready(tmp_path):
    for split, count in (("Train", 8), ("val", 1), ("test", 2)):
        for name in ("low", "high"):
            put(tmp_path, f"{split}/{name}", count)
    return tmp_path


def test_a_folder_is_a_class_and_numbers_give_the_order(flat):
    dataset = read("folder", flat)
    assert dataset.classes == ("Grade 1", "grade 9", "grade 10")
    for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True):
        assert name.startswith(dataset.classes[rank] + "/")
    assert len(dataset.splits.train) == 0  # nothing is drawn yet
    splits = [draw_splits(dataset, seed).splits for seed in (1, 1, 2)]
    assert [len(index) for index in splits[0].by_name().values()] == [21, 3, 6]
    assert splits[0].test.tolist() == splits[1].test.tolist() != splits[2].test.tolist()
    half = draw_splits(read("folder", flat, test=0.5), 0)
    assert len(half.splits.test) == 15


@pytest.mark.parametrize(
    "classes", ["grade 10,Grade 1,grade 9", ["grade 10", "Grade 1", "grade 9"]]
)
def test_the_order_may_be_given(flat, classes):
    assert read("folder", flat, classes=classes).classes == ("grade 10", "Grade 1", "grade 9")


def test_a_given_split_is_used_and_a_missing_one_taken_from_training(ready):
    dataset = read("folder", ready, classes="low,high")
    splits = dataset.splits.by_name().values()
    for folder, index in zip(("Train", "val", "test"), splits, strict=True):
        assert {dataset.inputs.names[i].split("/")[0] for i in index} == {folder}
    assert np.bincount(dataset.ranks[dataset.splits.test]).tolist() == [2, 2]
    for name in ("low", "high"):
        (ready / "val" / name / "0.png").unlink()
        (ready / "val" / name).rmdir()
    (ready / "val").rmdir()
    splits = draw_splits(read("folder", ready), 0).splits
    assert [len(index) for index in splits.by_name().values()] == [14, 2, 4]


def test_folders_inside_a_class_belong_to_it_and_other_images_are_counted(flat):
    put(flat, "grade 9/deep/deeper", 2)
    Image.new("RGB", (2, 2)).save(flat / "outside.png")
    (flat / "grade 9" / "notes.pdf").touch()
    (flat / "grade 9" / ".hidden.png").touch()
    dataset = read("folder", flat)
    assert np.bincount(dataset.ranks).tolist() == [10, 12, 10]
    notes = " ".join(dataset.notes)
    assert "1 images outside the class folders" in notes
    assert "1 .pdf" in notes


def test_a_class_may_be_called_test_if_it_is_listed(tmp_path):
    put(tmp_path, "test", 5)
    put(tmp_path, "try", 5)
    assert read("folder", tmp_path, classes="try,test").classes == ("try", "test")
    with pytest.raises(ValueError, match=r"folders of splits \(test\) and others \(try\)"):
        read("folder", tmp_path)


@pytest.mark.parametrize(
    ("folders", "options", "message"),
    [
        ([], {}, "no class folders; at least two are needed"),
        (["one"], {}, "one class folder, one"),
        (["a", "b"], {"classes": "a,c"}, "classes lists 'c'"),
        (["a", "b", "c"], {"classes": "a,b"}, "does not list the folders c"),
        (["zebra", "apple"], {}, r"order .* is unknown. Give the classes"),
        (["1", "2"], {"class": "1,2"}, "option of folder must be a known name, got 'class'"),
        (["1", "2"], {"test": 2}, "must be below 1 together"),
        (["test/1", "test/2"], {}, "must have one for training"),
        (["train/1", "train/2", "training/1"], {}, "must have one for training"),
        (["train/1", "train/2", "val/1"], {}, "val has no folder for the classes 2"),
        (["train/1", "train/2", "val/1", "val/2", "val/3"], {}, "train does not have: 3"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path, folders, options, message):
    for folder in folders:
        put(tmp_path, folder, 10)
    with pytest.raises(ValueError, match=message):
        draw_splits(read("folder", tmp_path, **options), 0)


def test_a_root_that_is_no_folder_or_a_class_without_images_is_named(flat):
    with pytest.raises(ValueError, match=r"0\.png is not a folder. Expected root/<class>/<image>"):
        read("folder", flat / "grade 9" / "0.png")
    with pytest.raises(FileNotFoundError, match="absent does not exist"):
        read("folder", flat / "absent")
    with pytest.raises(ValueError, match="needs the folder or file"):
        read("folder")
    (flat / "grade 11").mkdir()
    (flat / "grade 11" / "scan.dcm").touch()
    with pytest.raises(ValueError, match=r"grade 11 has no images\. .* 1 \.dcm"):
        read("folder", flat)


def test_a_pattern_keeps_the_images_of_a_patient_in_one_split(tmp_path):
    for name in ("low", "high"):
        (tmp_path / name).mkdir()
        for i in range(30):
            path = tmp_path / name / f"patient{i // 3}_{i}.png"
            Image.new("RGB", (2, 2), (i, 0, 0)).save(path)
    assert any(r"'\bpatient\d+'" in note for note in read("folder", tmp_path).notes)
    dataset = draw_splits(read("folder", tmp_path, group_by=r"patient\d+"), 0)
    groups = np.array(dataset.groups)
    found = [{*groups[index]} for index in dataset.splits.by_name().values()]
    assert sum(map(len, found)) == len({*groups}) == 10
