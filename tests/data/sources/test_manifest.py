"""A CSV or Excel file that lists images."""

import numpy as np
import openpyxl
import pytest
from PIL import Image

from layline.data import draw_splits, read


def write(folder, header, rows):
    path = folder / "list.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return path


def ten_each(labels=("2", "10")):
    return [f"{label}/{i}.jpg,{label}" for label in labels for i in range(10)]


def test_paths_and_labels_are_read_and_split(tmp_path):
    write(tmp_path, "path,label", ten_each())
    dataset = read("csv", tmp_path)
    assert dataset.classes == ("2", "10")
    assert dataset.inputs.root == tmp_path
    assert dataset.inputs.names[10] == "10/0.jpg"
    assert dataset.ranks.tolist() == [0] * 10 + [1] * 10
    splits = draw_splits(dataset, 0).splits
    assert [len(index) for index in splits.by_name().values()] == [14, 2, 4]


@pytest.mark.parametrize(
    "labels", [("1.0", "007"), ("None", "some"), ("no", "YES"), ("-1", "0"), ("1.25", "1.5")]
)
def test_labels_are_kept_as_they_are_written_and_ordered(tmp_path, labels):
    assert read("csv", write(tmp_path, "path,label", ten_each(labels))).classes == labels


def test_the_columns_and_the_folder_may_be_named(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    rows = [f"{i}.jpg,{i % 2},{i // 2},x" for i in range(20)]
    path = write(tmp_path, "where,7,who,note", rows)
    options = {"path": "where", "label": 7, "group": "who", "images": tmp_path / "elsewhere"}
    dataset = read("csv", path, **options)
    assert dataset.inputs.root == tmp_path / "elsewhere"
    assert dataset.groups == tuple(str(i // 2) for i in range(20))
    with pytest.raises(FileNotFoundError, match="absent, does not exist"):
        read("csv", path, **(options | {"images": tmp_path / "absent"}))
    with pytest.raises(ValueError, match=r"0\.5"):
        read("csv", path, label=0.5)


def test_a_given_split_is_used_and_groups_stay_together(tmp_path):
    words = ["train"] * 6 + ["val"] * 2 + ["TEST"] * 2
    rows = [f"{i}.jpg,{'ab'[i // 10]},{words[i % 10]}" for i in range(20)]
    dataset = read("csv", write(tmp_path, "path,label,split", rows), classes="b,a")
    assert [len(index) for index in dataset.splits.by_name().values()] == [12, 4, 4]
    rows = [f"p{i // 3}/{i}.jpg,{i % 2},{i // 3}" for i in range(60)]
    path = write(tmp_path, "path,label,group", rows)
    no_column = read("csv", path, group=None, group_by=r"p(\d+)/")
    assert no_column.groups == read("csv", path).groups
    dataset = draw_splits(no_column, 0)
    groups = np.array(dataset.groups)
    assert sum(len({*groups[index]}) for index in dataset.splits.by_name().values()) == 20
    with pytest.raises(ValueError, match="in column 'group' already"):
        read("csv", path, group_by=r"p\d+")


def test_repeated_rows_are_dropped_unless_they_contradict(tmp_path):
    rows = ten_each()
    dataset = read("csv", write(tmp_path, "path,label", [*rows, rows[0], "2\\1.jpg,2"]))
    assert len(dataset.inputs) == 20
    assert any("2 rows repeat an image" in note for note in dataset.notes)
    with pytest.raises(ValueError, match=r"more than one label: 2/0\.jpg"):
        read("csv", write(tmp_path, "path,label", [*rows, "2/0.jpg,10"]))


@pytest.mark.parametrize(
    ("header", "rows", "options", "message"),
    [
        ("path,label", ["a.jpg,1", "b.jpg,"], {}, "'label' has no value in row 3"),
        ("path,label", ["a.jpg,1", ",2"], {}, "'path' has no value in row 3"),
        ("path,label", ["a.jpg,1", "b.jpg,1"], {}, "At least two classes are needed"),
        ("path,label", ["a.jpg,x", "b.jpg,y"], {}, "order of the labels x, y is unknown"),
        ("path,label", ten_each(), {"classes": "2"}, "'10' in row 12 is not one of the classes"),
        ("path,label", ten_each(), {"label": "lable"}, "no column 'lable' .*Did you mean 'label'"),
        ("path,label,split", ["a.jpg,1,x", "b.jpg,2,x"], {}, "'x' is not a split"),
        (
            "path,label,split,group",
            ["a.jpg,1,train,p", "b.jpg,2,train,q", "c.jpg,1,test,p"],
            {},
            "The group 'p' is in the train split and in the test split",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_refused(tmp_path, header, rows, options, message):
    with pytest.raises(ValueError, match=message):
        read("csv", write(tmp_path, header, rows), **options)


def test_columns_and_suffixes_are_found(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(6):
        Image.new("RGB", (2, 2)).save(tmp_path / "images" / f"{i:03}.png")
    rows = [f"{i:03},{i % 2},{i // 2}" for i in range(6)]
    path = write(tmp_path, "id_code,diagnosis,patient", rows)
    with pytest.raises(ValueError, match="no column 'label'"):
        read("csv", path)
    dataset = read("csv", path, label="diagnosis")
    assert dataset.inputs.names[0] == "000.png"
    assert dataset.inputs.root == tmp_path / "images"
    notes = " ".join(dataset.notes)
    assert "column 'id_code'" in notes
    assert "Column 'patient' looks like a group" in notes
    Image.new("RGB", (2, 2)).save(tmp_path / "images" / "000.jpg")
    with pytest.raises(ValueError, match=r"'000' in row 2 may be any of 000.jpg, 000.png"):
        read("csv", path, label="diagnosis")


def test_a_workbook_is_a_list_like_any_other(tmp_path):
    book = openpyxl.Workbook()
    for row in (("path", "label"), *((f"{i}.jpg", i % 2) for i in range(4))):
        book.active.append(row)
    book.save(tmp_path / "list.xlsx")
    assert read("csv", tmp_path / "list.xlsx").ranks.tolist() == [0, 1, 0, 1]
