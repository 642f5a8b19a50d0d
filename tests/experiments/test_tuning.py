"""Tuning takes what validation prefers, and the test part has no say."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from layline.experiments.results import judged
from layline.experiments.tuning import RUN, tuned


def made_up(errors: list[list[float]]) -> pd.DataFrame:
    """One row per seed and setting; what the test says is drawn."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            **{"data": "d", "method": "m", "features": "f", "decode": decode, "error": ""},
            **{"seed": str(seed), "setting": str(setting), "validation_mae": error},
            "mae": rng.random(),
        }
        for seed, row in enumerate(errors)
        for setting, error in enumerate(row)
        for decode in ("mode", "median")
    )


@given(st.lists(st.lists(st.floats(0, 3), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_first_of_the_lowest_is_taken(errors):
    frame = made_up(errors)
    kept = tuned(frame)
    assert len(kept) == 2 * len(errors)
    assert not kept.duplicated(RUN).any()
    for seed, row in enumerate(errors):
        assert set(kept[kept["seed"] == str(seed)]["setting"]) == {str(int(np.argmin(row)))}


def test_the_test_part_has_no_say():
    frame = made_up([[0.5, 0.4, 0.6]] * 3)
    upside_down = frame.assign(mae=1 - frame["mae"])
    assert list(tuned(frame)["setting"]) == list(tuned(upside_down)["setting"])


def test_a_failed_setting_is_taken_only_if_all_failed():
    frame = made_up([[np.nan, 0.4, 0.6], [np.nan, np.nan, np.nan]])
    frame.loc[frame["validation_mae"].isna(), "error"] = "MemoryError: too much"
    kept = tuned(frame).query("decode == 'mode'").set_index("seed")
    assert kept.loc["0", "setting"] == "1"
    assert kept.loc["1", "error"] == "MemoryError: too much"


def test_order_is_kept():
    frame = made_up([[0.1, 0.2]] * 4)
    assert list(tuned(frame)["seed"]) == [s for s in "0123" for _ in range(2)]


def test_several_features_are_several_data_sets():
    frame = pd.concat([made_up([[0.5]]), made_up([[0.5]]).assign(features="g")], ignore_index=True)
    assert set(judged(frame)["data"]) == {"d · f", "d · g"}
    assert set(judged(made_up([[0.5]]))["data"]) == {"d"}
