import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from layline.data.tables.encoding import TableEncoding

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
