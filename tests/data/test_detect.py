"""Detecting what a path contains, and columns of images, labels and groups."""

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
    """A list of images, with the images in its folder."""
    for name in ("a.jpg", "b.JPG"):
        put(tmp_path / "listed" / name)
    return write(tmp_path / "listed" / "labels.csv", "path,label", "a.jpg,low", "b.JPG,high")


def test_a_folder_per_class_is_detected_with_and_without_a_split(photos, tmp_path):
    write(photos / "notes.csv", "file,remark", "low/a.jpg,old")  # classes take precedence
    assert detect(photos).source == "folder"
    for split in ("train", "test"):
        put(tmp_path / "split" / split / "low" / "a.jpg")
        put(tmp_path / "split" / split / "high" / "deep" / "a.jpg")
    assert detect(tmp_path / "split")[:2] == ("folder", tmp_path / "split")


def test_lists_tables_arrays_and_workbooks_are_detected(listed, tmp_path):
    assert detect(listed)[:2] == detect(listed.parent)[:2] == ("csv", listed)
    frame = pd.read_csv(listed)
    frame.to_excel(listed.with_suffix(".xlsx"), index=False)
    listed.unlink()
    (listed.parent / "~$labels.xlsx").write_bytes(b"a lock of Excel")
    assert detect(listed.parent)[:2] == ("csv", listed.with_suffix(".xlsx"))
    with pd.ExcelWriter(tmp_path / "s.xlsx") as book:
        pd.DataFrame({"notes": ["…"]}).to_excel(book, sheet_name="about", index=False)
        frame.to_excel(book, sheet_name="images", index=False)
    assert detect(tmp_path / "s.xlsx", listed.parent).source == "table"
    assert detect(tmp_path / "s.xlsx", listed.parent, sheet="images").source == "csv"
    for suffix in ("csv", "tsv", "txt"):
        path = write(tmp_path / f"t.{suffix}", "age\tfile\tgrade", "3\tyes\t1", "4\tno\t2")
        assert detect(path).source == "table"
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "a.npz", x=np.zeros(1))
    assert detect(tmp_path / "arrays")[:2] == ("npz", tmp_path / "arrays" / "a.npz")


@pytest.mark.parametrize("header", ["file;grade", "x;y", "Image Name;anything"])
def test_the_columns_of_a_list_are_found(tmp_path, header):
    for i in range(12):
        put(tmp_path / "images" / f"{i}.png")
    path = write(tmp_path / "labels.tsv", header, *(f"{i}.png;{i % 2}" for i in range(12)))
    assert detect(path).source == "csv"
    dataset = data.read("csv", path)
    assert dataset.inputs.root == tmp_path / "images"
    assert dataset.ranks.tolist() == [0, 1] * 6
    notes = " ".join(dataset.notes)
    for name in header.split(";"):
        assert f"column {name!r}" in notes
    assert "start in the folder images" in notes


def test_missing_images_of_a_list_are_asked_for(listed, tmp_path):
    moved = write(tmp_path / "elsewhere" / "labels.csv", "path,label", "a.jpg,low")
    with pytest.raises(ValueError, match=r"such as a.jpg, do not exist. Set the option images"):
        detect(moved)
    assert detect(moved, images=listed.parent).source == "csv"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "a folder per class, .* has none of them"),
        (["a.jpg", "b.jpg"], "has none of them"),
        (["all/low/a.jpg", "all/high/a.jpg"], "Did you mean .*all"),
        (["a.csv", "b.csv"], r"found a.csv, b.csv. Name the file"),
        (["config.toml", "state/x"], "the folder of a run"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path, files, message):
    for name in files:
        write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        detect(tmp_path)
    with pytest.raises(ValueError, match="is none of them"):
        detect(write(tmp_path / "b.jpg"))


def test_the_name_of_a_source_takes_precedence_over_a_path(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    photos.rename("csv")
    name, root, note = find_source("csv", None, data.names())
    assert (name, root) == ("csv", None)
    assert "./csv" in note
    name, root, note = find_source("./csv", None, data.names())
    assert (name, str(root)) == ("folder", "csv")
    assert note == "Reading ./csv as folder: it has a folder of images per class."
    assert find_source("table", photos, data.names()) == ("table", photos, None)
    with pytest.raises(ValueError, match="leave out the root"):
        find_source("./csv", photos, data.names())
    for argument in ("nothing/here", "fold.csv", "qqqqq"):
        with pytest.raises(ValueError, match="neither a file, a folder nor the name of a source"):
            find_source(argument, None, data.names())


@pytest.mark.parametrize(
    ("cells", "suggested"),
    [
        ([i // 2 for i in range(12)], True),
        (range(12), False),  # each value once: there is nothing to keep together
        ([0, 1] * 6, False),  # too few for three splits
        (["a", "b", "c"] * 4, False),  # it repeats the labels
    ],
)
def test_a_column_that_looks_like_a_group_is_suggested(tmp_path, cells, suggested):
    def suggest(name, used=()):
        file = read_table_file(write(tmp_path / "t.csv", name, *map(str, cells)))
        return suggest_group_columns(file, used, ["x", "y", "z"] * 4)

    for name in ("patient", "PatientID", "subjects", "userid", "animal_id", "siteId", "case no"):
        assert len(suggest(name)) == suggested
    for name in ("age", "id", "liquid", "grid", "paid"):
        assert suggest(name) == []
    assert suggest("patient", {"patient"}) == []


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
