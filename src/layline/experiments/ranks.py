r"""Where methods stand on average over data sets, after Demšar (JMLR 7, 2006).

Mean ranks with the test of Friedman, and from which difference two of them differ (Nemenyi): with
k methods on n data sets, and q the quantile of the studentised range divided by √2,

.. math:: \mathrm{CD} = q_{\alpha, k} \sqrt{\frac{k (k + 1)}{6 n}}
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from layline.experiments.measures import measure_of
from layline.experiments.summaries import means

SAME = 12  # digits after which a difference is an accident of floating point


@dataclass(frozen=True)
class Ranking:
    """Where methods stand on average over data sets.

    Attributes:
        ranks: The mean rank of each method, the best first; 1 is the best there is.
        left_out: Methods without a number on some data set: they have no rank.
        data: How many data sets.
        statistic: Of Friedman's test; None with fewer than three methods or two data sets.
        p: How likely ranks so different are if all methods are alike; None likewise.
    """

    ranks: "pd.Series[float]"
    left_out: tuple[str, ...]
    data: int
    statistic: float | None
    p: float | None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is to be said under mean ranks."""
        found = []
        if self.left_out:
            names = ", ".join(self.left_out)
            found.append(f"Some run failed or is missing, and so without a rank: {names}.")
        if self.p is not None:
            found.append(
                f"Friedman's test that {len(self.ranks)} methods are alike on {self.data} data "
                f"sets: χ² = {self.statistic:.2f}, p = {self.p:.2g}."
            )
        return tuple(found)


def ranking_of(frame: pd.DataFrame, metric: str, decode: str) -> Ranking:
    """Rank the methods on each data set by their mean over seeds, and average.

    Args:
        frame: One row per run and decoding.
        metric: What is ranked.
        decode: How distributions became ranks.
    """
    table = means(frame, metric, decode)
    return mean_ranks(table, lower_is_better=measure_of(metric).lower_is_better)


def mean_ranks(table: pd.DataFrame, *, lower_is_better: bool) -> Ranking:
    """Rank the methods on each data set, and average. Equal numbers share their ranks.

    Only methods with a number on every data set are ranked, among themselves; the others are named.
    A data set on which no method has a number does not count.

    Args:
        table: A row per data set, a column per method, NaN where there is no number.
        lower_is_better: Whether the smallest number has rank 1.
    """
    table = table.dropna(how="all")
    ranked = [name for name in table.columns if len(table) and table[name].notna().all()]
    complete = table[ranked].round(SAME)
    places = complete.rank(axis="columns", ascending=lower_is_better)
    statistic, p = _friedman(complete)
    return Ranking(
        ranks=places.mean().sort_values(kind="stable").rename("mean rank"),
        left_out=tuple(str(name) for name in table.columns if name not in ranked),
        data=len(table),
        statistic=statistic,
        p=p,
    )


def critical_difference(k: int, n: int, alpha: float = 0.05) -> float:
    """Give the difference from which two mean ranks are significantly different (Nemenyi).

    Args:
        k: Number of methods.
        n: Number of data sets.
        alpha: How often a difference may be found where there is none.
    """
    if k < 2 or n < 1:
        raise ValueError(f"k must be at least 2 and n at least 1, got k = {k} and n = {n}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - alpha, k, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(k * (k + 1) / (6 * n)))


def cliques(ranks: "pd.Series[float]", difference: float) -> list[tuple[str, ...]]:
    """Find the largest groups of methods whose mean ranks differ by less than the difference.

    Args:
        ranks: The mean rank of each method.
        difference: From which on two of them are different.

    Returns:
        Groups of two or more, each with its best method first; none is within another.
    """
    ordered = ranks.sort_values(kind="stable")
    values = ordered.to_numpy(dtype=np.float64)
    groups, reached = [], 0
    for start, value in enumerate(values):
        end = int(np.searchsorted((values - value).round(SAME), difference))  # the first too far
        if end - start > 1 and end > reached:
            groups.append(tuple(str(name) for name in ordered.index[start:end]))
        reached = max(reached, end)
    return groups


def _friedman(complete: pd.DataFrame) -> tuple[float | None, float | None]:
    """Test whether the methods differ at all."""
    if complete.shape[1] < 3 or len(complete) < 2:
        return None, None
    if (complete.nunique(axis="columns") == 1).all():  # every method is alike everywhere
        return 0.0, 1.0
    from scipy.stats import friedmanchisquare

    found = friedmanchisquare(*complete.to_numpy().T)
    return float(found.statistic), float(found.pvalue)
