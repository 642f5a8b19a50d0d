r"""Statistics of many runs: means over seeds, mean ranks over data sets, and tests.

A ``frame`` of runs has one row per run and decoding: labels (such as ``data``, ``method`` and
``seed``), the decoding (``decode``), one column per metric, and ``error``, which is empty if the
run finished. The column ``labels`` has the number of labelled samples of each class, or "all".

The tests are those of Demšar (JMLR 7, 2006). Methods are compared by their mean ranks with
Friedman's test, and by the critical difference of two mean ranks (Nemenyi): with k methods on n
data sets, and q the quantile of the studentized range divided by √2,

.. math:: \mathrm{CD} = q_{\alpha, k} \sqrt{\frac{k (k + 1)}{6 n}}

One method is compared with the others by Wilcoxon's signed-rank test with Holm's correction, and
by a bootstrap over data sets of the mean difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from layline import metrics

ALL_LABELS: Final = "all"  # the usual values of the columns labels and stress
NO_STRESS: Final = "none"
_DECIMALS = 8  # a smaller difference is a rounding error
_LEVEL = 0.95  # of intervals
_MIN_DATA = 5  # data sets for a bootstrap interval


@dataclass(frozen=True)
class Metric:
    """How a column of results is shown and compared."""

    title: str  # label with the unit
    lower_is_better: bool  # False for scores such as the accuracy
    # the decoding with the best expected value; None if it needs no decoding
    decode: str | None = None
    digits: int = 3  # after the decimal point
    scale: float = 1.0  # factor from the values in results.csv to the unit of the title

    def own_decoding(self, decodings: Sequence[str]) -> str:
        """Choose the decoding with the best expected value, or the first if it is missing."""
        return self.decode if self.decode in decodings and self.decode else decodings[0]

    def title_with(self, decode: str) -> str:
        """Give the title and, where it matters, the decoding."""
        return f"{self.title}, {decode}" if self.decode else self.title

    def caption(self, decode: str) -> str:
        """Describe the metric, its direction and, where it matters, the decoding."""
        better = "lower" if self.lower_is_better else "higher"
        decoding = "" if self.decode is None else f", decoding: {decode}"
        return f"{self.title}, {better} is better{decoding}"


def _metric(name: str) -> Metric:
    known = metrics.METRICS[name]
    unit, digits, scale = (" (%)", 2, 100.0) if known.format.endswith("%") else ("", 3, 1.0)
    return Metric(known.label + unit, not known.higher_is_better, known.decode, digits, scale)


_SHOWN = ("mae", "macro_mae", "accuracy", "within_one", "qwk", "rps", "nll", "ece")
METRICS = {
    **{name: _metric(name) for name in _SHOWN},
    "range_width": Metric("Range width", lower_is_better=True, digits=2),
    "unimodality_rate": _metric("unimodality_rate"),
    "gap_recall": Metric("Recall (%)", False, "mode", 1, 100.0),
    "gap_mae": Metric("MAE of the class", lower_is_better=True, decode="median"),
    "seconds": Metric("Seconds", lower_is_better=True, digits=1),
}


def select_decoding(frame: pd.DataFrame, decode: str) -> pd.DataFrame:
    """Keep the rows of one decoding."""
    return frame[frame["decode"] == decode]


def finished_values(frame: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """Give the values of a metric, NaN for runs that failed."""
    return frame[metric].where(frame["error"].fillna("") == "")


def select_runs(frame: pd.DataFrame, tune_seeds: Sequence[int] = ()) -> pd.DataFrame:
    """Keep the runs that are compared: of the tuned settings, the best on validation.

    A setting is chosen for each data set, method, recipe, backbone, number of labels, stress test
    and seed, or once for all seeds by the mean over ``tune_seeds``. One with a failed run is chosen
    only if every setting has one.
    Each of several backbones counts as a data set; a method with each recipe as a method.
    """
    chosen = best_settings(frame, tune_seeds)
    selected = frame.merge(chosen, on=list(chosen.columns), how="inner")
    several = selected.groupby("data")["backbone"].transform("nunique") > 1
    both = selected["data"] + " · " + selected["backbone"]
    method = selected["method"]
    if selected["recipe"].nunique() > 1:
        method = method + " · " + selected["recipe"]
    return selected.assign(data=selected["data"].where(~several, both), method=method)


def standard_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the runs with all labels, or else with the most, and without a stress test."""
    size, stress = label_counts(frame)[-1], frame["stress"].unique()
    kept = NO_STRESS if NO_STRESS in stress else stress[0]
    return frame[(frame["labels"] == size) & (frame["stress"] == kept)]


def label_counts(frame: pd.DataFrame) -> list[str]:
    """List the numbers of labels in ascending order, "all" last."""
    return sorted(frame["labels"].unique(), key=lambda n: np.inf if n == ALL_LABELS else int(n))


def best_settings(frame: pd.DataFrame, tune_seeds: Sequence[int] = ()) -> pd.DataFrame:
    """Find the labels of the best settings on validation, see :func:`select_runs`."""
    runs = frame.assign(criterion=frame["criterion"].fillna(float("inf")))
    by = ["data", "method", "recipe", "backbone", "labels", "stress"]
    if tune_seeds:
        runs = runs[runs["seed"].isin([str(seed) for seed in tune_seeds])]
    else:
        by.append("seed")
    runs = runs.drop_duplicates([*by, "setting", "seed"])  # it is the same for every decoding
    scores = runs.groupby([*by, "setting"], sort=False, as_index=False)["criterion"].mean()
    scores["criterion"] = scores["criterion"].round(12)  # so that rounding errors decide nothing
    best = scores.groupby(by, sort=False)["criterion"].idxmin()
    return scores.loc[best, [*by, "setting"]]


def summary(frame: pd.DataFrame, metric: str, by: Sequence[str]) -> pd.DataFrame:
    """Summarize a metric over the runs that share the labels ``by``, one row per group.

    ``sd`` has the population form, as in the paper's tables; ``error`` is the type of the error of
    a run without a number.
    """
    values = finished_values(frame, metric)
    # the type of an error, as in "FloatingPointError: the loss is NaN"
    errors = frame["error"].fillna("").astype(str).str.partition(":")[0].str.strip()
    errors = errors.mask((errors == "") & values.isna(), "undefined")
    runs = frame[list(by)].assign(value=values, error=errors, failed=(errors != "").astype(int))
    groups = runs.groupby(list(by), sort=False, dropna=False)
    return pd.DataFrame(
        {
            "mean": groups["value"].mean(),
            "sd": groups["value"].std(ddof=0),
            "n": groups["value"].count(),
            "failed": groups["failed"].sum(),
            "error": groups["error"].max(),  # any text is greater than an empty one
        }
    )


def means(frame: pd.DataFrame, metric: str, decode: str) -> pd.DataFrame:
    """Average a metric over the seeds: a row per data set, a column per method.

    A mean is NaN if any of its runs failed: the remaining seeds may be the easy ones.
    """
    groups = summary(select_decoding(frame, decode), metric, by=("data", "method"))
    return (
        groups["mean"]
        .where(groups["failed"] == 0)
        .unstack("method")
        .reindex(index=frame["data"].unique(), columns=frame["method"].unique())
        .rename_axis(index="data", columns="method")
    )


@dataclass(frozen=True)
class MeanRanks:
    """The mean ranks of methods over data sets."""

    # the mean rank of each method, the best first; 1 is the best possible
    ranks: "pd.Series[float]"
    left_out: tuple[str, ...]  # methods without a number on some data set: they have no rank
    num_data: int
    statistic: float | None  # Friedman's χ²; None with fewer than three methods or two data sets
    p: float | None  # p-value of Friedman's test that all methods are equal, or None

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences that belong under a table of mean ranks."""
        notes = []
        if self.left_out:
            names = ", ".join(self.left_out)
            notes.append(f"Without a rank, because a number is missing on some data set: {names}.")
        if self.p is not None:
            notes.append(
                f"Friedman's test that {len(self.ranks)} methods are equal on {self.num_data} data "
                f"sets: χ² = {self.statistic:.2f}, p = {self.p:.2g}."
            )
        return tuple(notes)


def rank_methods(frame: pd.DataFrame, metric: str, decode: str) -> MeanRanks:
    """Rank the methods on each data set by their mean over seeds, and average the ranks."""
    table = means(frame, metric, decode)
    return mean_ranks(table, lower_is_better=METRICS[metric].lower_is_better)


def mean_ranks(table: pd.DataFrame, *, lower_is_better: bool) -> MeanRanks:
    """Average the ranks of the methods that have a number on every data set where any has one."""
    table = table.dropna(how="all")
    complete = table.dropna(axis="columns").round(_DECIMALS) if len(table) else table.iloc[:, :0]
    statistic, p = None, None
    if complete.shape[1] > 2 and len(complete) > 1:
        statistic, p = 0.0, 1.0
        if (complete.nunique(axis="columns") > 1).any():  # else scipy would divide by zero
            statistic, p = map(float, scipy.stats.friedmanchisquare(*complete.to_numpy().T))
    ranks = complete.rank(axis="columns", ascending=lower_is_better).mean()
    return MeanRanks(
        ranks=ranks.sort_values(kind="stable").rename("mean rank"),
        left_out=tuple(str(name) for name in table.columns.difference(complete.columns, False)),
        num_data=len(table),
        statistic=statistic,
        p=p,
    )


def critical_difference(k: int, n: int, alpha: float = 0.05) -> float:
    """Compute the difference from which on two mean ranks differ significantly (Nemenyi)."""
    q = scipy.stats.studentized_range.ppf(1 - alpha, k, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(k * (k + 1) / (6 * n)))


def cliques(ranks: "pd.Series[float]", difference: float) -> list[tuple[str, ...]]:
    """Find the largest groups of methods whose mean ranks are closer than the difference."""
    ordered = ranks.sort_values(kind="stable")
    values = ordered.to_numpy(dtype=np.float64)
    groups, reached = [], 0
    for start, value in enumerate(values):
        # the first method that is too far from this one
        end = int(np.searchsorted((values - value).round(_DECIMALS), difference))
        if end - start > 1 and end > reached:
            groups.append(tuple(str(name) for name in ordered.index[start:end]))
        reached = max(reached, end)
    return groups


def compare_with_reference(
    frame: pd.DataFrame, reference: str, metric: str, decode: str
) -> pd.DataFrame:
    """Compare every method with the reference, on the runs that both have finished.

    There is one row per other method. Ties are numbers that are equal in tables; ``low`` to
    ``high`` is the interval of the mean ``difference``; ``pairs`` are data sets.
    """
    shown_as = METRICS[metric]
    runs = select_decoding(frame, decode)
    by_run = (
        runs.assign(value=finished_values(runs, metric))
        .pivot_table(index=["data", "seed"], columns="method", values="value", dropna=False)
        .reindex(columns=frame["method"].unique())
    )
    lines = {}
    for method in by_run.columns.drop(reference):
        both = by_run[[method, reference]].dropna().groupby("data").mean()
        shown = both.map(lambda value: float(f"{value * shown_as.scale:.{shown_as.digits}f}"))
        gain = (shown[method] - shown[reference]) * (-1 if shown_as.lower_is_better else 1)
        differences = (both[method] - both[reference]).to_numpy()
        lines[method] = [
            *(int((gain > 0).sum()), int((gain == 0).sum()), int((gain < 0).sum())),
            *(differences.mean() if len(both) else np.nan, *difference_interval(differences)),
            *(len(both), signed_rank(differences)),
        ]
    columns = ["wins", "ties", "losses", "difference", "low", "high", "pairs", "p"]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("method")
    return table.assign(p_holm=holm(table["p"].to_numpy(dtype=np.float64)))


def difference_interval(differences: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Compute the 95 % bootstrap interval of the mean; NaN with fewer than five data sets."""
    values = np.asarray(differences, dtype=np.float64).round(_DECIMALS)
    if len(values) < _MIN_DATA:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    # the defaults are 9999 resamples and BCa
    draws = {"confidence_level": _LEVEL, "random_state": np.random.default_rng(0)}
    ends = scipy.stats.bootstrap((values,), np.mean, **draws).confidence_interval
    return float(ends.low), float(ends.high)


def signed_rank(differences: Float[np.ndarray, " n"]) -> float:
    """Compute Wilcoxon's two-sided p without zeros; 1 if all are zero, NaN if there are none."""
    differences = np.asarray(differences, dtype=np.float64).round(_DECIMALS)
    if len(differences) == 0:
        return float("nan")
    differences = differences[differences != 0]
    return float(scipy.stats.wilcoxon(differences).pvalue) if len(differences) else 1.0


def holm(p: Sequence[float] | Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Correct several p-values for their number by Holm's step-down rule; NaN stays NaN."""
    ordered = pd.Series(np.asarray(p, dtype=np.float64)).dropna().sort_values()
    corrected = (ordered * np.arange(len(ordered), 0, -1)).cummax().clip(upper=1)
    return np.asarray(corrected.reindex(range(len(p))))
