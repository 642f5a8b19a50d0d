"""The tables of docs/certainty.md, from the files in results/certainty.

python benchmarks/certainty.py
"""

from pathlib import Path

import pandas as pd

from layline.model.calibration import COVERAGES

RESULTS = Path(__file__).resolve().parents[1] / "results" / "certainty"


def coverage_table() -> str:
    """Write what the kinds of ranges are worth, in the mean over data sets and methods."""
    runs = pd.read_csv(RESULTS / "coverage.csv")
    lines = [
        "| ranges | " + " | ".join(f"asked {share:.0%}" for share in COVERAGES) + " |",
        "|---|" + "--:|" * len(COVERAGES),
    ]
    for kind in ("RPS", "ordinal APS", "naive"):
        cells = []
        for share in COVERAGES:
            rows = runs[(runs["ranges"] == kind) & (runs["asked"] == share)]
            held, below, width = rows[["coverage", "below_1_percent", "width"]].mean()
            cells.append(f"{held:.1%}, {width:.2f} grades, {below:.1%} below")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def set_table() -> str:
    """Write what temperature and review are worth on each data set, the mean over methods."""
    temperature = pd.read_csv(RESULTS / "temperature.csv")
    found = temperature.merge(pd.read_csv(RESULTS / "referral.csv"), on=["data", "method"])
    means = found.groupby("data", sort=False).mean(numeric_only=True)
    means.loc["**mean**"] = means.mean()
    lines = [
        "| data | ECE | by chance | NLL | RPS | errors, all → surest 80 % | MAE likewise |",
        "|---|" + "--:|" * 6,
    ]
    for name, row in means.iterrows():
        cells = [
            f"{row['ece_before']:.3f} → {row['ece_after']:.3f}",
            f"{row['ece_chance']:.3f}",
            f"{row['nll_before']:.3f} → {row['nll_after']:.3f}",
            f"{row['rps_before']:.4f} → {row['rps_after']:.4f}",
            f"{row['error']:.1%} → {row['error_at_80']:.1%}",
            f"{row['mae']:.3f} → {row['mae_at_80']:.3f}",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(coverage_table(), set_table(), sep="\n\n")
