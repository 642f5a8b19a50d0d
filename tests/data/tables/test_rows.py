import numpy as np
import pytest

from layline.data.tables.encoding import TableEncoding
from layline.data.tables.rows import Rows

FRAME = {"a": ["1", "2", "3"], "b": ["x", "y", "x"]}
ENCODING = TableEncoding.fit(FRAME, np.arange(3))
ROWS = Rows(ENCODING.apply(FRAME), ["row 2", "row 3", "row 4"], ENCODING)


def test_a_subset_keeps_the_order_that_is_asked_for():
    few = ROWS.subset(np.array([2, 0]))
    assert len(few) == 2
    assert list(few.names) == ["row 4", "row 2"]
    assert few.values.tolist() == [[3, 1, 0], [1, 1, 0]]
    assert few.encoding is ENCODING
    assert len(ROWS) == 3


def test_values_and_names_have_to_fit():
    with pytest.raises(ValueError, match=r"values must have the shape \(2, 3\), got \(3, 3\)"):
        Rows(ROWS.values, ["row 2", "row 3"], ENCODING)
