import datetime
import sys

import numpy as np
import openpyxl
import pytest

from layline.data.dataset import listed
from layline.data.table_encoding import numbers_of
from layline.data.tables import read_head, read_table_file


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def columns_of(sheet):
    return {name: column.tolist() for name, column in sheet.frame.items()}


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_commas_semicolons_and_tabs_are_told_apart(tmp_path, mark, encoding, end):
    lines = [mark.join(cells) for cells in (["path", "größe"], ["a.jpg", "1"], ["b.jpg", "2"])]
    sheet = read_table_file(write(tmp_path / "x.csv", end.join(lines), encoding))
    assert columns_of(sheet) == {"path": ["a.jpg", "b.jpg"], "größe": ["1", "2"]}
    assert sheet.rows.tolist() == [2, 3]


def test_cells_are_kept_as_they_are_written(tmp_path):
    cells = ["007", "1.0", "NA", "None", "nan", "true", "1e5"]
    sheet = read_table_file(write(tmp_path / "x.csv", "label\n" + "\n".join(cells)))
    assert columns_of(sheet)["label"] == cells


def test_numbers_are_read_as_numbers_where_no_text_is_wanted(tmp_path):
    text = "n,flag,id,some,word,huge\n1,True,007,,NA,1\n2.5,false,008,3,x,99999999999999999999\n"
    sheet = read_table_file(write(tmp_path / "x.csv", text), lambda name: name == "id")
    kinds = {name: column.dtype.kind for name, column in sheet.frame.items()}
    assert kinds == {"n": "f", "flag": "b", "id": "O", "some": "f", "word": "O", "huge": "O"}
    assert sheet.texts("id", "id") == ["007", "008"]
    assert sheet.texts("word", "word") == ["NA", "x"]


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinity_is_kept_as_it_is_written(tmp_path, cell):
    sheet = read_table_file(write(tmp_path / "x.csv", f"a,b\n1,2\n{cell},3\n"), lambda name: False)
    assert sheet.texts("a", "a") == ["1", cell]
    assert sheet.frame["b"].dtype.kind == "i"


@pytest.mark.parametrize("cell", ["x", "99999999999999999999", "True", "2.5"])
def test_a_row_that_is_too_short_is_named_whatever_the_last_column_holds(tmp_path, cell):
    path = write(tmp_path / "x.csv", f"a,b\n1,{cell}\n1\n2,-99999999999999999999\n")
    with pytest.raises(ValueError, match="2 cells like the header, got 1 in row 3"):
        read_table_file(path, lambda name: False)


def test_blank_rows_are_passed_over_and_counted(tmp_path):
    sheet = read_table_file(write(tmp_path / "x.csv", 'a, b\n1, "2,\n3"\n\n,\n4,5\n'))
    assert columns_of(sheet) == {"a": ["1", "4"], "b": ["2,\n3", "5"]}
    assert sheet.rows.tolist() == [2, 5]


def test_columns_without_a_name_are_left_out(tmp_path):
    sheet = read_table_file(write(tmp_path / "x.csv", ",a,\n0,5,\n1,6,\n"))
    assert columns_of(sheet) == {"a": ["5", "6"]}
    assert sheet.unnamed == 2


def test_a_folder_with_one_file_stands_for_it(tmp_path):
    write(tmp_path / "x.CSV", "a\n1\n")
    write(tmp_path / "notes.txt", "…")
    assert read_table_file(tmp_path).path.name == "x.CSV"
    write(tmp_path / "y.tsv", "a\n1\n")
    with pytest.raises(ValueError, match=r"one file of .* with x.CSV, y.tsv: name the file"):
        read_table_file(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must have a header and rows"),
        (b"a,b\n", "must have a header and rows, got .* with 1 lines"),
        (b"a\n\x81\n", "must be text in UTF-8, got .*encoding=NAME"),
        (b"a,b\n1,2\n1,2,3\n", "2 cells like the header, got 3 in row 3 of x.csv"),
        (b"a,b\n1\n", "2 cells like the header, got 1 in row 2"),
        (b"a,a\n1,2\n", "different names, got 'a' twice"),
        (b'a,b\n"1,2\n3,4\n', "unexpected end of data in line 3: check the quotes"),
    ],
)
def test_what_is_not_a_table_is_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table_file(tmp_path / "x.csv")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"root must exist, got .*x\.csv"):
        read_table_file(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="with none: name the file"):
        read_table_file(tmp_path)


def test_columns_that_are_absent_or_have_holes_are_named(tmp_path):
    sheet = read_table_file(write(tmp_path / "x.csv", "Label,fold\na,1\n,2\n,3\n"))
    with pytest.raises(ValueError, match=r"got 'label': did you mean 'Label'\? it has Label, fold"):
        sheet.filled("label", "label")
    with pytest.raises(ValueError, match="'Label' must be filled, got nothing in row 3, 4: fill"):
        sheet.filled("label", "Label")
    assert sheet.optional("split", "split", "split") is None
    assert sheet.optional("split", None, "split") is None
    assert sheet.optional("split", "fold", "split") == ["1", "2", "3"]
    with pytest.raises(ValueError, match=r"split must be a column of x.csv, got 'part'"):
        sheet.optional("split", "part", "split")


def test_long_lists_are_cut_after_twenty():
    assert listed([1, 2]) == "1, 2"
    assert listed(range(25)).endswith(", 18, 19 … (25 in all)")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_what_offices_write_is_read(tmp_path, encoding):
    path = write(tmp_path / "x.csv", "name;größe\r\nJürgen;1\r\n", encoding)
    sheet = read_table_file(path)
    assert columns_of(sheet) == {"name": ["Jürgen"], "größe": ["1"]}
    assert read_head(path) == (["name", "größe"], [["Jürgen", "1"]])
    assert bool(sheet.notes) is (encoding == "cp1252")  # which is a guess
    assert sheet.encoding == encoding


def test_another_encoding_may_be_named(tmp_path):
    path = write(tmp_path / "x.csv", "имя\nЯна\n", "cp1251")
    assert columns_of(read_table_file(path, encoding="cp1251")) == {"имя": ["Яна"]}
    for wrong in ("ascii", "nonsense"):
        with pytest.raises(ValueError, match=f"cannot be read as {wrong}: save it as CSV UTF-8"):
            read_table_file(path, encoding=wrong)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,5", "2", "-0,25"], [1.5, 2, -0.25]),
        (["1,5", "NA", ""], [1.5, np.nan, np.nan]),
        (["1.234,5", "7", "1.000"], [1234.5, 7, 1000]),
        (["0,125", "1,250"], [0.125, 1.25]),
        (["1,5e3", "2"], [1500, 2]),
        (["1,234", "5,678"], None),  # thousands or thousandths
        (["1,5", "1.234"], None),
        (["1,5", "x"], None),
    ],
)
@pytest.mark.parametrize("mark", [";", "\t"])
def test_decimal_commas_are_points_where_nothing_else_can_be_meant(tmp_path, cells, numbers, mark):
    text = "\n".join([f"a{mark}b", *(f"{cell}{mark}1" for cell in cells)])
    sheet = read_table_file(write(tmp_path / "x.csv", text), lambda name: False)
    if numbers is None:
        assert sheet.texts("a", "a") == cells
        assert sheet.notes == ()
    else:
        np.testing.assert_array_equal(numbers_of(sheet.frame["a"])[0], numbers)
        assert sheet.notes == ("Decimal commas were read as points: 'a'",)
    kept = read_table_file(tmp_path / "x.csv")  # as texts
    assert kept.texts("a", "a") == cells


def workbook(path, *rows, **sheets):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for name, others in sheets.items():
        sheet = book.create_sheet(name)
        for row in others:
            sheet.append(row)
    book.save(path)
    return path


def test_cells_of_a_workbook_are_taken_as_they_are_shown(tmp_path):
    day = datetime.date(2024, 5, 31)
    noon = datetime.datetime(2024, 5, 31, 12, 30)
    path = workbook(
        tmp_path / "x.xlsx",
        [],
        ["id", "n", "flag", "day", "word", None],
        ["007", 1, True, day, " a ", "no header"],
        [],
        [8, 2.5, None, noon, "#N/A", None],
    )
    sheet = read_table_file(path, lambda name: name == "id")
    assert sheet.rows.tolist() == [3, 5]
    assert sheet.texts("id", "id") == ["007", "8"]
    assert sheet.frame["n"].tolist() == [1, 2.5]
    assert sheet.texts("flag", "flag") == ["True", ""]
    assert sheet.texts("day", "day") == ["2024-05-31", "2024-05-31 12:30:00"]
    assert sheet.texts("word", "word") == ["a", ""]
    assert sheet.unnamed == 1
    assert read_head(path)[0] == ["id", "n", "flag", "day", "word"]
    assert columns_of(read_table_file(path.read_bytes())) == columns_of(read_table_file(path))


def test_the_first_sheet_is_read_unless_another_is_named(tmp_path):
    path = workbook(tmp_path / "x.xlsx", ["a"], [1], more=[["b"], [2]])
    first, other = read_table_file(path), read_table_file(path, sheet="more")
    assert (columns_of(first), columns_of(other)) == ({"a": [1]}, {"b": [2]})
    assert "Of the sheets Sheet, more the first is read" in first.notes[0]
    assert other.notes == ()
    with pytest.raises(ValueError, match="sheet must be a known name, got 'mor': did you mean"):
        read_table_file(path, sheet="mor")
    with pytest.raises(ValueError, match=r"sheet must be left out for text, got 'a': x.csv has"):
        read_table_file(write(tmp_path / "x.csv", "a\n1\n"), sheet="a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"must be an Excel workbook, got .*x\.xlsx"),
        (b"PK\x03\x04 and no more", r"must be an Excel workbook, .* save it again as .xlsx or CSV"),
        (b"a,b\n1,2\n", r"must be an Excel workbook, got .*x\.xlsx"),
    ],
)
def test_what_is_no_workbook_is_refused(tmp_path, content, message):
    (tmp_path / "x.xlsx").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table_file(tmp_path / "x.xlsx")
    with pytest.raises(ValueError, match="must have a header and rows"):
        read_table_file(workbook(tmp_path / "y.xlsx", ["a", "b"]))


def test_without_its_library_a_workbook_says_what_to_install(tmp_path, monkeypatch):
    path = workbook(tmp_path / "x.xlsx", ["a"], [1])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"x.xlsx needs openpyxl: pip install layline\[excel\]"):
        read_table_file(path)
