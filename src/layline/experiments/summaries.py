"""What many runs say together: means, their spread, and how sure they are.

A frame of runs has one row per run and decoding: labels (``data``, ``method``, ``seed``), the
``decode``, one column per metric, and ``error``, which is empty if the run finished.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from layline.registry import check_known

UNDEFINED = "undefined"  # the kind of error of a run that finished without this number

POOLED = "all"  # what stands in the place of a data set for the mean over them


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


def of_decoding(frame: pd.DataFrame, decode: str) -> pd.DataFrame:
    """Keep the rows of one decoding. A run that failed before it was decoded belongs to each."""
    names = frame["decode"].fillna("")
    check_known("decode", decode, [name for name in names.unique() if name])
    return frame[names.isin((decode, ""))]


def summary(
    frame: pd.DataFrame,
    metric: str,
    by: Sequence[str] = ("data", "method", "decode"),
    ddof: int = 0,
) -> pd.DataFrame:
    """Summarise one metric over the runs that share their labels.

    Args:
        frame: One row per run and decoding.
        metric: The column to summarise, in its own unit.
        by: The labels that a group shares; the groups keep the order of the frame.
        ddof: What is taken from the number of runs to divide the squares: 0 is the standard
            deviation of these runs, as in the paper's tables, 1 estimates that of all runs.

    Returns:
        One row per group: ``mean``, ``sd`` (NaN where there are too few runs), ``n`` (runs with a
        number), ``failed`` (runs without), ``error`` (the kind that most of those had).
    """
    values = frame[metric].where(frame["error"].fillna("") == "")
    runs = frame[list(by)].assign(value=values, kind=_kinds(frame["error"], values))
    groups = runs.groupby(list(by), sort=False, dropna=False)
    return pd.DataFrame(
        {
            "mean": groups["value"].mean(),
            "sd": groups["value"].std(ddof=ddof),
            "n": groups["value"].count(),
            "failed": groups["kind"].agg(lambda kinds: int((kinds != "").sum())),
            "error": groups["kind"].agg(_commonest),
        }
    )


def means(frame: pd.DataFrame, metric: str, decode: str) -> pd.DataFrame:
    """Average one metric over the seeds: a row per data set, a column per method.

    NaN stands where a run failed: a mean over fewer seeds, perhaps the easy ones, is no match for
    the others. Rows and columns keep the order of the frame.
    """
    found = summary(of_decoding(frame, decode), metric, by=("data", "method"))
    return (
        found["mean"]
        .where(found["failed"] == 0)
        .unstack("method")
        .reindex(index=frame["data"].unique(), columns=frame["method"].unique())
        .rename_axis(index="data", columns="method")
    )


def bootstrap_interval(
    values: Float[np.ndarray, " n"],
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Bound the mean by the percentiles of the means of samples drawn with replacement.

    A single value, or equal ones, give a point: nothing is known of their spread. No values give
    NaN.

    Args:
        values: One number per run.
        confidence: The share of the drawn means within the interval.
        resamples: How many means are drawn.
        seed: Of the draws; the same seed gives the same interval.
    """
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(
            f"values must be finite, got {values.tolist()}: leave out the runs that failed"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if len(values) == 0:
        return Interval(float("nan"), float("nan"))
    if np.ptp(values) == 0:
        return Interval(float(values[0]), float(values[0]))
    from scipy.stats import bootstrap

    found = bootstrap(
        (values,),
        np.mean,
        confidence_level=confidence,
        n_resamples=resamples,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def intervals(
    frame: pd.DataFrame,
    metric: str,
    decode: str,
    confidence: float = 0.95,
    *,
    pooled: bool = False,
) -> pd.DataFrame:
    """Bound the mean over seeds of every method by the bootstrap.

    Args:
        frame: One row per run and decoding.
        metric: What is averaged, in its own unit.
        decode: How distributions became ranks.
        confidence: Of the intervals.
        pooled: Whether the runs are averaged over data sets first, seed by seed, where a seed
            finished on every data set of the frame.

    Returns:
        One row per data set and method: ``mean``, ``low``, ``high``, ``n``. Pooled, the data set is
        called ``all``.
    """
    runs = of_decoding(frame, decode)
    values = runs[["data", "method", "seed"]].assign(
        value=runs[metric].where(runs["error"].fillna("") == "")
    )
    if pooled:
        by_data = values.pivot_table(
            index=["method", "seed"], columns="data", values="value", sort=False, dropna=False
        ).reindex(columns=frame["data"].unique())
        values = by_data.mean(axis="columns", skipna=False).rename("value").reset_index()
        values = values.assign(data=POOLED)
    lines = []
    for (data, method), group in values.groupby(["data", "method"], sort=False):
        found = group["value"].dropna().to_numpy(dtype=np.float64)
        mean = found.mean() if len(found) else float("nan")
        low, high = bootstrap_interval(found, confidence)
        lines.append((data, method, mean, low, high, len(found)))
    columns = ["data", "method", "mean", "low", "high", "n"]
    return pd.DataFrame(lines, columns=columns).set_index(["data", "method"])


def _kinds(errors: Any, values: Any) -> Any:
    """Name the kind of each run's error, as in ``FloatingPointError: the loss is NaN``."""
    kinds = errors.fillna("").astype(str).str.partition(":")[0].str.strip()
    return kinds.mask((kinds == "") & values.isna(), UNDEFINED)


def _commonest(kinds: Any) -> str:
    """Choose the error that most runs had, the first in the alphabet among equals."""
    failures = kinds[kinds != ""]
    return "" if failures.empty else str(failures.mode().iloc[0])
