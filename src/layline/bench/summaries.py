"""Summaries of many runs: means over seeds, standard deviations and Student's intervals.

A ``frame`` of runs has one row per run and decoding: labels (``data``, ``method``, ``seed``), the
``decode``, one column per metric in its own unit, and ``error``, which is empty if the run
finished. A ``metric`` is named by its column, and ``decode`` says which rows are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from layline import metrics
from layline.utils.errors import UserError
from layline.utils.validation import check_known, find_known

UNDEFINED = "undefined"  # the error of a run that finished without this number
POOLED = "all"  # the name of the mean over data sets, in place of a data set's


@dataclass(frozen=True)
class Metric:
    """How a metric is shown and compared.

    Attributes:
        title: With the unit.
        lower_is_better: Whether it is an error, rather than a success.
        decode: The decoding that does best by it; None if it does not depend on how a distribution
            becomes a rank.
        digits: After the decimal point.
        scale: Factor from the metric's own unit to that of the title.
    """

    title: str
    lower_is_better: bool
    decode: str | None = None
    digits: int = 3
    scale: float = 1.0

    @property
    def decoded(self) -> bool:
        """Whether it depends on how a distribution becomes a rank."""
        return self.decode is not None

    def own_decoding(self, decodings: Sequence[str]) -> str:
        """Choose the decoding that it asks for among those that runs were read by."""
        return self.decode if self.decode is not None and self.decode in decodings else decodings[0]

    def shown(self, value: float) -> float:
        """Give a value in the unit of the title, rounded as it is written."""
        return float(f"{value * self.scale:.{self.digits}f}")

    def caption(self, decode: str) -> str:
        """Say what is shown, which end is better and, where it matters, the decoding."""
        better = "lower" if self.lower_is_better else "higher"
        decoding = f", decoding by the {decode}" if self.decoded else ""
        return f"{self.title}, {better} is better{decoding}"


def _displayed(name: str) -> Metric:
    known = metrics.METRICS[name]
    unit, digits, scale = (" (%)", 2, 100.0) if known.is_share else ("", 3, 1.0)
    return Metric(known.label + unit, not known.higher_is_better, known.decode, digits, scale)


_BEFORE_RANGES = ("mae", "macro_mae", "accuracy", "within_one", "qwk", "rps", "nll", "ece")
METRICS = {
    **{name: _displayed(name) for name in _BEFORE_RANGES},
    "range_width": Metric("Range width", lower_is_better=True, digits=2),
    "unimodality_rate": _displayed("unimodality_rate"),
    "seconds": Metric("Seconds", lower_is_better=True, digits=1),
}


def find_metric(name: str) -> Metric:
    """Look a metric up by its column in a frame of runs."""
    return find_known("metric", name, METRICS)


def measured(frame: pd.DataFrame) -> dict[str, Metric]:
    """Give the metrics that the runs of a frame have; earlier versions wrote fewer."""
    finished = frame["error"].fillna("") == ""
    return {
        name: metric
        for name, metric in METRICS.items()
        if name in frame and (frame[name].notna().any() or not finished.any())
    }


def select_decoding(frame: pd.DataFrame, decode: str) -> pd.DataFrame:
    """Keep the rows of one decoding. A run that failed before it was decoded belongs to each."""
    names = frame["decode"].fillna("")
    check_known("decode", decode, [name for name in names.unique() if name])
    return frame[names.isin((decode, ""))]


def finished_values(frame: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Give the values of a metric, NaN for runs that failed."""
    return frame[metric].where(frame["error"].fillna("") == "")


def summary(frame: pd.DataFrame, metric: str, by: Sequence[str]) -> pd.DataFrame:
    """Summarise one metric over the runs that share the labels ``by``.

    Returns:
        One row per group, in the order of the frame: ``mean``, ``sd`` (in the population form, as
        in the paper's tables), ``n`` (runs with a number), ``failed`` (runs without), ``error``
        (the most frequent kind among those).
    """
    values = finished_values(frame, metric)
    # the kind of an error, as in "FloatingPointError: the loss is NaN"
    errors = frame["error"].fillna("").astype(str).str.partition(":")[0].str.strip()
    errors = errors.mask((errors == "") & values.isna(), UNDEFINED)
    runs = frame[list(by)].assign(value=values, error=errors, failed=(errors != "").astype(int))
    groups = runs.groupby(list(by), sort=False, dropna=False)
    found = pd.DataFrame(
        {
            "mean": groups["value"].mean(),
            "sd": groups["value"].std(ddof=0),
            "n": groups["value"].count(),
            "failed": groups["failed"].sum(),
            "error": "",
        }
    )
    failures = runs[runs["failed"] > 0]
    if len(failures):  # which is rare, and takes long: the most frequent, the first of equal ones
        kinds = failures.groupby(list(by), sort=False, dropna=False)["error"]
        common = kinds.agg(lambda errors: str(errors.mode().iloc[0]))
        found["error"] = common.reindex(found.index).fillna("")
    return found


def means(frame: pd.DataFrame, metric: str, decode: str) -> pd.DataFrame:
    """Average one metric over the seeds: a row per data set, a column per method.

    Where a run failed it is NaN: the mean of the other seeds, perhaps the easy ones, cannot be
    compared. Rows and columns keep the order of the frame.
    """
    found = summary(select_decoding(frame, decode), metric, by=("data", "method"))
    return (
        found["mean"]
        .where(found["failed"] == 0)
        .unstack("method")
        .reindex(index=frame["data"].unique(), columns=frame["method"].unique())
        .rename_axis(index="data", columns="method")
    )


def student_interval(
    values: Float[np.ndarray, " n"], confidence: float = 0.95
) -> tuple[float, float]:
    """Bound the mean by Student's t: right for few values that are roughly normal.

    A single value, or equal ones, give a point: nothing is known of their spread. No values give
    NaN.
    """
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise UserError(
            f"values must be finite, got {values.tolist()}: leave out the runs that failed"
        )
    if not 0 < confidence < 1:
        raise UserError(f"confidence must be between 0 and 1, got {confidence}")
    if len(values) == 0:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    from scipy.stats import sem, t

    half = float(t.ppf((1 + confidence) / 2, len(values) - 1) * sem(values))
    mean = float(values.mean())
    return mean - half, mean + half


def intervals(
    frame: pd.DataFrame,
    metric: str,
    decode: str,
    confidence: float = 0.95,
    *,
    pooled: bool = False,
) -> pd.DataFrame:
    """Bound the mean over seeds of every method by Student's t.

    Pooled, the runs are averaged over data sets first, seed by seed, where a seed finished on every
    data set of the frame; the data set is then called ``all``.

    Returns:
        One row per data set and method: ``mean``, ``low``, ``high``, ``n``.
    """
    runs = select_decoding(frame, decode)
    values = runs[["data", "method", "seed"]].assign(value=finished_values(runs, metric))
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
        lines.append((data, method, mean, *student_interval(found, confidence), len(found)))
    columns = ["data", "method", "mean", "low", "high", "n"]
    return pd.DataFrame(lines, columns=columns).set_index(["data", "method"])
