import numpy as np
import pytest
from PIL import Image

from layline.data import read
from layline.data.sources.folder import read_folder


def put(root, folder, count=1, start=0):
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        Image.new("RGB", (2, 2), (i, 0, 0)).save(root / folder / f"{i}.png")


@pytest.fixture
def flat(tmp_path):
    for name in ("grade 10", "grade 9", "Grade 1"):
        put(tmp_path, name, 10)
    return tmp_path


@pytest.fixture
def ready(tmp_path):
    for part, count in (("Train", 4), ("val", 1), ("test", 2)):
        for name in ("low", "high"):
            put(tmp_path, f"{part}/{name}", count)
    return tmp_path


def test_a_folder_is_a_class_and_numbers_give_the_order(flat):
    data = read("folder", flat)
    assert data.classes == ("Grade 1", "grade 9", "grade 10")
    assert data.notes[0] == "The folder names are in the order of the numbers in them"
    for name, rank in zip(data.inputs.names, data.ranks, strict=True):
        assert name.startswith(data.classes[rank] + "/")
    assert [len(part) for part in data.partition.parts().values()] == [21, 3, 6]
    data.check_complete()


@pytest.mark.parametrize(
    "classes", ["grade 10,Grade 1,grade 9", ["grade 10", "Grade 1", "grade 9"]]
)
def test_the_order_may_be_given(flat, classes):
    data = read_folder(flat, classes=classes)
    assert data.classes == ("grade 10", "Grade 1", "grade 9")
    assert "The classes are in the order given" in data.notes


def test_the_partition_is_the_seed(flat):
    first, again, other = (read_folder(flat, partition=p).partition.test for p in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_ready_made_split_is_taken(ready):
    data = read_folder(ready, classes="low,high", partition=3)
    for folder, part in zip(("Train", "val", "test"), data.partition.parts().values(), strict=True):
        assert {data.inputs.names[i].split("/")[0] for i in part} == {folder}
    assert np.bincount(data.ranks[data.partition.test]).tolist() == [2, 2]
    assert "The split is the one given, whatever the partition" in data.notes


def test_a_part_that_is_missing_is_taken_from_training(tmp_path):
    for part in ("train", "test"):
        put(tmp_path, f"{part}/low", 10)
        put(tmp_path, f"{part}/high", 10)
    data = read_folder(tmp_path)
    data.check_complete()
    assert any(note.startswith("No validation part was given") for note in data.notes)


def test_folders_inside_a_class_belong_to_it_and_what_is_outside_is_counted(flat):
    put(flat, "grade 9/patient 1", 2)
    put(flat, ".", 3)
    put(flat, "__MACOSX/grade 9", 1)
    put(flat, ".thumbnails", 1)
    data = read_folder(flat)
    assert len(data.inputs) == 32
    assert "grade 9/patient 1/0.png" in data.inputs.names
    assert any("were left out" in note for note in data.notes)


def test_a_class_may_be_called_test_if_it_is_listed(tmp_path):
    put(tmp_path, "control", 10)
    put(tmp_path, "test", 10)
    assert read_folder(tmp_path, classes="control,test").classes == ("control", "test")
    with pytest.raises(ValueError, match=r"got the folders test beside control: .* in classes"):
        read_folder(tmp_path)


def test_every_root_without_a_tree_is_answered_with_the_tree(tmp_path):
    tree = "expected is root/<class>/<image>"
    with pytest.raises(ValueError, match=f"two or more classes, got none: {tree}"):
        read_folder(tmp_path)
    put(tmp_path, ".", 2)
    with pytest.raises(ValueError, match=f"got none: {tree}"):
        read_folder(tmp_path)
    put(tmp_path, "only", 2)
    with pytest.raises(ValueError, match=f"got one, only: {tree}"):
        read_folder(tmp_path)
    with pytest.raises(ValueError, match=f"root must be a folder, got .*0.png: {tree}"):
        read_folder(tmp_path / "0.png")
    with pytest.raises(FileNotFoundError, match="root must exist"):
        read_folder(tmp_path / "none")


def test_folders_and_classes_have_to_agree(flat):
    with pytest.raises(ValueError, match=r"folders must be among the classes .*, got grade 9: add"):
        read_folder(flat, classes="Grade 1,grade 10")
    with pytest.raises(ValueError, match="must be folder names of the data, got 'grade 11'"):
        read_folder(flat, classes="Grade 1,grade 9,grade 10,grade 11")
    (flat / "grade 11").mkdir()
    with pytest.raises(ValueError, match=r"must have images, got none in .*grade 11"):
        read_folder(flat)


def test_parts_of_a_ready_made_split_have_the_same_classes(ready):
    (ready / "test/middle").mkdir()
    with pytest.raises(ValueError, match="test must have classes of Train only, got middle"):
        read_folder(ready)
    put(ready, "Train/middle")
    with pytest.raises(
        ValueError, match="val must have every class of Train, got no folder middle"
    ):
        read_folder(ready)
    put(ready, "val/middle")
    with pytest.raises(ValueError, match=r"must have images, got none in .*test/middle"):
        read_folder(ready)


def test_a_ready_made_split_has_each_part_once(ready):
    put(ready, "valid/low")
    with pytest.raises(ValueError, match="one train folder and at most one val and test, got"):
        read_folder(ready)


def test_a_ready_made_split_needs_training(tmp_path):
    put(tmp_path, "test/low")
    with pytest.raises(ValueError, match=r"one train folder .* got test"):
        read_folder(tmp_path)
