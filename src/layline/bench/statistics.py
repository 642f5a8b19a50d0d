r"""Statistical tests of methods over data sets, after Demšar (JMLR 7, 2006).

Mean ranks with Friedman's test, and the critical difference of two mean ranks (Nemenyi): with
k methods on n data sets, and q the quantile of the studentised range divided by √2,

.. math:: \mathrm{CD} = q_{\alpha, k} \sqrt{\frac{k (k + 1)}{6 n}}

One method is compared with the others by Wilcoxon's signed-rank test with Holm's correction, and
by the bootstrap over data sets of the mean difference.
Frames of runs, metrics and decodings are those of :mod:`layline.bench.summaries`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from layline.bench.summaries import find_metric, finished_values, means, select_decoding
from layline.utils.errors import UserError
from layline.utils.validation import check_known

_DECIMALS = 12  # a smaller difference is a rounding error of floating point
_FEWEST = 5  # data sets; the bootstrap of fewer says nothing


@dataclass(frozen=True)
class MeanRanks:
    """The mean ranks of methods over data sets.

    Attributes:
        ranks: The mean rank of each method, the best first; 1 is the best possible.
        left_out: Methods without a number on some data set: they have no rank.
        num_data: Number of data sets.
        statistic: Of Friedman's test; None with fewer than three methods or two data sets.
        p: Of Friedman's test that all methods are alike; None likewise.
    """

    ranks: "pd.Series[float]"
    left_out: tuple[str, ...]
    num_data: int
    statistic: float | None
    p: float | None

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences that belong under a table of mean ranks."""
        notes = []
        if self.left_out:
            names = ", ".join(self.left_out)
            notes.append(f"Without a rank, as a number is missing on some data set: {names}.")
        if self.p is not None:
            notes.append(
                f"Friedman's test that {len(self.ranks)} methods are alike on {self.num_data} data "
                f"sets: χ² = {self.statistic:.2f}, p = {self.p:.2g}."
            )
        return tuple(notes)


def rank_methods(frame: pd.DataFrame, metric: str, decode: str) -> MeanRanks:
    """Rank the methods on each data set by their mean over seeds, and average."""
    table = means(frame, metric, decode)
    return mean_ranks(table, lower_is_better=find_metric(metric).lower_is_better)


def mean_ranks(table: pd.DataFrame, *, lower_is_better: bool) -> MeanRanks:
    """Rank the methods on each data set, and average. Equal numbers share their ranks.

    Only methods with a number on every data set are ranked, among themselves; the others are named.
    A data set on which no method has a number does not count.

    Args:
        table: A row per data set, a column per method, NaN where there is no number.
        lower_is_better: Whether the smallest number has rank 1.
    """
    table = table.dropna(how="all")
    ranked = [name for name in table.columns if len(table) and table[name].notna().all()]
    complete = table[ranked].round(_DECIMALS)
    ranks = complete.rank(axis="columns", ascending=lower_is_better)
    statistic, p = _friedman(complete)
    return MeanRanks(
        ranks=ranks.mean().sort_values(kind="stable").rename("mean rank"),
        left_out=tuple(str(name) for name in table.columns if name not in ranked),
        num_data=len(table),
        statistic=statistic,
        p=p,
    )


def _friedman(complete: pd.DataFrame) -> tuple[float | None, float | None]:
    """Test whether the methods differ at all."""
    if complete.shape[1] < 3 or len(complete) < 2:
        return None, None
    if (complete.nunique(axis="columns") == 1).all():  # scipy would divide by zero
        return 0.0, 1.0
    from scipy.stats import friedmanchisquare

    found = friedmanchisquare(*complete.to_numpy().T)
    return float(found.statistic), float(found.pvalue)


def critical_difference(k: int, n: int, alpha: float = 0.05) -> float:
    """Give the difference from which two mean ranks are significantly different (Nemenyi).

    Args:
        k: Number of methods.
        n: Number of data sets.
        alpha: The significance level.
    """
    if k < 2 or n < 1:
        raise UserError(f"k must be at least 2 and n at least 1, got k = {k} and n = {n}")
    if not 0 < alpha < 1:
        raise UserError(f"alpha must be between 0 and 1, got {alpha}")
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - alpha, k, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(k * (k + 1) / (6 * n)))


def cliques(ranks: "pd.Series[float]", difference: float) -> list[tuple[str, ...]]:
    """Find the largest groups of methods whose mean ranks are closer than the critical difference.

    A group has two or more methods, the best first, and none is within another.
    """
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
    """Compare every method with one of them, on the runs that both have finished.

    A method that fails on hard seeds would win if its mean were over fewer seeds than the other's.

    Returns:
        One row per other method: ``wins`` of it over the reference, ``ties`` and ``losses`` on data
        sets (a tie is written alike), the mean ``difference`` to the reference with its 95 %
        interval ``low`` to ``high``, see :func:`difference_interval`, the number of ``pairs``, the
        two-sided ``p`` of Wilcoxon's signed-rank test over data sets and ``p_holm``, corrected for
        the number of methods. What has no pair has NaN.
    """
    shown_as = find_metric(metric)
    check_known("reference", reference, list(frame["method"].unique()))
    runs = select_decoding(frame, decode)
    by_run = (
        runs.assign(value=finished_values(runs, metric))
        .pivot_table(index=["data", "seed"], columns="method", values="value", dropna=False)
        .reindex(columns=frame["method"].unique())
    )
    lines = {}
    for method in by_run.columns.drop(reference):
        both = by_run[[method, reference]].dropna().groupby("data").mean()
        shown = both.map(shown_as.shown)
        gain = (shown[method] - shown[reference]) * (-1 if shown_as.lower_is_better else 1)
        differences = both[method] - both[reference]
        low, high = difference_interval(differences.to_numpy())
        lines[method] = {
            "wins": int((gain > 0).sum()),
            "ties": int((gain == 0).sum()),
            "losses": int((gain < 0).sum()),
            "difference": differences.mean(),
            "low": low,
            "high": high,
            "pairs": len(differences),
            "p": signed_rank(differences.to_numpy()),
        }
    columns = ["wins", "ties", "losses", "difference", "low", "high", "pairs", "p"]
    found = pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("method")
    return found.assign(p_holm=holm(found["p"].to_numpy(dtype=np.float64)))


def difference_interval(
    differences: Float[np.ndarray, " n"], confidence: float = 0.95
) -> tuple[float, float]:
    """Bound the mean difference over data sets by the bias-corrected bootstrap (BCa).

    The data sets are drawn again, so it speaks of others of their kind. With fewer than five it is
    NaN; differences that are all equal give a point.
    """
    values = np.asarray(differences, dtype=np.float64).round(_DECIMALS)
    if len(values) < _FEWEST:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    from scipy.stats import bootstrap

    ends = bootstrap(
        (values,),
        np.mean,
        confidence_level=confidence,
        n_resamples=9999,
        method="BCa",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return float(ends.low), float(ends.high)


def signed_rank(differences: Float[np.ndarray, " n"]) -> float:
    """Give Wilcoxon's two-sided p that the differences are symmetric around zero.

    Differences of zero are left out; if all are zero, p is 1. Nothing to compare gives NaN.
    """
    differences = np.asarray(differences, dtype=np.float64).round(_DECIMALS)
    if len(differences) == 0:
        return float("nan")
    from scipy.stats import wilcoxon

    differences = differences[differences != 0]
    return float(wilcoxon(differences).pvalue) if len(differences) else 1.0


def holm(p: Sequence[float] | Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Correct several p for their number by Holm's step-down rule. NaN is no test, and stays."""
    raw = np.asarray(p, dtype=np.float64)
    corrected = np.full(raw.shape, np.nan)
    order = np.argsort(raw, kind="stable")  # NaN comes last
    order = order[~np.isnan(raw[order])]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return corrected
