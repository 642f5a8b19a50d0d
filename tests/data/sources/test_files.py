"""The user's own data: class folders, lists of images, tables and npz files."""

import pickle

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from layline.data import KnownInputs, draw_splits, read


def put(root, folder, count=1, name="{}.png"):
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (2, 2), (i, 0, 0)).save(root / folder / name.format(i))


def write(folder, header, rows):
    path = folder / "list.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return path


def sizes_of(dataset):
    return [len(index) for index in dataset.splits.by_name().values()]


def groups_by_split(dataset):
    groups = np.array(dataset.groups)
    return [{*groups[index]} for index in dataset.splits.by_name().values()]


@pytest.fixture
def graded(tmp_path):
    for name in ("grade 10", "grade 9", "Grade 1"):
        put(tmp_path, name, 10)
    return tmp_path


def test_a_folder_is_a_class_and_numbers_give_the_order(graded):
    dataset = read("folder", graded)
    assert dataset.classes == ("Grade 1", "grade 9", "grade 10")
    for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True):
        assert name.startswith(dataset.classes[rank] + "/")
    assert len(dataset.splits.train) == 0  # nothing is drawn yet
    assert sizes_of(draw_splits(dataset, 0)) == [21, 3, 6]
    assert sizes_of(draw_splits(read("folder", graded, test=0.5), 0)) == [12, 3, 15]
    for classes in ("grade 10,Grade 1,grade 9", ["grade 10", "Grade 1", "grade 9"]):
        assert read("folder", graded, classes=classes).classes == ("grade 10", "Grade 1", "grade 9")


def test_a_given_split_is_used_and_a_missing_one_taken_from_training(tmp_path):
    for split, count in (("Train", 8), ("test", 2)):
        for name in ("low", "high"):
            put(tmp_path, f"{split}/{name}", count)
    dataset = read("folder", tmp_path)
    assert {dataset.inputs.names[i].split("/")[0] for i in dataset.splits.test} == {"test"}
    assert sizes_of(draw_splits(dataset, 0)) == [14, 2, 4]
    put(tmp_path, "val/low")  # a split may lack a class
    assert sizes_of(read("folder", tmp_path)) == [16, 1, 4]


def test_folders_inside_a_class_belong_to_it_and_other_images_are_counted(graded):
    put(graded, "grade 9/deep/deeper", 2)
    put(graded, "", 1)
    (graded / "grade 9" / "notes.pdf").touch()
    (graded / "grade 9" / ".hidden.png").touch()
    dataset = read("folder", graded)
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
        (["one"], {}, "At least two classes are needed"),
        (["a", "b"], {"classes": "a,c"}, "classes lists a, c, but .* classes a, b"),
        (["zebra", "apple"], {}, r"order .* is unknown. List the classes"),
        (["1", "2"], {"class": "1,2"}, "option of folder must be a known name, got 'class'"),
        (["1", "2"], {"test": 2}, "must be below 1 together"),
        (["test/1", "test/2"], {}, "no training split"),
        (["train/1", "train/2", "training/1"], {}, "several folders for one split"),
        (["train/1", "train/2", "val/3"], {}, "validation split has classes without training"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path, folders, options, message):
    for folder in folders:
        put(tmp_path, folder, 10)
    with pytest.raises(ValueError, match=message):
        draw_splits(read("folder", tmp_path, **options), 0)


def test_a_root_that_is_no_folder_or_a_class_without_images_is_named(graded):
    with pytest.raises(ValueError, match=r"0\.png is not a folder. Expected root/<class>/<image>"):
        read("folder", graded / "grade 9" / "0.png")
    (graded / "grade 11").mkdir()
    (graded / "grade 11" / "scan.dcm").touch()
    with pytest.raises(ValueError, match=r"grade 11 has no images\. .* 1 \.dcm"):
        read("folder", graded)


def test_a_pattern_keeps_the_images_of_a_patient_in_one_split(tmp_path):
    for name in ("low", "high"):
        for patient in range(10):
            put(tmp_path, name, 3, f"patient{patient}_{{}}.png")
    assert any(r"'\bpatient\d+'" in note for note in read("folder", tmp_path).notes)
    dataset = draw_splits(read("folder", tmp_path, group_by=r"patient\d+"), 0)
    assert "10 groups in 60 samples." in dataset.notes
    assert sum(map(len, groups_by_split(dataset))) == 10


def ten_each(labels=("2", "10")):
    return [f"{label}/{i}.jpg,{label}" for label in labels for i in range(10)]


@pytest.mark.parametrize("labels", [("2", "10"), ("1.0", "007"), ("None", "some")])
def test_paths_and_labels_of_a_list_are_kept_as_they_are_written(tmp_path, labels):
    write(tmp_path, "path,label", ten_each(labels))
    dataset = read("csv", tmp_path)
    assert (dataset.classes, dataset.inputs.root) == (labels, tmp_path)
    assert dataset.inputs.names[10] == f"{labels[1]}/0.jpg"
    assert dataset.ranks.tolist() == [0] * 10 + [1] * 10
    assert sizes_of(draw_splits(dataset, 0)) == [14, 2, 4]


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


def test_a_split_of_a_list_is_used_and_groups_stay_together(tmp_path):
    words = ["train"] * 6 + ["val"] * 2 + ["TEST"] * 2
    rows = [f"{i}.jpg,{'ab'[i // 10]},{words[i % 10]}" for i in range(20)]
    dataset = read("csv", write(tmp_path, "path,label,split", rows), classes="b,a")
    assert sizes_of(dataset) == [12, 4, 4]
    rows = [f"p{i // 3}/{i}.jpg,{i % 2},{i // 3}" for i in range(60)]
    path = write(tmp_path, "path,label,group", rows)
    dataset = read("csv", path, group=None, group_by=r"p(\d+)/")
    assert dataset.groups == read("csv", path).groups
    assert sum(map(len, groups_by_split(draw_splits(dataset, 0)))) == 20
    with pytest.raises(ValueError, match="in column 'group' already"):
        read("csv", path, group_by=r"p\d+")


@pytest.mark.parametrize(
    ("header", "rows", "options", "message"),
    [
        ("path,label", ["a.jpg,1", "b.jpg,"], {}, "'label' has no value in row 3"),
        ("path,label", ["a.jpg,x", "b.jpg,y"], {}, "order of the classes x, y is unknown"),
        ("path,label", ten_each(), {"classes": "2"}, "classes lists 2, but .* classes 2, 10"),
        ("path,label", ten_each(), {"label": "lable"}, "got 'lable': did you mean label"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused(tmp_path, header, rows, options, message):
    with pytest.raises(ValueError, match=message):
        read("csv", write(tmp_path, header, rows), **options)


def test_columns_and_suffixes_of_images_are_found(tmp_path):
    put(tmp_path, "images", 6, "{:03}.png")
    rows = [f"{i:03},{i % 2},{i // 2}" for i in range(6)]
    path = write(tmp_path, "id_code,diagnosis,patient", rows)
    with pytest.raises(ValueError, match="no column 'label'"):
        read("csv", path)
    dataset = read("csv", path, label="diagnosis")
    assert (dataset.inputs.root, dataset.inputs.names[0]) == (tmp_path / "images", "000.png")
    assert "column 'id_code'" in " ".join(dataset.notes)
    put(tmp_path, "images", 1, "000.jpg")
    with pytest.raises(ValueError, match=r"'000' may be 000.jpg, 000.png. Add the suffix"):
        read("csv", path, label="diagnosis")


def table(folder, header="age,sex,label", rows=None, **columns):
    rows = [f"{20 + i},{'fm'[i % 2]},{i % 3}" for i in range(30)] if rows is None else rows
    for name, cells in columns.items():
        header += f",{name}"
        rows = [f"{row},{cell}" for row, cell in zip(rows, cells, strict=True)]
    return write(folder, header, rows)


def load(path, seed=0, **options):
    return draw_splits(read("table", path, **options), seed)


def test_columns_become_numbers_and_labels_ranks(tmp_path):
    dataset = load(table(tmp_path))
    dataset.check_complete()
    assert dataset.classes == ("0", "1", "2")
    assert dataset.ranks.tolist() == [i % 3 for i in range(30)]
    assert dataset.inputs.encoding.columns == ("age", "sex=f", "sex=m")
    assert dataset.inputs.values[3].tolist() == [23, 0, 1]
    assert dataset.inputs.names[0] == "row 2"
    assert sizes_of(dataset) == [21, 3, 6]


def test_the_encoding_is_learned_on_the_training_rows(tmp_path):
    splits = ["test", *["train"] * 20, *["val"] * 6, *["test"] * 3]
    wards = ["z", *["a", "b"] * 14, "a"]
    dataset = load(table(tmp_path, size=["", *range(29)], ward=wards, split=splits))
    size = dataset.inputs.encoding.numeric[1]
    assert (size.name, size.median, size.indicator) == ("size", 9.5, False)
    assert dataset.inputs.values[0, [1, -2, -1]].tolist() == [9.5, 0, 0]
    assert "not in the training rows: 'z'" in dataset.notes[-1]


def test_a_model_knows_its_encoding_and_classes(tmp_path):
    trained = load(table(tmp_path))
    known = KnownInputs(trained.classes, trained.inputs.encoding)
    path = table(tmp_path, "age,sex,label,more", ["50,x,2,1", "60,f,2,2"])
    dataset = read("table", path, known=known)
    assert dataset.inputs.values.tolist() == [[50, 0, 0], [60, 1, 0]]
    assert dataset.ranks.tolist() == [2, 2]
    notes = " ".join(dataset.notes)
    assert "no samples of 0, 1" in notes
    assert "'more' is not one that the model was trained with" in notes
    with pytest.raises(ValueError, match="no column 'sex', which the model was trained with"):
        read("table", table(tmp_path, "age,label", ["1,1", "2,2"]), known=known)
    with pytest.raises(ValueError, match="does not know the classes 9"):
        read("table", table(tmp_path, "age,sex,label", ["1,f,9", "2,f,2"]), known=known)


@pytest.mark.parametrize("name", ["rank", "Grade", "score"])
def test_usual_names_of_label_columns_are_known(tmp_path, name):
    dataset = load(table(tmp_path, f"age,sex,{name}"))
    assert dataset.notes[0] == f"The labels are in column {name!r}."
    with pytest.raises(ValueError, match=rf"It may be {name} or "):  # it is not guessed
        load(table(tmp_path, f"age,{name},{'rating' if name == 'score' else 'RANK'}"))


def test_splits_groups_and_ids_are_not_inputs(tmp_path):
    groups = [i // 2 for i in range(30)]
    path = table(tmp_path, group=groups, id=["", *(f"p{i}" for i in range(1, 30))])
    dataset = load(path)
    assert dataset.inputs.encoding.names == ("age", "sex")
    assert list(dataset.inputs.names[:2]) == ["row 2", "p1"]
    assert dataset.groups == tuple(map(str, groups))
    assert sum(map(len, groups_by_split(dataset))) == 15
    with pytest.raises(ValueError, match=r"id must be a known name, got 'who'"):
        load(path, id="who")
    patients = table(tmp_path, patient=groups)
    assert "Column 'patient' looks like a group" in " ".join(load(patients).notes)


def test_columns_may_be_dropped_and_empty_ones_are_not_used(tmp_path):
    names = [f"name {i}" for i in range(300)]
    rows = [f"{i},{i % 2},{i % 3}" for i in range(300)]
    path = table(tmp_path, rows=rows, who=names, doctor=names)
    with pytest.raises(ValueError, match=r"'who' has .* different texts .* drop it"):
        load(path)
    assert load(path, drop="who, doctor").inputs.encoding.names == ("age", "sex")
    assert load(path, drop=["who", "doctor", "sex"]).inputs.encoding.names == ("age",)
    dataset = load(table(tmp_path, "age,empty,label", [f"{i},,{i % 3}" for i in range(30)]))
    assert dataset.inputs.encoding.columns == ("age",)
    assert "'empty' is empty in the training rows" in " ".join(dataset.notes)


def test_a_workbook_and_a_german_file_give_what_the_csv_gives(tmp_path):
    path = table(tmp_path, size=[f"{i / 4}" for i in range(30)])
    expected = load(path).inputs
    frame = pd.read_csv(path)
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_csv(tmp_path / "de.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig")
    for name in ("t.xlsx", "de.csv"):
        inputs = load(tmp_path / name).inputs
        np.testing.assert_array_equal(inputs.values, expected.values)
        assert inputs.encoding == expected.encoding


def save(folder, shape=(4, 4, 3), **changed):
    arrays = {}
    for name, count in (("train", 30), ("val", 6), ("test", 9)):
        rng = np.random.default_rng(count)
        arrays[f"{name}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"{name}_labels"] = (np.arange(count) % 3).astype(np.uint8)[:, None]
    arrays |= changed
    np.savez(folder / "x.npz", **{name: a for name, a in arrays.items() if a is not None})
    return folder / "x.npz"


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 4), (4, 4, 1)])
def test_the_arrays_of_medmnist_are_read(tmp_path, shape):
    path = save(tmp_path, shape)
    dataset = read("npz", tmp_path)
    dataset.check_complete()
    assert dataset.classes == ("0", "1", "2")
    assert sizes_of(dataset) == [30, 6, 9]
    with np.load(path) as archive:
        splits = dataset.splits.by_name().values()
        for name, index in zip(("train", "val", "test"), splits, strict=True):
            assert [dataset.inputs.names[i] for i in index[:2]] == [f"{name}/0", f"{name}/1"]
            assert dataset.ranks[index].tolist() == archive[f"{name}_labels"].ravel().tolist()
            pixels = archive[f"{name}_images"][1].reshape(4, 4, -1)
            assert (dataset.inputs.load(int(index[1])) == pixels).all()


@pytest.mark.parametrize("names", [("x_train", "y_train"), ("images", "labels"), ("X", "Y")])
def test_the_names_of_keras_and_plain_names_are_known(tmp_path, names):
    arrays = np.zeros((50, 4, 4), dtype=np.uint8), np.arange(50) % 3
    np.savez(tmp_path / "x.npz", **dict(zip(names, arrays, strict=True)))
    dataset = draw_splits(read("npz", tmp_path / "x.npz", classes="low,mid,high"), 0)
    assert dataset.classes == ("low", "mid", "high")
    assert sizes_of(dataset) == [35, 5, 10]


def test_integers_are_matched_with_the_classes_of_a_model(tmp_path):
    known = KnownInputs(("low", "mid", "high", "top"))
    dataset = read("npz", save(tmp_path), known=known)
    assert (dataset.classes, dataset.ranks.max()) == (known.classes, 2)
    other = read("npz", save(tmp_path), known=KnownInputs(("2", "1", "0")))
    assert other.ranks[:3].tolist() == [2, 1, 0]


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps([1]), b"PK\x03\x04zip", None])
def test_a_file_that_is_no_npz_file_is_refused_and_nothing_in_it_executed(tmp_path, content):
    path = save(tmp_path, train_labels=np.array([None] * 30))
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as an npz file"):
        read("npz", path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": np.zeros((30, 4, 4, 3), np.float32)}, "must be uint8"),
        ({"train_images": np.zeros((30, 5, 5, 3), np.uint8)}, "different sizes"),
        ({"train_labels": np.zeros(29, int)}, "train labels must be integers of shape"),
        ({"train_labels": np.zeros(30)}, "train labels must be integers"),
        ({"train_labels": None}, "Expected arrays: train_images"),
        ({"images": np.zeros((1, 4, 4), np.uint8)}, "Expected arrays"),
        ({"train_labels": np.arange(30) % 3 * 2}, "without gaps"),
    ],
)
def test_arrays_of_another_kind_are_refused(tmp_path, changed, message):
    if "images" in changed:
        changed = changed | {"labels": np.zeros(1, int)}
    with pytest.raises(ValueError, match=message):
        read("npz", save(tmp_path, **changed))
    with pytest.raises(ValueError, match="2 names for 3 different labels"):
        read("npz", save(tmp_path), classes="a,b")
