"""Reading CSV files and workbooks: cells as they are written, and faults named with their row."""

import datetime
import sys

import numpy as np
import openpyxl
import pytest

from layline.data.dataset import format_list
from layline.data.tables import numbers_of, read_table_file, texts_of


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def columns_of(file):
    return {name: texts_of(column) for name, column in file.frame.items()}


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


@pytest.mark.parametrize(
    ("mark", "encoding", "end"),
    [
        (",", "utf-8", "\n"),
        (";", "utf-8-sig", "\r\n"),
        ("\t", "utf-16", "\n"),
        (";", "utf-16", "\r\n"),
        (",", "cp1252", "\r\n"),
    ],
)
def test_usual_delimiters_encodings_and_line_ends_are_read(tmp_path, mark, encoding, end):
    lines = [mark.join(cells) for cells in (["path", "größe"], ["a.jpg", "1"], ["b.jpg", "2"])]
    file = read_table_file(write(tmp_path / "x.csv", end.join(lines), encoding))
    assert columns_of(file) == {"path": ["a.jpg", "b.jpg"], "größe": ["1", "2"]}
    assert file.row_names == ["row 2", "row 3"]
    assert bool(file.notes) is (encoding == "cp1252")  # which is a guess
    assert columns_of(read_table_file(tmp_path / "x.csv", rows=1))["path"] == ["a.jpg"]


def test_a_different_encoding_may_be_named(tmp_path):
    path = write(tmp_path / "x.csv", "имя\nЯна\n", "cp1251")
    assert columns_of(read_table_file(path, encoding="cp1251")) == {"имя": ["Яна"]}
    for wrong in ("ascii", "nonsense"):
        with pytest.raises(ValueError, match=f"cannot be read as {wrong}"):
            read_table_file(path, encoding=wrong)


def test_cells_are_kept_and_blank_rows_and_columns_without_a_name_skipped(tmp_path):
    cells = ["007", "1.0", "NA", "None", "nan", "true", "1e5", "inf", "99999999999999999999"]
    file = read_table_file(write(tmp_path / "x.csv", "label\n" + "\n".join(cells)))
    assert columns_of(file)["label"] == cells
    file = read_table_file(write(tmp_path / "x.csv", 'a, b\n1, "2,\n3"\n\n,\n4,5\n'))
    assert columns_of(file) == {"a": ["1", "4"], "b": ["2,\n3", "5"]}
    assert file.row_names == ["row 2", "row 5"]
    file = read_table_file(write(tmp_path / "x.csv", ",a,\n0,5,\n1,6,\n"))
    assert columns_of(file) == {"a": ["5", "6"]}
    assert "without a name" in file.notes[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a table"),
        (b"a,b\n", "must have a header and at least one row"),
        (b"a\n\0\x81\n", "cannot be read as text"),
        (b"a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        (b"a,a\n1,2\n", "two columns 'a'"),
        (b'a,b\n"1,2\n3,4\n', "EOF inside string"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table_file(tmp_path / "x.csv")


def test_a_folder_with_one_table_may_be_given(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x\.csv does not exist"):
        read_table_file(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="found none"):
        read_table_file(tmp_path)
    write(tmp_path / "x.CSV", "a\n1\n")
    write(tmp_path / "notes.txt", "…")
    assert read_table_file(tmp_path).path.name == "x.CSV"
    write(tmp_path / "y.tsv", "a\n1\n")
    with pytest.raises(ValueError, match=r"found x.CSV, y.tsv"):
        read_table_file(tmp_path)


def test_columns_that_are_absent_or_have_empty_cells_are_named(tmp_path):
    file = read_table_file(write(tmp_path / "x.csv", "Label,fold\na,1\n,2\n,3\n"))
    with pytest.raises(ValueError, match=r"must be a known name, got 'Lable': .*Label"):
        file.read_column("label", "Lable")
    with pytest.raises(ValueError, match="'Label' has no value in row 3, row 4"):
        file.read_column("label", "Label")
    assert file.read_optional("split", "split") is None
    assert file.read_optional("split", None) is None
    assert file.read_optional("split", "fold") == ["1", "2", "3"]
    with pytest.raises(ValueError, match="column split must be a known name, got 'part'"):
        file.read_optional("split", "part")
    assert format_list(range(25)).endswith(", 18, 19 … (25 in all)")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,5", "2", "-0,25"], [1.5, 2, -0.25]),
        (["1,5", "NA", ""], [1.5, np.nan, np.nan]),
        (["0,125", "1,250"], [0.125, 1.25]),
        (["1,5e3", "2"], [1500, 2]),
        (["1,5", "x"], None),
    ],
)
def test_decimal_commas_are_read_where_the_delimiter_is_different(tmp_path, cells, numbers):
    text = "\n".join(["a;b", *(f"{cell};1" for cell in cells)])
    file = read_table_file(write(tmp_path / "x.csv", text))
    if numbers is None:
        assert columns_of(file)["a"] == cells
    else:
        np.testing.assert_array_equal(numbers_of(file.frame["a"])[0], numbers)
    assert bool(file.notes) is (numbers is not None)


def test_a_workbook_is_read_like_text(tmp_path):
    path = workbook(
        tmp_path / "x.xlsx",
        ["id", "n", "flag", "day", "word", None],
        ["007", 1, True, datetime.date(2024, 5, 31), " a ", "no header"],
        [],
        [8, 2.5, None, datetime.datetime(2024, 5, 31, 12, 30), "#N/A", None],
    )
    file = read_table_file(path)
    assert columns_of(file) == {
        "id": ["007", "8"],
        "n": ["1", "2.5"],
        "flag": ["True", ""],
        "day": ["2024-05-31", "2024-05-31 12:30:00"],
        "word": ["a", ""],  # an error
    }
    assert file.row_names == ["row 2", "row 4"]
    assert columns_of(read_table_file(path.read_bytes())) == columns_of(file)


def test_the_first_sheet_is_read_unless_another_is_named(tmp_path):
    path = workbook(tmp_path / "x.xlsx", ["a"], [1], more=[["b"], [2]])
    first, other = read_table_file(path), read_table_file(path, sheet="more")
    assert (columns_of(first), columns_of(other)) == ({"a": ["1"]}, {"b": ["2"]})
    assert "first sheet of Sheet, more" in first.notes[0]
    with pytest.raises(ValueError, match="sheet must be a known name, got 'mor'"):
        read_table_file(path, sheet="mor")
    with pytest.raises(ValueError, match=r"x.csv is not a workbook"):
        read_table_file(write(tmp_path / "x.csv", "a\n1\n"), sheet="a")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"a,b\n1,2\n"])
def test_a_damaged_workbook_is_refused(tmp_path, content):
    (tmp_path / "x.xlsx").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.xlsx cannot be read as an Excel workbook"):
        read_table_file(tmp_path / "x.xlsx")


def test_without_its_library_a_workbook_error_says_what_to_install(tmp_path, monkeypatch):
    path = workbook(tmp_path / "x.xlsx", ["a"], [1])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"x.xlsx needs openpyxl: pip install layline\[excel\]"):
        read_table_file(path)
