"""Wherever the cells run, the numbers are the same."""

import pandas as pd
import pytest

from layline.experiments.engines import Executor


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "dask", "ray"])
def test_every_engine_gives_the_same_numbers(grid, tmp_path, undisturbed, name, go, results):
    failed, said = go(grid, tmp_path, Executor(name, jobs=2))
    assert failed == []
    assert "4/4" in said
    pd.testing.assert_frame_equal(results(grid, tmp_path), undisturbed(grid))


def test_the_local_engine_has_no_address():
    with (
        pytest.raises(ValueError, match="address must be left out"),
        Executor("local", 1, "tcp://").start(),
    ):
        pass


def test_an_unknown_engine_is_named():
    wrong = r"engine must be a known name, got 'dusk': did you mean dask"
    with pytest.raises(ValueError, match=wrong), Executor("dusk").start():
        pass
