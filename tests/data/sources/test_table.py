"""A table of numbers and categories."""

import numpy as np
import pandas as pd
import pytest

from layline.data import SOURCES, KnownInputs, draw_splits, read

SPLIT = ["train"] * 20 + ["val"] * 5 + ["test"] * 5


def write(folder, header="age,sex,label", rows=None, **columns):
    rows = [f"{20 + i},{'fm'[i % 2]},{i % 3}" for i in range(30)] if rows is None else rows
    for name, cells in columns.items():
        header += f",{name}"
        rows = [f"{row},{cell}" for row, cell in zip(rows, cells, strict=True)]
    path = folder / "table.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return path


def load(path, seed=0, **options):
    return draw_splits(read("table", path, **options), seed)


def test_columns_become_numbers_and_labels_ranks(tmp_path):
    dataset = load(write(tmp_path))
    dataset.check_complete()
    assert dataset.classes == ("0", "1", "2")
    assert dataset.ranks.tolist() == [i % 3 for i in range(30)]
    assert dataset.inputs.encoding.columns == ("age", "sex=f", "sex=m")
    assert dataset.inputs.values[3].tolist() == [23, 0, 1]
    assert dataset.inputs.names[0] == "row 2"
    assert [len(index) for index in dataset.splits.by_name().values()] == [21, 3, 6]
    assert SOURCES["table"].backbone == "mlp"
    again, other = (load(write(tmp_path), seed).splits.test for seed in (0, 1))
    assert dataset.splits.test.tolist() == again.tolist() != other.tolist()


def test_the_encoding_is_learned_on_the_training_rows(tmp_path):
    sizes = [""] + [str(i) for i in range(29)]
    splits = ["test", *["train"] * 20, *["val"] * 6, *["test"] * 3]
    wards = ["z", *["a", "b"] * 14, "a"]
    path = write(tmp_path, size=sizes, ward=wards, split=splits)
    dataset = load(path)
    size = dataset.inputs.encoding.numeric[1]
    assert (size.name, size.median, size.indicator) == ("size", 9.5, False)
    assert dataset.inputs.values[0, 1] == 9.5
    assert dataset.inputs.values[0, -2:].tolist() == [0, 0]
    assert "not in the training rows: 'z'" in dataset.notes[-1]


def test_a_model_knows_its_encoding_and_classes(tmp_path):
    trained = load(write(tmp_path))
    rows = ["50,x,2,1", "60,f,2,2"]
    path = write(tmp_path, "age,sex,label,more", rows)
    known = KnownInputs(trained.classes, trained.inputs.encoding)
    dataset = read("table", path, known=known)
    assert dataset.inputs.values.tolist() == [[50, 0, 0], [60, 1, 0]]
    assert dataset.ranks.tolist() == [2, 2]
    notes = " ".join(dataset.notes)
    assert "no samples of 0, 1" in notes
    assert "'more' is not one that the model was trained with" in notes
    with pytest.raises(ValueError, match="no column 'sex', which the model was trained with"):
        read("table", write(tmp_path, "age,label", ["1,1", "2,2"]), known=known)
    with pytest.raises(ValueError, match="does not know the classes 9"):
        read("table", write(tmp_path, "age,sex,label", ["1,f,9", "2,f,2"]), known=known)


@pytest.mark.parametrize("name", ["rank", "Grade", "class", "target", "y", "score"])
def test_usual_names_of_label_columns_are_known(tmp_path, name):
    dataset = load(write(tmp_path, f"age,sex,{name}"))
    assert dataset.notes[0] == f"The labels are in column {name!r}."


def test_the_label_column_is_not_guessed(tmp_path):
    path = write(tmp_path, "age,y,rank")
    with pytest.raises(ValueError, match=r"no column 'label'. It may be y or rank."):
        load(path)
    assert load(path, label="rank").inputs.encoding.names == ("age", "y")
    with pytest.raises(ValueError, match=r"no column 'ranks' .*Did you mean 'rank'"):
        load(path, label="ranks")


def test_splits_groups_and_ids_are_not_inputs(tmp_path):
    groups = [i // 2 for i in range(30)]
    path = write(tmp_path, group=groups, id=["", *(f"p{i}" for i in range(1, 30))])
    dataset = load(path)
    assert dataset.inputs.encoding.names == ("age", "sex")
    assert list(dataset.inputs.names[:2]) == ["row 2", "p1"]
    assert dataset.groups == tuple(map(str, groups))
    found = [{groups[i] for i in index} for index in dataset.splits.by_name().values()]
    assert sum(map(len, found)) == 15
    with pytest.raises(ValueError, match=r"id must be a known name, got 'who'"):
        load(path, id="who")
    notes = " ".join(load(path, group=None).notes)
    assert "looks like a group" not in notes
    patients = write(tmp_path, patient=groups)
    assert "Column 'patient' looks like a group" in " ".join(load(patients).notes)


def test_columns_may_be_dropped_and_empty_ones_are_not_used(tmp_path):
    names = [f"name {i}" for i in range(300)]
    rows = [f"{i},{i % 2},{i % 3}" for i in range(300)]
    path = write(tmp_path, rows=rows, who=names, doctor=names)
    with pytest.raises(ValueError, match=r"'who' has .* different texts .* drop it"):
        load(path)
    assert load(path, drop="who, doctor").inputs.encoding.names == ("age", "sex")
    assert load(path, drop=["who", "doctor", "sex"]).inputs.encoding.names == ("age",)
    with pytest.raises(ValueError, match=r"drop must be a known name, got 'whom'"):
        load(path, drop=["whom"])
    rows = [f"{i},{20 + i},,{i % 3}" for i in range(30)]
    dataset = load(write(tmp_path, ",age,empty,label", rows))
    assert dataset.inputs.encoding.columns == ("age",)
    notes = " ".join(dataset.notes)
    assert "'empty' is empty in the training rows" in notes
    assert "without a name" in notes


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("old", "'size' must hold finite numbers, got 'old' in row 31"),
        ("inf", "'size' must hold finite numbers, got 'inf' in row 31"),
        ("1e39", "'size' must hold numbers up to 3.4e38, got 1e\\+39 in row 31"),
    ],
)
def test_a_cell_that_is_no_number_is_named_with_its_column_and_row(tmp_path, cell, message):
    path = write(tmp_path, size=[*range(29), cell], split=SPLIT)
    with pytest.raises(ValueError, match=message):
        load(path)


def test_tables_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no columns to learn from"):
        load(write(tmp_path, "label", [str(i % 3) for i in range(30)]))
    with pytest.raises(ValueError, match="'label' has no value in row 3"):
        load(write(tmp_path, "a,label", ["1,1", "2,", "3,2"]))
    with pytest.raises(ValueError, match="At least two classes are needed"):
        load(write(tmp_path, "a,label", ["1,1", "2,1"]))


def test_a_workbook_and_a_german_file_give_what_the_csv_gives(tmp_path):
    path = write(tmp_path, size=[f"{i / 4}" for i in range(30)])
    expected = load(path).inputs
    frame = pd.read_csv(path)
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_csv(tmp_path / "de.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig")
    for name in ("t.xlsx", "de.csv"):
        inputs = load(tmp_path / name).inputs
        np.testing.assert_array_equal(inputs.values, expected.values)
        assert inputs.encoding == expected.encoding
