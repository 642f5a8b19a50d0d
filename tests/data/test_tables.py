"""Reading CSV files and workbooks, and encoding their cells."""

import datetime
import json
from copy import deepcopy
from dataclasses import asdict, replace

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from layline.data.tables import TableEncoding, as_rows, numbers_of, read_table_file, texts_of


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
        (b"a\n\0\x81\n", "is not a text file"),
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
    with pytest.raises(ValueError, match="found none"):
        read_table_file(tmp_path)
    write(tmp_path / "x.CSV", "a\n1\n")
    write(tmp_path / "notes.txt", "…")
    assert read_table_file(tmp_path).path.name == "x.CSV"


def test_columns_that_are_absent_or_have_empty_cells_are_named(tmp_path):
    file = read_table_file(write(tmp_path / "x.csv", "Label,fold\na,1\n,2\n,3\n"))
    with pytest.raises(ValueError, match=r"must be a known name, got 'Lable': .*Label"):
        file.read_column("label", "Lable")
    with pytest.raises(ValueError, match="'Label' has no value in row 3, row 4"):
        file.read_column("label", "Label")
    assert file.read_optional("split", "split") is None
    assert file.read_optional("split", "fold") == ["1", "2", "3"]


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


CELLS = {
    "age": ["40", "50", "NA", "70", ""],
    "sex": ["f", "m", "f", "x", "m"],
    "ill": ["True", "False", "True", "True", "False"],
}
FRAME = pd.DataFrame(CELLS)
TRAIN = np.array([0, 1, 2])
ENCODING = TableEncoding.fit(FRAME, TRAIN)


def fit(cells):
    return TableEncoding.fit(pd.DataFrame({"a": cells}), np.arange(len(cells)))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@pytest.mark.parametrize("dtype", [float, object, str])
def test_numbers_keep_all_their_digits(dtype, values):
    column = pd.Series([dtype(x) if dtype is str else x for x in values], dtype=dtype)
    assert numbers_of(column)[0].tolist() == values


def test_a_frame_and_a_file_give_the_same_texts():
    frame = pd.DataFrame({"a": [3.0, 1.5, None], "b": [True, False, True], "c": ["x ", "y", None]})
    assert texts_of(frame["a"]) == ["3", "1.5", ""]
    assert texts_of(frame["b"]) == ["True", "False", "True"]
    assert texts_of(frame["c"]) == ["x", "y", ""]
    assert texts_of(pd.Series([1, None], dtype="Int64")) == ["1", ""]
    assert texts_of(pd.Series([None, pd.NaT, float("nan")], dtype=object)) == ["", "", ""]
    dates = pd.Series(pd.to_datetime(["2020-01-01", None, "2020-03-01"]))
    written = dates.to_csv(index=False, header=False).replace('""', "").split("\n")
    assert texts_of(dates) == written[:3]


@pytest.mark.parametrize(
    "column",
    [
        *(pd.Series(["1", missing, "0"]) for missing in ("", "NA", "n/a", "NaN", "None", "?")),
        *(pd.Series([1, None, 0], dtype=d) for d in (float, "Int64", "category", object)),
        pd.Series(["TRUE", "", "false"]),
        pd.Series([True, None, False], dtype="boolean"),
    ],
)
def test_missing_cells_and_booleans_are_numbers(column):
    values, words = numbers_of(column)
    np.testing.assert_array_equal(values, [1, np.nan, 0])
    assert not words.any()
    assert numbers_of(pd.Series(["1", "yes"]))[1].tolist() == [False, True]


def test_decimal_commas_infinity_and_names_of_rows_are_refused():
    with pytest.raises(ValueError, match="'a' has numbers with commas, such as '3,5'"):
        fit(["1", "3,5", "-0,25", ""])
    assert fit(["1", "3,5", "much"]).categorical
    for cell in ("inf", "-Infinity", "1e999", "1e39"):
        with pytest.raises(ValueError, match=f"'a' must hold finite numbers, got '{cell}'"):
            fit(["1", cell]).apply(pd.DataFrame({"a": ["1", cell]}))
    names = [f"patient {i}" for i in range(60)]
    with pytest.raises(ValueError, match=r"'a' has 60 different texts in 60 .* drop it"):
        fit(names)
    assert len(fit(names * 2).columns) == 60
    assert len(fit(names[:50]).columns) == 50


def test_numbers_stay_and_categories_become_zeros_and_ones():
    assert ENCODING.names == ("age", "ill", "sex")
    assert ENCODING.columns == ("age", "age missing", "ill", "sex=f", "sex=m")
    assert ENCODING.apply(FRAME).tolist() == [
        [40, 0, 1, 1, 0],
        [50, 0, 0, 0, 1],
        [45, 1, 1, 1, 0],
        [70, 0, 1, 0, 0],
        [45, 1, 0, 0, 1],
    ]
    other = deepcopy(CELLS)
    other["age"][3:], other["sex"][3:] = ["1000", "2000"], ["q", "r"]
    assert TableEncoding.fit(pd.DataFrame(other), TRAIN) == ENCODING  # from the training rows only
    assert fit(["None", "mild", ""]).columns == ("a=", "a=mild", "a=None")


def test_it_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random((50, 2)) < 0.2, np.nan, rng.normal(size=(50, 2)))
    words = rng.choice(["a", "b", "c"], (50, 1))
    frame = pd.DataFrame({"x": numbers[:, 0], "y": numbers[:, 1], "w": words[:, 0]})
    rows = np.arange(30)
    ours = TableEncoding.fit(frame, rows).apply(frame)
    imputer = SimpleImputer(strategy="median", add_indicator=True).fit(numbers[rows])
    hot = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(words[rows])
    np.testing.assert_array_equal(ours[:, [0, 2, 1, 3]], imputer.transform(numbers))
    np.testing.assert_array_equal(ours[:, 4:], hot.transform(words))


def test_wrong_columns_of_later_rows_are_named():
    frame = pd.DataFrame({"sex": ["m"], "more": [1], "ill": [True], "age": [44.5]})
    assert ENCODING.apply(frame).tolist() == [[44.5, 0, 1, 0, 1]]
    with pytest.raises(ValueError, match=r"no column 'age', .* sex, more, ill"):
        ENCODING.apply(frame.drop(columns="age"))
    with pytest.raises(ValueError, match="'age' must hold finite numbers, got 'old' in row 2"):
        ENCODING.apply(FRAME[:1].assign(age="old"), ["row 2"])
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    for use in (lambda: TableEncoding.fit(twice, np.arange(1)), lambda: ENCODING.apply(twice)):
        with pytest.raises(ValueError, match="two columns 'age'"):
            use()


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.lists(st.floats(-1e9, 1e9) | st.text(), min_size=4, max_size=4),
        min_size=1,
        max_size=4,
    )
)
@pytest.mark.parametrize("id_column", [None, "who"])
def test_it_survives_a_file(id_column, frame):
    frame["always"] = [1, 2, 3, 4]
    try:
        encoding = TableEncoding.fit(pd.DataFrame(frame), np.arange(3), id_column)
    except ValueError:  # "1,5" or "inf" among the texts
        return
    again = TableEncoding.from_json(json.loads(json.dumps(asdict(encoding))))
    assert again == encoding
    assert again.columns == encoding.columns


def change(place, value):
    data = asdict(ENCODING)
    *path, last = place
    inner = data
    for key in path:
        inner = inner[key]
    inner[last] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"numeric": [], "categorical": []},
        {"numeric": ["age"], "categorical": []},
        change(["numeric", 0, "median"], "45"),
        change(["numeric", 0, "median"], float("nan")),
        change(["numeric", 0, "name"], "ill"),
        change(["numeric", 0, "more"], 1),
        change(["categorical", 0, "categories"], "fm"),
        change(["id_column"], 5),
    ],
)
def test_a_damaged_encoding_is_refused(data):
    with pytest.raises(ValueError, match="is damaged"):
        TableEncoding.from_json(data)


SMALL = TableEncoding.fit(
    pd.DataFrame({"size": ["1", "2", "3"], "color": ["red", "blue", "red"]}), np.arange(3)
)


@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_columns_become_rows(make):
    rows = as_rows(make({"color": ["blue", "green"], "size": [5, 6], "more": [0, 0]}), SMALL)
    assert rows.names == ["row 0", "row 1"]
    assert rows.values.tolist() == [[5, 1, 0], [6, 0, 0]]
    columns = {"color": pd.Series(["red", "blue"], index=[5, 6]), "size": pd.Series([1, 2])}
    assert as_rows(columns, SMALL).values[:, 0].tolist() == [1, 2]  # matched by place
    numeric = replace(SMALL, categorical=())
    assert as_rows(np.array([[4.0], [5.0]]), numeric).values.tolist() == [[4], [5]]


@pytest.mark.parametrize("make", [bytes, None])
def test_a_file_becomes_rows_named_by_their_id_or_number(tmp_path, make):
    workbook(tmp_path / "a.xlsx", ["color", "size", "who"], ["red", 7, "x"])
    write(tmp_path / "a.csv", "color;size;who\n\nred;7;007\nblue;5;\n")
    encoding = replace(SMALL, id_column="who")
    for name, names in (("a.csv", ["007", "row 4"]), ("a.xlsx", ["x"])):
        path = tmp_path / name
        rows = as_rows(path if make is None else make(path.read_bytes()), encoding)
        assert rows.names == names
        assert rows.values[0].tolist() == [7, 0, 1]
    with pytest.raises(FileNotFoundError, match=r"no\.csv does not exist"):
        as_rows(tmp_path / "no.csv", SMALL)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"size": [1]}, "no column 'color', which"),
        ({"size": ["x"], "color": ["red"]}, "size.*'x'"),
        ([1, 2], "must be a data frame or the path of a CSV file.* got list"),
        (np.zeros((2, 2)), "must be a data frame .* got ndarray"),
        ({"size": 1, "color": "red"}, "with the columns size, color"),
        ({"size": [1, 2], "color": ["red"]}, "with the columns size, color"),
    ],
)
def test_what_is_no_table_of_the_model_is_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        as_rows(samples, SMALL)
