import numpy as np
import pandas as pd
import pytest

from layline.data import SOURCES, read
from layline.data.sources.table import read_table


def write(folder, header="age,sex,label", rows=None, **columns):
    rows = [f"{20 + i},{'fm'[i % 2]},{i % 3}" for i in range(30)] if rows is None else rows
    for name, cells in columns.items():
        header += f",{name}"
        rows = [f"{row},{cell}" for row, cell in zip(rows, cells, strict=True)]
    path = folder / "table.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return path


def test_columns_become_numbers_and_labels_ranks(tmp_path):
    data = read("table", write(tmp_path))
    data.check_complete()
    assert data.classes == ("0", "1", "2")
    assert data.ranks.tolist() == [i % 3 for i in range(30)]
    assert data.inputs.encoding.columns == ("age", "sex=f", "sex=m")
    assert data.inputs.values[3].tolist() == [23, 0, 1]
    assert data.inputs.names[0] == "row 2"
    assert [len(part) for part in data.splits.by_name().values()] == [21, 3, 6]
    assert SOURCES["table"].features == "mlp"


def test_the_encoding_is_learned_on_the_training_rows(tmp_path):
    sizes = [""] + [str(i) for i in range(29)]
    splits = ["test", *["train"] * 20, *["val"] * 6, *["test"] * 3]
    data = read_table(write(tmp_path, size=sizes, split=splits))
    size = data.inputs.encoding.numeric[1]
    assert (size.name, size.median, size.indicator) == ("size", 9.5, False)
    assert data.inputs.values[0, 1] == 9.5


@pytest.mark.parametrize("name", ["rank", "Grade", "class", "target", "y"])
def test_the_usual_names_of_labels_are_known_and_told(tmp_path, name):
    data = read_table(write(tmp_path, f"age,sex,{name}"))
    assert data.notes[0] == f"The labels are taken from the column {name!r}"


def test_which_column_is_the_label_is_not_guessed(tmp_path):
    path = write(tmp_path, "age,y,rank")
    with pytest.raises(
        ValueError, match="got 'label': say which of y, rank it is with --label, the columns are"
    ):
        read_table(path)
    assert read_table(path, label="rank").inputs.encoding.names == ("age", "y")
    with pytest.raises(ValueError, match=r"got 'ranks': did you mean 'rank'\? it has age, y, rank"):
        read_table(path, label="ranks")
    with pytest.raises(ValueError, match="say which it is with --label, the columns are a, b, c"):
        read_table(write(tmp_path, "a,b,c"))


def test_splits_groups_and_ids_are_not_inputs(tmp_path):
    groups = [i // 2 for i in range(30)]
    path = write(tmp_path, group=groups, id=["", *(f"p{i}" for i in range(1, 30))])
    data = read_table(path)
    assert data.inputs.encoding.names == ("age", "sex")
    assert list(data.inputs.names[:2]) == ["row 2", "p1"]
    assert data.groups == tuple(map(str, groups))
    homes = [{groups[i] for i in part} for part in data.splits.by_name().values()]
    assert sum(map(len, homes)) == 15
    assert "The column 'id' names the rows and is not an input" in data.notes
    with pytest.raises(ValueError, match=r"id must be a column of table.csv, got 'who'"):
        read_table(path, id="who")


def test_columns_may_be_dropped(tmp_path):
    names = [f"name {i}" for i in range(300)]
    rows = [f"{i},{i % 2},{i % 3}" for i in range(300)]
    path = write(tmp_path, rows=rows, who=names, doctor=names)
    with pytest.raises(ValueError, match=r"column 'who' must repeat its values .* name it in drop"):
        read_table(path)
    assert read_table(path, drop="who, doctor").inputs.encoding.names == ("age", "sex")
    assert read_table(path, drop=["who", "doctor", "sex"]).inputs.encoding.names == ("age",)
    with pytest.raises(
        ValueError, match=r"drop must be a known name, got 'whom': did you mean who"
    ):
        read_table(path, drop=["whom"])


def test_what_is_not_used_is_told(tmp_path):
    rows = [f"{i},{20 + i},,{i % 3}" for i in range(30)]
    data = read_table(write(tmp_path, ",age,empty,label", rows))
    assert data.inputs.encoding.columns == ("age",)
    assert "Column 'empty' is empty in the training rows and was left out" in data.notes
    assert "Columns without a name in the header were left out" in data.notes


def test_a_category_that_only_the_test_has_is_told(tmp_path):
    splits = ["train"] * 20 + ["val"] * 5 + ["test"] * 5
    data = read_table(write(tmp_path, ward=["a", "b"] * 14 + ["a", "z"], split=splits))
    assert data.inputs.values[-1, -2:].tolist() == [0, 0]
    assert "'ward' has values that training never saw, 'z'" in data.notes[-1]


def test_without_inputs_there_is_nothing_to_learn_from(tmp_path):
    path = write(tmp_path, "label", [str(i % 3) for i in range(30)])
    with pytest.raises(ValueError, match="must have columns beside 'label', got none"):
        read_table(path)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("old", "column 'size' must hold finite numbers, got 'old' in row 31"),
        ("inf", "column 'size' must hold finite numbers, got 'inf' in row 31"),
    ],
)
def test_a_cell_that_is_no_number_is_named_with_its_row(tmp_path, cell, message):
    splits = ["train"] * 20 + ["val"] * 5 + ["test"] * 5
    path = write(tmp_path, size=[*range(29), cell], split=splits)
    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_a_missing_label_is_named_with_its_row(tmp_path):
    path = write(tmp_path, rows=["1,f,0", "2,m,", "3,f,1"])
    with pytest.raises(ValueError, match="column 'label' must be filled, got nothing in row 3"):
        read_table(path)


def test_the_same_seed_gives_the_same_partition(tmp_path):
    path = write(tmp_path)
    first, again, other = (read_table(path, partition=p).splits for p in (1, 1, 2))
    assert np.array_equal(first.test, again.test)
    assert not np.array_equal(first.test, other.test)


def test_a_workbook_gives_what_the_csv_gives(tmp_path):
    path = write(tmp_path, day=[f"2024-05-{1 + i % 3:02}" for i in range(30)], id=range(30))
    frame = pd.read_csv(path, parse_dates=["day"])
    frame.to_excel(tmp_path / "table.xlsx", index=False)
    one, other = read("table", path), read("table", tmp_path / "table.xlsx")
    assert other.inputs.encoding == one.inputs.encoding
    assert np.array_equal(other.inputs.values, one.inputs.values)
    assert list(other.inputs.names) == list(one.inputs.names) == [str(i) for i in range(30)]
    assert other.notes == one.notes


def test_a_column_of_patients_is_told_where_it_is_no_group(tmp_path):
    path = write(tmp_path, patient=[f"p{i // 3}" for i in range(30)])
    assert any("--group patient keeps" in note for note in read_table(path).notes)
    data = read_table(path, group="patient")
    assert data.inputs.encoding.names == ("age", "sex")
    assert "10 groups in 30 rows, the largest has 3" in data.notes
    old = read("table", path, group_column="patient", id_column="age")
    assert old.groups == data.groups
    assert old.inputs.names[0] == "20"


def test_a_number_that_a_network_cannot_hold_is_named_with_its_row(tmp_path):
    path = write(tmp_path, size=[*range(29), 1e300])
    with pytest.raises(
        ValueError, match=r"column 'size' must hold numbers up to 3\.4e38, got 1e\+300 in row 31"
    ):
        read_table(path)


def test_a_file_as_german_offices_write_it_is_read(tmp_path):
    rows = [f"{i};{i / 4:.2f}".replace(".", ",") + f";Stufe {i % 3}" for i in range(30)]
    path = tmp_path / "table.csv"
    path.write_bytes("\r\n".join(["größe;wert;label", *rows]).encode("cp1252"))
    data = read_table(path)
    assert data.inputs.encoding.names == ("größe", "wert")
    assert data.inputs.values[:, 1].tolist() == [float(f"{i / 4:.2f}") for i in range(30)]
    assert "read as Windows-1252, with 'größe' in it" in data.notes[0]
    assert data.notes[1] == "Decimal commas were read as points: 'wert'"


@pytest.mark.parametrize("name", ["score", "Quality", "y"])
@pytest.mark.parametrize(
    ("column", "options"),
    [("label", {}), ("grade", {"label": "grade"}), ("urteil", {"label": "urteil"})],
)
def test_an_input_is_read_alike_whatever_its_name(tmp_path, name, column, options):
    path = tmp_path / "table.csv"
    path.write_text("\n".join([f"{name};{column}", *(f"{i},5;{i % 3:03}" for i in range(30))]))
    data = read_table(path, **options)
    assert data.inputs.values.ravel().tolist() == [i + 0.5 for i in range(30)]
    assert f"Decimal commas were read as points: {name!r}" in data.notes
    assert data.classes == ("000", "001", "002")  # as they are written
    again = read_table(path, **options, known_encoding=data.inputs.encoding)
    np.testing.assert_array_equal(again.inputs.values, data.inputs.values)


def test_of_two_columns_that_may_be_labels_the_other_is_an_input(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["score;grade", *(f"{i},5;{i % 3:03}" for i in range(30))]))
    data = read_table(path)
    assert "The labels are taken from the column 'grade'" in data.notes
    assert data.inputs.values.ravel().tolist() == [i + 0.5 for i in range(30)]
    assert data.classes == ("000", "001", "002")


@pytest.mark.parametrize("option", ["label", "group", "split", "id", "sheet", "encoding"])
@pytest.mark.parametrize("value", [[], {}, True, 1.5])
def test_a_column_that_is_no_name_is_refused(tmp_path, option, value):
    file = tmp_path / "table.csv"
    file.write_text("a,label\n1,0\n2,1\n")
    with pytest.raises(ValueError, match=f"{option} must be a text, got"):
        read("table", file, **{option: value})


def test_a_column_may_be_called_by_a_number(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("a,3\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    assert read("table", file, label=3).classes == ("0", "1")
