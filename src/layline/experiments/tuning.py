"""The same tuning for every method: of the settings tried, the one that validation prefers."""

import pandas as pd

RUN = ["data", "method", "features", "seed", "decode"]


def tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep, for each data set, method, features and seed, the setting with the lowest error.

    The error is that of the validation part; the first of equal ones is kept. The test part has no
    say. A setting whose run failed is no candidate, unless all of them failed.

    Args:
        frame: What :meth:`layline.experiments.store.Store.frame` gives, settings in their order.
    """
    by_error = frame.assign(_error=frame["validation_mae"].fillna(float("inf")))
    first = by_error.groupby(RUN, sort=False)["_error"].idxmin()
    return frame.loc[first.sort_values()].reset_index(drop=True)
