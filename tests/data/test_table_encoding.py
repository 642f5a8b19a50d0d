"""How cells become numbers, and which encodings of model files are accepted."""

import json
from copy import deepcopy
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from layline.data.tables import TableEncoding, numbers_of, texts_of

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
            fit(["1", cell])
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


def test_a_column_that_is_empty_in_training_is_left_out():
    encoding = TableEncoding.fit(pd.DataFrame({"a": ["1", "2"], "b": ["", "5"]}), np.array([0]))
    assert encoding.names == ("a",)
    with pytest.raises(ValueError, match=r"no columns with values"):
        TableEncoding.fit(pd.DataFrame({"b": ["", "5"]}), np.array([0]))


def test_rows_are_named_by_their_id_where_they_have_one():
    frame = pd.DataFrame({"a": [1, 2, 3], "who": ["007", None, " x "]})
    encoding = TableEncoding.fit(frame, np.arange(3), "who")
    assert encoding.names == ("a",)
    rows = encoding.encode_rows(frame, ["row 2", "row 3", "row 4"])
    assert rows.names == ["007", "row 3", "x"]
    assert rows.subset(np.array([2, 0])).names == ["x", "007"]
    assert rows.subset(np.array([2, 0])).values.tolist() == [[3], [1]]
    assert encoding.encode_rows(frame[["a"]], ["1", "2", "3"]).names == ["1", "2", "3"]


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
        "numeric",
        {},
        {"numeric": [], "categorical": []},
        {"numeric": 3, "categorical": []},
        {"numeric": ["age"], "categorical": []},
        change(["numeric", 0, "median"], "45"),
        change(["numeric", 0, "median"], True),
        change(["numeric", 0, "median"], float("nan")),
        change(["numeric", 0, "indicator"], 1),
        change(["numeric", 0, "name"], 5),
        change(["numeric", 0, "name"], "ill"),
        change(["numeric", 0, "more"], 1),
        change(["categorical", 0, "categories"], "fm"),
        change(["categorical", 0, "categories"], ["f", 1]),
        change(["categorical", 0, "categories"], ["f", "f"]),
        change(["categorical", 0, "categories"], []),
        change(["id_column"], 5),
    ],
)
def test_a_damaged_encoding_is_refused(data):
    with pytest.raises(ValueError, match="is damaged"):
        TableEncoding.from_json(data)
