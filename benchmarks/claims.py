"""Which of the paper's claims hold in our own comparison.

    python benchmarks/claims.py results/edition-2 results/claims

Each line compares two methods, in MAE and in accuracy, over the data sets of the first folder that
has both: on how many the first is better and worse (means over seeds, as tables write them), the
mean difference, and Wilcoxon's signed-rank test, corrected by Holm for all tests of the claim. A
pair that no folder has is left out. Ranks are the most probable classes, as in the paper.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
import scipy.stats

from layline.bench.grid import read_grid
from layline.bench.statistics import (
    METRICS,
    compare_with_reference,
    holm,
    means,
    select_decoding,
    select_runs,
)
from layline.bench.store import GRID, read_results

EUCLIDEAN = ("hard-linear", "soft-poisson", "soft-binomial")
COSINE = ("hard-semicircular", "soft-poisson-cosine", "soft-binomial-cosine")
PAIRS = {
    "hard layouts are ahead of soft ones in MAE, behind in accuracy": [
        (hard, soft)
        for hard in ("hard-linear", "hard-semicircular")
        for soft in ("soft-poisson", "soft-binomial")
    ],
    "CPL is ahead of UPL": [
        *((method, "unconstrained") for method in EUCLIDEAN),
        *((method, "unconstrained-cosine") for method in COSINE),
    ],
    "CPL is ahead of classification": [
        (method, "classification") for method in (*EUCLIDEAN, *COSINE)
    ],
    "Student-t is ahead of negative Euclidean": [
        (method, f"{method}, negative Euclidean") for method in EUCLIDEAN
    ],
    "a learned ‖v₀‖ is ahead of fixed ones": [
        ("hard-linear", f"hard-linear, norm {norm}") for norm in (1, 3, 5, 7)
    ],
}
COMPARED = ("mae", "accuracy")
DECODE = "mode"


def read(folders: Iterable[Path]) -> list[pd.DataFrame]:
    """Read the runs that are compared in each folder of ``layline bench``."""
    return [
        select_runs(read_results(folder), read_grid(folder / GRID).tune_seeds) for folder in folders
    ]


def compare(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Compare the pairs of each claim, a row for each pair and metric."""
    rows = []
    for claim, pairs in PAIRS.items():
        for first, second in pairs:
            frame = next((each for each in frames if {first, second} <= set(each["method"])), None)
            if frame is None:
                continue
            both = frame[frame["method"].isin([first, second])]
            for metric in COMPARED:
                line = compare_with_reference(both, second, metric, DECODE).loc[first]
                about = {"claim": claim, "first": first, "second": second, "metric": metric}
                rows.append(about | line.drop("p_holm").to_dict())
    found = pd.DataFrame(rows)
    corrected = found.groupby("claim")["p"].transform(lambda p: holm(p.to_numpy()))
    return found.assign(p_holm=corrected)


def claim_table(found: pd.DataFrame) -> str:
    """Write a line for each pair, with both metrics."""
    titles = [METRICS[metric].title for metric in COMPARED]
    heads = (f"{title}: better, worse | difference | p (Holm)" for title in titles)
    lines = [
        f"| claim | method | against | {' | '.join(heads)} |",
        f"|---|---|---|{'--:|' * 3 * len(COMPARED)}",
    ]
    shown = ""
    for (claim, first, second), pair in found.groupby(["claim", "first", "second"], sort=False):
        fields = [claim if claim != shown else "", f"`{first}`", f"`{second}`"]
        shown = claim
        for row in pair.itertuples():
            metric = METRICS[row.metric]
            difference = f"{row.difference * metric.scale:+.{metric.digits}f}"
            fields += [f"{row.wins:.0f}, {row.losses:.0f}", difference, f"{row.p_holm:.3f}"]
        lines.append(f"| {' | '.join(fields)} |")
    return "\n".join(lines)


def compare_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the pairs of each claim on each data set by itself, seed by seed.

    For few data sets, over which there is no test. The first seed chose the settings, for both.

    Returns:
        A row for each pair, data set and metric: the mean ``difference`` over seeds with its 95 %
        interval by Student's t, ``low`` to ``high``.
    """
    runs = select_decoding(frame, DECODE)
    by_seed = runs.pivot(index=["data", "seed"], columns="method", values=list(COMPARED))
    rows = []
    for claim, pairs in PAIRS.items():
        for first, second in pairs:
            if not {first, second} <= set(frame["method"]):
                continue
            for metric in COMPARED:
                differences = by_seed[metric][first] - by_seed[metric][second]
                for data, values in differences.groupby("data", sort=False):
                    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
                    about = {"claim": claim, "first": first, "second": second, "metric": metric}
                    found = {"data": data, "difference": values.mean(), "low": low, "high": high}
                    rows.append(about | found)
    return pd.DataFrame(rows)


def seed_table(found: pd.DataFrame) -> str:
    """Write a line for each pair, with both metrics on each data set."""
    keys = list(found[["data", "metric"]].drop_duplicates().itertuples(index=False, name=None))
    keys.sort(key=lambda key: key[0])
    heads = (f"{data}: {METRICS[metric].title}" for data, metric in keys)
    lines = [
        f"| claim | method | against | {' | '.join(heads)} |",
        "|---|---|---|" + "--:|" * len(keys),
    ]
    shown = ""
    for (claim, first, second), pair in found.groupby(["claim", "first", "second"], sort=False):
        fields = [claim if claim != shown else "", f"`{first}`", f"`{second}`"]
        shown = claim
        of = pair.set_index(["data", "metric"])
        for data, name in keys:
            metric, row = METRICS[name], of.loc[(data, name)]
            ends = (row[key] * metric.scale for key in ("difference", "low", "high"))
            fields.append("{} ({} to {})".format(*(f"{end:+.{metric.digits}f}" for end in ends)))
        lines.append(f"| {' | '.join(fields)} |")
    return "\n".join(lines)


def adjacent_shares(frame: pd.DataFrame) -> "pd.Series[float]":
    """Give the share of mistakes that are one rank off, by method, the mean over data sets."""
    right, near = (means(frame, metric, DECODE) for metric in ("accuracy", "within_one"))
    share = ((near - right) / (1 - right)).dropna(axis="columns")  # methods on all data sets
    return share.mean().sort_values(ascending=False)


def main() -> None:
    """Print the claims and what the results say of them."""
    frames = read(map(Path, sys.argv[1:]))
    print(claim_table(compare(frames)))
    print("\n| method | mistakes that are one rank off, mean over data sets |\n|---|--:|")
    for method, value in adjacent_shares(frames[0]).items():
        print(f"| {method} | {value:.1%} |")


if __name__ == "__main__":
    main()
