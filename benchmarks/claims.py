"""Which of the paper's claims hold in our own comparison.

python benchmarks/claims.py results/benchmark results/claims

Each line compares two methods over the data sets of the first folder that has both: on how many
the first is better, as good and worse (means over seeds, as tables write them), the mean
difference, and Wilcoxon's signed-rank test. A pair that no folder has is left out.
"""

import sys
from pathlib import Path

import pandas as pd

from layline.experiments.grid import read_grid
from layline.experiments.results import GRID, read_results, select_runs
from layline.experiments.statistics import compare_with_reference, holm
from layline.experiments.summaries import means

EUCLIDEAN = ("hard-linear", "soft-poisson", "soft-binomial")
COSINE = ("hard-semicircular", "soft-poisson-cosine", "soft-binomial-cosine")
PAIRS = {
    "hard ahead of soft in MAE": [
        ("mae", hard, soft)
        for hard in ("hard-linear", "hard-semicircular")
        for soft in ("soft-poisson", "soft-binomial")
    ],
    "soft ahead of hard in accuracy": [
        ("accuracy", soft, hard)
        for soft in ("soft-poisson", "soft-binomial")
        for hard in ("hard-linear", "hard-semicircular")
    ],
    "CPL ahead of UPL": [
        (metric, method, free)
        for metric in ("mae", "accuracy")
        for methods, free in ((EUCLIDEAN, "unconstrained"), (COSINE, "unconstrained-cosine"))
        for method in methods
    ],
    "CPL ahead of classification": [
        (metric, method, "classification")
        for metric in ("mae", "accuracy")
        for method in (*EUCLIDEAN, *COSINE)
    ],
    "Student-t ahead of negative Euclidean": [
        (metric, method, f"{method}, negative Euclidean")
        for metric in ("mae", "accuracy")
        for method in EUCLIDEAN
    ],
    "learned ‖v0‖ ahead of fixed": [
        (metric, "hard-linear", f"hard-linear, norm {norm}")
        for metric in ("mae", "accuracy")
        for norm in (1, 3, 5, 7)
    ],
}


def main(decode: str = "mode") -> None:
    """Print the claims and what the results say of them."""
    folders = [Path(each) for each in sys.argv[1:]]
    frames = [
        select_runs(read_results(folder), read_grid(folder / GRID).tune_seeds) for folder in folders
    ]
    print("| claim | metric | pair | wins | ties | losses | mean difference | p | p (Holm) |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    for claim, all_pairs in PAIRS.items():
        found = {pair: _first_with(frames, *pair[1:]) for pair in all_pairs}
        pairs = [pair for pair, frame in found.items() if frame is not None]
        lines = [_line(found[pair], decode, *pair) for pair in pairs]
        corrected = holm([line["p"] for line in lines])
        for (metric, first, second), line, p in zip(pairs, lines, corrected, strict=True):
            print(
                f"| {claim} | {metric} | {first} against {second} | {line['wins']:.0f} | "
                f"{line['ties']:.0f} | {line['losses']:.0f} | {line['difference']:+.4f} | "
                f"{line['p']:.3f} | {p:.3f} |"
            )
    print()
    _adjacent(frames[0], decode)


def _first_with(frames: list[pd.DataFrame], *methods: str) -> pd.DataFrame | None:
    """Give the first frame that has these methods."""
    return next((frame for frame in frames if set(methods) <= set(frame["method"])), None)


def _line(
    frame: pd.DataFrame, decode: str, metric: str, first: str, second: str
) -> "pd.Series[float]":
    both = frame[frame["method"].isin([first, second])]
    return compare_with_reference(both, second, metric, decode).loc[first]


def _adjacent(frame: pd.DataFrame, decode: str) -> None:
    """Print the share of mistakes that are one rank off, by method."""
    right, near = (means(frame, metric, decode) for metric in ("accuracy", "within_one"))
    share = ((near - right) / (1 - right)).dropna(axis="columns")  # methods on all data sets
    share = share.mean().sort_values(ascending=False)
    print("| method | mistakes that are one rank off, mean over data sets |")
    print("|---|--:|")
    for method, value in share.items():
        print(f"| {method} | {value:.1%} |")


if __name__ == "__main__":
    main()
