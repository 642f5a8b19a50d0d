import sys

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
    assert [len(part) for part in data.splits.by_name().values()] == [21, 3, 6]
    data.check_complete()


@pytest.mark.parametrize(
    "classes", ["grade 10,Grade 1,grade 9", ["grade 10", "Grade 1", "grade 9"]]
)
def test_the_order_may_be_given(flat, classes):
    data = read_folder(flat, classes=classes)
    assert data.classes == ("grade 10", "Grade 1", "grade 9")
    assert "The classes are in the order given" in data.notes


def test_the_partition_is_the_seed(flat):
    first, again, other = (read_folder(flat, partition=p).splits.test for p in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_ready_made_split_is_taken(ready):
    data = read_folder(ready, classes="low,high", partition=3)
    for folder, part in zip(("Train", "val", "test"), data.splits.by_name().values(), strict=True):
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


def patients(root, count=12):
    for name in ("1-low", "2-high"):
        put(root, name, count)
        for file in sorted((root / name).iterdir()):
            file.rename(file.with_name(f"p{int(file.stem) // 3}_{file.stem}.png"))
    return root


def test_a_pattern_keeps_the_images_of_a_patient_in_one_part(tmp_path):
    data = read("folder", patients(tmp_path, 30), group_by=r"p(\d+)_")
    homes = [{data.groups[i] for i in part} for part in data.splits.by_name().values()]
    assert sum(map(len, homes)) == len({*data.groups}) == 10
    assert "10 groups in 60 images, the largest has 6" in data.notes
    assert not any("look like groups" in note for note in data.notes)
    with pytest.raises(ValueError, match=r"such as 1-low/p0_0\.png, .*: change it, or move them"):
        read_folder(tmp_path, group_by="patient")


def test_names_of_patients_are_told_where_they_are_not_used(tmp_path):
    notes = " ".join(read_folder(patients(tmp_path)).notes)
    assert r"--group-by '\bp\d+' keeps the images of each in one part" in notes


def test_files_that_are_not_read_are_counted_by_their_endings(flat, monkeypatch):
    for name in ("a.HEIC", "b.heic", "c.pdf", "d", ".hidden", "Thumbs.db", "e.nii.gz"):
        (flat / "grade 9" / name).write_bytes(b"")
    (flat / "README.txt").write_text("outside of the classes")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = read_folder(flat)
    assert data.notes[-1] == (
        "5 files skipped: 2 .heic, 1 .nii.gz, 1 .pdf, 1 without an ending; "
        "pip install layline[heic] reads .heic; save .nii.gz as PNG or TIFF"
    )
    assert len(data.inputs) == 30


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.heic", r"it has 2 \.heic files; pip install layline\[heic\] reads \.heic$"),
        ("a.dcm", r"it has 2 \.dcm files; save \.dcm as PNG or TIFF$"),
        ("a.pdf", r"it has 2 \.pdf files; add some, or remove the folder$"),
    ],
)
def test_a_class_without_images_says_what_it_has_instead(flat, monkeypatch, name, message):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (flat / "grade 11").mkdir()
    for copy in (name, "b" + name):
        (flat / "grade 11" / copy).write_bytes(b"")
    with pytest.raises(ValueError, match=r"got none in .*grade 11: " + message):
        read_folder(flat)


def test_the_name_of_a_class_is_unicode(tmp_path):
    put(tmp_path, "1-low", 5)
    put(tmp_path, "2-h\udcff", 5)
    with pytest.raises(ValueError, match=r"folder names must be Unicode, got '2-h.udcff': rename"):
        read_folder(tmp_path)
