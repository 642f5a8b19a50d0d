import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from layline.data.base import listed
from layline.data.table import (
    Rows,
    TableEncoding,
    numbers_if_all,
    numbers_of,
    read_delimited,
    texts_of,
)


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_commas_semicolons_and_tabs_are_told_apart(tmp_path, mark, encoding, end):
    lines = [mark.join(cells) for cells in (["path", "größe"], ["a.jpg", "1"], ["b.jpg", "2"])]
    sheet = read_delimited(write(tmp_path / "x.csv", end.join(lines), encoding))
    assert sheet.columns == {"path": ["a.jpg", "b.jpg"], "größe": ["1", "2"]}
    assert sheet.rows == [2, 3]


def test_cells_are_kept_as_they_are_written(tmp_path):
    cells = ["007", "1.0", "NA", "None", "nan", "true", "1e5"]
    sheet = read_delimited(write(tmp_path / "x.csv", "label\n" + "\n".join(cells)))
    assert sheet.columns["label"] == cells


def test_blank_rows_are_passed_over_and_counted(tmp_path):
    sheet = read_delimited(write(tmp_path / "x.csv", 'a, b\n1, "2,\n3"\n\n,\n4,5\n'))
    assert sheet.columns == {"a": ["1", "4"], "b": ["2,\n3", "5"]}
    assert sheet.rows == [2, 5]


def test_columns_without_a_name_are_left_out(tmp_path):
    sheet = read_delimited(write(tmp_path / "x.csv", ",a,\n0,5,\n1,6,\n"))
    assert sheet.columns == {"a": ["5", "6"]}
    assert sheet.unnamed == 2


def test_a_folder_with_one_file_stands_for_it(tmp_path):
    write(tmp_path / "x.CSV", "a\n1\n")
    write(tmp_path / "notes.txt", "…")
    assert read_delimited(tmp_path).path.name == "x.CSV"
    write(tmp_path / "y.tsv", "a\n1\n")
    with pytest.raises(ValueError, match=r"one file of .* with x.CSV, y.tsv: name the file"):
        read_delimited(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must have a header and rows"),
        (b"a,b\n", "must have a header and rows, got .* with 1 lines"),
        ("a\nü\n".encode("latin-1"), "must be text in UTF-8"),
        ("a\nb\n".encode("utf-16"), "must be text in UTF-8"),
        (b"a,b\n1,2\n1,2,3\n", "2 cells like the header, got 3 in row 3 of x.csv"),
        (b"a,b\n1\n", "2 cells like the header, got 1 in row 2"),
        (b"a,a\n1,2\n", "different names, got 'a' twice"),
        (b'a,b\n"1,2\n3,4\n', "unexpected end of data in line 3: check the quotes"),
    ],
)
def test_what_is_not_a_table_is_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_delimited(tmp_path / "x.csv")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"root must exist, got .*x\.csv"):
        read_delimited(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="with none: name the file"):
        read_delimited(tmp_path)


def test_columns_that_are_absent_or_have_holes_are_named(tmp_path):
    sheet = read_delimited(write(tmp_path / "x.csv", "Label,fold\na,1\n,2\n,3\n"))
    with pytest.raises(ValueError, match=r"got 'label': did you mean 'Label'\? it has Label, fold"):
        sheet.filled("label_column", "label")
    with pytest.raises(ValueError, match="'Label' must be filled, got nothing in row 3, 4: fill"):
        sheet.filled("label_column", "Label")
    assert sheet.optional("split_column", "split", "split") is None
    assert sheet.optional("split_column", None, "split") is None
    assert sheet.optional("split_column", "fold", "split") == ["1", "2", "3"]
    with pytest.raises(ValueError, match=r"split_column must be a column of x.csv, got 'part'"):
        sheet.optional("split_column", "part", "split")


def test_long_lists_are_cut_after_twenty():
    assert listed([1, 2]) == "1, 2"
    assert listed(range(25)).endswith(", 18, 19 … (25 in all)")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_keep_all_their_digits(values):
    assert numbers_of("a", texts_of(values)).tolist() == values


def test_a_single_precision_number_is_what_it_is():
    assert numbers_of("a", texts_of(np.array([0.1], np.float32))) == [np.float64(np.float32(0.1))]


def test_a_frame_and_a_file_give_the_same_texts():
    frame = pd.DataFrame({"a": [3.0, 1.5, None], "b": [True, False, True], "c": ["x ", "y", None]})
    assert texts_of(frame["a"]) == ["3", "1.5", ""]
    assert texts_of(frame["b"]) == ["True", "False", "True"]
    assert texts_of(frame["c"]) == ["x", "y", ""]
    assert texts_of(pd.array([1, None], dtype="Int64")) == ["1", ""]
    assert texts_of([None, pd.NaT, float("nan")]) == ["", "", ""]


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "NaN", "null", "None", "?"])
def test_what_is_missing_is_nan(missing):
    np.testing.assert_array_equal(numbers_if_all("a", ["1", missing]), [1, np.nan])


def test_booleans_are_numbers_and_other_words_are_not():
    np.testing.assert_array_equal(numbers_if_all("a", ["True", "false", "TRUE"]), [1, 0, 1])
    assert numbers_if_all("a", ["1", "yes"]) is None


def test_decimal_commas_are_not_guessed():
    with pytest.raises(ValueError, match="column 'a' must have decimal points, got '3,5': replace"):
        numbers_if_all("a", ["1", "3,5", "-0,25", ""])
    assert numbers_if_all("a", ["1", "3,5", "much"]) is None


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinity_is_refused(cell):
    with pytest.raises(ValueError, match=f"column 'a' must hold finite numbers, got '{cell}': "):
        numbers_if_all("a", ["1", cell])


def test_a_word_among_numbers_is_named_with_its_row():
    with pytest.raises(ValueError, match="column 'a' must hold finite numbers, got 'x' in row 3"):
        numbers_of("a", ["1", "x"], ["row 2", "row 3"])


FRAME = {
    "age": ["40", "50", "NA", "70", ""],
    "sex": ["f", "m", "f", "x", "m"],
    "ill": ["True", "False", "True", "True", "False"],
}
TRAIN = np.array([0, 1, 2])
ENCODING = TableEncoding.fit(FRAME, TRAIN)


def test_numbers_stay_and_categories_become_zeros_and_ones():
    assert ENCODING.names == ("age", "ill", "sex")
    assert ENCODING.columns == ("age", "age missing", "ill", "sex=f", "sex=m")
    expected = [
        [40, 0, 1, 1, 0],
        [50, 0, 0, 0, 1],
        [45, 1, 1, 1, 0],
        [70, 0, 1, 0, 0],
        [45, 1, 0, 0, 1],
    ]
    values = ENCODING.apply(FRAME)
    assert values.dtype == np.float64
    assert values.tolist() == expected


def test_only_the_training_rows_are_learned_from():
    other = deepcopy(FRAME)
    other["age"][3:], other["sex"][3:] = ["1000", "2000"], ["q", "r"]
    assert TableEncoding.fit(other, TRAIN) == ENCODING


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


def test_a_value_missing_only_later_is_the_median_without_an_indicator():
    encoding = TableEncoding.fit({"a": ["1", "3", ""]}, np.array([0, 1]))
    assert encoding.columns == ("a",)
    assert encoding.apply({"a": [None, 7]}).tolist() == [[2], [7]]


def test_an_unseen_category_is_told():
    (note,) = ENCODING.unseen(FRAME)
    assert "'sex' has values that training never saw, 'x': they count as none" in note
    assert ENCODING.unseen({"sex": ["f", "m"]}) == ()


def test_none_is_a_category_where_the_others_are_words():
    encoding = TableEncoding.fit({"pain": ["None", "mild", ""]}, np.arange(3))
    assert encoding.columns == ("pain=", "pain=mild", "pain=None")


def test_a_column_that_is_empty_in_training_is_left_out():
    encoding = TableEncoding.fit({"a": ["1", "2"], "b": ["", "5"]}, np.array([0]))
    assert encoding.names == ("a",)
    with pytest.raises(ValueError, match=r"columns must have values .* got \[\]"):
        TableEncoding.fit({"b": ["", "5"]}, np.array([0]))


def test_a_name_of_each_row_is_not_a_category():
    names = [f"patient {i}" for i in range(60)]
    with pytest.raises(
        ValueError, match=r"column 'who' must repeat .* got 60 in 60 .* name it in drop"
    ):
        TableEncoding.fit({"who": names}, np.arange(60))
    assert len(TableEncoding.fit({"who": names * 2}, np.arange(120)).columns) == 60
    assert len(TableEncoding.fit({"who": names[:50]}, np.arange(50)).columns) == 50


def test_other_columns_are_ignored_and_a_missing_one_is_named():
    frame = pd.DataFrame({"sex": ["m"], "more": [1], "ill": [True], "age": [44.5]})
    assert ENCODING.apply(frame).tolist() == [[44.5, 0, 1, 0, 1]]
    with pytest.raises(
        ValueError, match="must have the column 'age', got only sex, more, ill: the"
    ):
        ENCODING.apply(frame.drop(columns="age"))


def test_a_word_in_a_column_of_numbers_is_named_with_its_row():
    with pytest.raises(ValueError, match="'age' must hold finite numbers, got 'old' in row 2"):
        ENCODING.apply(FRAME | {"age": ["old"]}, ["row 2"])


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.lists(st.floats(-1e9, 1e9) | st.text(), min_size=4, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_it_survives_a_file(frame):
    frame["always"] = [1, 2, 3, 4]
    try:
        encoding = TableEncoding.fit(frame, np.arange(3))
    except ValueError:  # "1,5" or "inf" among the texts
        return
    again = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding
    assert again.columns == encoding.columns


def changed(place, value):
    data = ENCODING.to_json()
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
        [],
        "numeric",
        {},
        {"numeric": [], "categorical": []},
        {"numeric": 3, "categorical": []},
        {"numeric": ["age"], "categorical": []},
        changed(["numeric", 0, "median"], "45"),
        changed(["numeric", 0, "median"], True),
        changed(["numeric", 0, "median"], float("nan")),
        changed(["numeric", 0, "indicator"], 1),
        changed(["numeric", 0, "name"], 5),
        changed(["numeric", 0, "name"], "ill"),
        changed(["numeric", 0, "more"], 1),
        changed(["categorical", 0, "categories"], "fm"),
        changed(["categorical", 0, "categories"], ["f", 1]),
        changed(["categorical", 0, "categories"], ["f", "f"]),
        changed(["categorical", 0, "categories"], []),
    ],
)
def test_plain_data_of_another_kind_are_refused(data):
    with pytest.raises(ValueError, match="must"):
        TableEncoding.from_json(data)


SMALL = {"a": ["1", "2", "3"], "b": ["x", "y", "x"]}
SMALL_ENCODING = TableEncoding.fit(SMALL, np.arange(3))
ROWS = Rows(SMALL_ENCODING.apply(SMALL), ["row 2", "row 3", "row 4"], SMALL_ENCODING)


def test_a_subset_keeps_the_order_that_is_asked_for():
    few = ROWS.subset(np.array([2, 0]))
    assert len(few) == 2
    assert list(few.names) == ["row 4", "row 2"]
    assert few.values.tolist() == [[3, 1, 0], [1, 1, 0]]
    assert few.encoding is SMALL_ENCODING
    assert len(ROWS) == 3


def test_values_and_names_have_to_fit():
    with pytest.raises(ValueError, match=r"values must have the shape \(2, 3\), got \(3, 3\)"):
        Rows(ROWS.values, ["row 2", "row 3"], SMALL_ENCODING)
