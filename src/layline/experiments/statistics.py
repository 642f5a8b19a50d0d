"""One method against the others: wins, Wilcoxon's signed-rank test, and Holm's correction."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from layline.experiments.measures import measure_of
from layline.experiments.ranks import SAME
from layline.experiments.summaries import of_decoding
from layline.registry import check_known

Pairs = Literal["data", "runs"]


def against(
    frame: pd.DataFrame,
    reference: str,
    metric: str,
    decode: str,
    pairs: Pairs = "data",
    tolerance: float | None = None,
) -> pd.DataFrame:
    """Compare every method with one of them, on the runs that both have finished.

    A method that fails where others do badly would win if its mean were of fewer seeds than theirs.

    Args:
        frame: One row per run and decoding.
        reference: The method that the others are compared with.
        metric: What is compared, in its own unit.
        decode: How distributions became ranks.
        pairs: What is paired: the means over seeds on each data set, or single runs of the same
            data set and seed. Runs on one data set are not independent, so that the second gives
            smaller p than it should.
        tolerance: Means that differ by no more are a tie. Without it, means that are written alike.

    Returns:
        One row per other method: ``wins`` of it over the reference, ``ties`` and ``losses`` on data
        sets, the mean ``difference`` to the reference over data sets, the number of ``pairs``, the
        two-sided ``p`` of Wilcoxon's signed-rank test and ``p_holm``, corrected for the number of
        methods. What has no pair has NaN.
    """
    measure = measure_of(metric)
    check_known("reference", reference, list(frame["method"].unique()))
    check_known("pairs", pairs, ["data", "runs"])
    by_run = _by_run(frame, metric, decode)
    lines = {}
    for method in by_run.columns.drop(reference):
        runs = by_run[[method, reference]].dropna()
        both = runs.groupby("data").mean()
        paired = both if pairs == "data" else runs
        shown = both if tolerance is not None else both.map(measure.shown)
        gain = (shown[method] - shown[reference]) * (-1 if measure.lower_is_better else 1)
        gain = gain.where(gain.abs().round(SAME) > (tolerance or 0.0), 0.0)
        differences = (paired[method] - paired[reference]).to_numpy()
        lines[method] = {
            "wins": int((gain > 0).sum()),
            "ties": int((gain == 0).sum()),
            "losses": int((gain < 0).sum()),
            "difference": (both[method] - both[reference]).mean(),
            "pairs": len(differences),
            "p": signed_rank(differences),
        }
    columns = ["wins", "ties", "losses", "difference", "pairs", "p"]
    found = pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("method")
    return found.assign(p_holm=holm(found["p"].to_numpy(dtype=np.float64)))


def signed_rank(differences: Float[np.ndarray, " n"]) -> float:
    """Give Wilcoxon's two-sided p that the differences are symmetric around zero.

    Differences of zero say nothing and are left out; if all are zero, p is 1. Nothing to compare
    gives NaN.
    """
    differences = np.asarray(differences, dtype=np.float64).round(SAME)
    if len(differences) == 0:
        return float("nan")
    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue)


def holm(p: Sequence[float] | Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Correct several p for their number by Holm's step-down rule. NaN is no test, and stays."""
    raw = np.asarray(p, dtype=np.float64)
    corrected = np.full(raw.shape, np.nan)
    order = np.argsort(raw, kind="stable")  # NaN comes last
    order = order[~np.isnan(raw[order])]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return corrected


def _by_run(frame: pd.DataFrame, metric: str, decode: str) -> pd.DataFrame:
    """Give one row per data set and seed, one column per method."""
    runs = of_decoding(frame, decode)
    finished = runs.assign(value=runs[metric].where(runs["error"].fillna("") == ""))
    found = finished.pivot_table(
        index=["data", "seed"], columns="method", values="value", aggfunc="mean", dropna=False
    )
    return found.reindex(columns=frame["method"].unique())
