import numpy as np
import pandas as pd
import pytest
from PIL import Image

from layline import data
from layline.data.detect import (
    detect,
    find_source,
    suggest_group_columns,
    suggest_group_pattern,
)
from layline.data.tables import read_table_file


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2)).save(path)


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def photos(tmp_path):
    for name in ("low", "high"):
        put(tmp_path / "photos" / name / "a.jpg")
    return tmp_path / "photos"


@pytest.fixture
def listed(tmp_path):
    """A list of images, with the images beside it."""
    for name in ("a.jpg", "b.JPG"):
        put(tmp_path / "listed" / name)
    return write(tmp_path / "listed" / "labels.csv", "path,label", "a.jpg,low", "b.JPG,high")


def test_a_folder_per_class_is_detected_with_and_without_a_split(photos, tmp_path):
    assert detect(photos).source == "folder"
    for part in ("train", "test"):
        put(tmp_path / "split" / part / "low" / "a.jpg")
        put(tmp_path / "split" / part / "high" / "deep" / "a.jpg")
    found = detect(tmp_path / "split")
    assert (found.source, found.root) == ("folder", tmp_path / "split")


def test_classes_in_folders_win_over_a_table_beside_them(photos):
    write(photos / "notes.csv", "file,remark", "low/a.jpg,old")
    (photos / ".cache").mkdir()
    assert detect(photos).source == "folder"


def test_a_list_of_images_is_detected_by_itself_and_by_its_folder(listed):
    assert detect(listed).source == "csv"
    found = detect(listed.parent)
    assert (found.source, found.root) == ("csv", listed)


@pytest.mark.parametrize("header", ["file;grade", "x;y", "Image Name;anything"])
def test_the_columns_of_a_list_are_found_and_said(tmp_path, header):
    for i in range(12):
        put(tmp_path / "images" / f"{i}.png")
    lines = [f"{i}.png;{i % 2}" for i in range(12)]
    path = write(tmp_path / "labels.tsv", header, *lines)
    assert detect(path).source == "csv"
    dataset = data.read("csv", path)
    assert dataset.inputs.root == tmp_path / "images"
    assert dataset.ranks.tolist() == [0, 1] * 6
    notes = " ".join(dataset.notes)
    for name in header.split(";"):
        assert f"column {name!r}" in notes
    assert "start in the folder images" in notes


@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
def test_a_table_is_what_names_no_images(tmp_path, suffix):
    path = write(tmp_path / f"t.{suffix}", "age\tfile\tgrade", "3\tyes\t1", "4\tno\t2")
    assert detect(path).source == "table"
    path.rename(tmp_path / "t.csv")
    assert detect(tmp_path).source == "table"


def test_arrays_are_detected_by_their_file_and_by_its_folder(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(1))
    assert detect(tmp_path / "a.npz").source == "npz"
    assert detect(tmp_path).root == tmp_path / "a.npz"


def test_images_that_are_not_where_a_list_says_are_asked_for(listed, tmp_path):
    moved = write(tmp_path / "elsewhere" / "labels.csv", "path,label", "a.jpg,low")
    with pytest.raises(ValueError, match=r"such as a.jpg, do not exist. Set the option images"):
        detect(moved)
    assert detect(moved, images=listed.parent).source == "csv"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no images, no table and no npz file"),
        (["a.jpg", "b.jpg"], "images but no classes"),
        (["one/a.jpg"], "images of one class only, one"),
        (["all/low/a.jpg", "all/high/a.jpg"], "one folder. Did you mean .*all"),
        (["a.csv", "b.csv"], r"several files: a.csv, b.csv"),
        (["config.toml", "state/x"], "the folder of a run"),
    ],
)
def test_a_folder_that_is_nothing_is_one_sentence(tmp_path, files, message):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=message):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("name", "cure"), [("a.xls", "Save it as CSV"), ("a.jpg", "is none of them")]
)
def test_a_file_that_is_nothing_is_one_sentence(tmp_path, name, cure):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=cure):
        detect(tmp_path / name)


def test_the_name_of_a_source_wins_and_another_spelling_means_the_path(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    photos.rename("csv")
    name, root, sentence = find_source("csv", None, data.names())
    assert (name, root) == ("csv", None)
    assert "./csv" in sentence
    name, root, sentence = find_source("./csv", None, data.names())
    assert (name, str(root)) == ("folder", "csv")
    assert sentence == "Reading ./csv as folder: it has a folder of images per class."
    assert find_source("table", photos, data.names()) == ("table", photos, None)


def test_a_path_and_a_root_are_one_too_many(photos):
    with pytest.raises(ValueError, match="leave out the root"):
        find_source(str(photos), photos, data.names())


@pytest.mark.parametrize("argument", ["nothing/here", "fold.csv", "qqqqq"])
def test_what_is_neither_a_name_nor_there_is_one_sentence(argument):
    with pytest.raises(ValueError, match="neither a file, a folder nor the name of a source"):
        find_source(argument, None, data.names())


def test_images_without_their_endings_are_found_beside_the_list(tmp_path):
    for i in range(6):
        put(tmp_path / "train_images" / f"{i:03}.png")
    path = write(
        tmp_path / "train.csv", "id_code,diagnosis", *(f"{i:03},{i % 2}" for i in range(6))
    )
    found = detect(path)
    assert (found.source, found.why) == ("csv", "column 'id_code' names images")
    # numbers that happen to be names of images are no such column unless it is called so
    write(path, "age,diagnosis", *(f"{i:03},{i % 2}" for i in range(6)))
    assert detect(path).source == "table"
    # and a column that is called so needs images of that name
    write(path, "visit_id,diagnosis", *(f"v{i},{i % 2}" for i in range(6)))
    assert detect(path).source == "table"


def test_workbooks_are_detected_like_text(tmp_path, listed):
    frame = pd.read_csv(listed)
    frame.to_excel(listed.with_suffix(".xlsx"), index=False)
    assert detect(listed.with_suffix(".xlsx")).source == "csv"
    listed.unlink()
    (listed.parent / "~$labels.xlsx").write_bytes(b"a lock of Excel")
    assert detect(listed.parent).root == listed.with_suffix(".xlsx")
    frame.assign(path=[1, 2]).rename(columns={"path": "size"}).to_excel(tmp_path / "t.xlsx")
    assert detect(tmp_path / "t.xlsx").source == "table"
    with pd.ExcelWriter(tmp_path / "s.xlsx") as book:
        pd.DataFrame({"notes": ["…"]}).to_excel(book, sheet_name="about", index=False)
        frame.to_excel(book, sheet_name="images", index=False)
    assert detect(tmp_path / "s.xlsx", listed.parent).source == "table"
    assert detect(tmp_path / "s.xlsx", listed.parent, sheet="images").source == "csv"


def test_classes_of_images_that_cannot_be_read_are_a_folder_that_says_so(tmp_path):
    for name in ("1-low", "2-high"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.dcm").write_bytes(b"")
    assert detect(tmp_path).source == "folder"
    with pytest.raises(ValueError, match=r"1-low has no images. .*1 \.dcm. Save"):
        data.read("folder", tmp_path)


def test_a_list_of_images_that_are_not_read_is_a_list(tmp_path):
    (tmp_path / "a.dcm").write_bytes(b"")
    assert detect(write(tmp_path / "l.csv", "x,y", "a.dcm,1", "b.dcm,2")).source == "csv"


@pytest.mark.parametrize(
    ("cells", "splits", "message"),
    [
        ([i // 2 for i in range(12)], None, "'patient' looks like a group (6 values in 12 rows)."),
        ([i // 4 for i in range(12)], ["train"] * 5 + ["test"] * 7, "1 of its values occur in"),
        (range(12), None, None),  # each value once: there is nothing to keep together
        ([0, 1] * 6, None, None),  # too few for three splits
        (["a", "b", "c"] * 4, None, None),  # it repeats the labels
    ],
)
def test_a_column_that_looks_like_a_group_is_suggested(tmp_path, cells, splits, message):
    for name in ("age", "id", "liquid", "grid", "paid"):
        file = read_table_file(write(tmp_path / "t.csv", name, *map(str, cells)))
        assert suggest_group_columns(file, (), ["x", "y", "z"] * 4, splits) == []
    for name in ("Patient ID", "PatientID", "subjects", "userid", "animal_id", "siteId", "case no"):
        file = read_table_file(write(tmp_path / "t.csv", name, *map(str, cells)))
        notes = suggest_group_columns(file, (), ["x", "y", "z"] * 4, splits)
        assert len(notes) == (message is not None)
    file = read_table_file(write(tmp_path / "t.csv", "patient", *map(str, cells)))
    notes = suggest_group_columns(file, {"label"}, ["x", "y", "z"] * 4, splits)
    assert message is None or message in notes[0]
    assert suggest_group_columns(file, {"patient"}, ["x", "y", "z"] * 4, splits) == []


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["low/patient_{}/{}.png"], r"\bpatient_\d+"),
        (["low/P{}_{}.png"], r"\bP\d+"),
        (["low/subj-{}-{}.png"], r"\bsubj-\d+"),
        (["low/{}_{}.png"], None),  # a number may be anything
        (["low/IMG_{}_{}.png"], None),
        (["low/p{}{}.png"], None),  # every image has its own
        (["low/p{}_{}.png", "low/x{}_{}.png"], None),
    ],
)
def test_file_names_that_begin_like_patients_are_suggested(names, pattern):
    paths = [name.format(10 + i // 3, i) for name in names for i in range(30)]
    notes = suggest_group_pattern(paths)
    assert len(notes) == (pattern is not None)
    assert pattern is None or f"group_by to '{pattern}'" in notes[0]
