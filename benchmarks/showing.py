"""The measured costs as a printed table and as a plot."""

import math
from pathlib import Path

import pandas as pd
from competitors import BASELINE, TEXTBOOK


def show(
    frame: pd.DataFrame, growth: dict[str, float], few: int, many: int, size: tuple[int, int]
) -> None:
    """Print a row per method and size, and for each K both ratios and the memory of a step."""
    sizes = sorted(frame["K"].unique())
    print(f"Cost against {BASELINE}; mem: arrays of n × K floats at the peak of a training step\n")
    print(f"{'':36}" + "".join(f"{f'K = {k}':>24}" for k in sizes))
    print(f"{'method':26}{'n':>4}{'d':>6}" + f"{'train':>9}{'predict':>9}{'mem':>6}" * len(sizes))
    for (n, dim), part in frame.groupby(["n", "d"], sort=False):
        for name in dict.fromkeys(part["method"]):
            rows = part[part["method"] == name].set_index("K")
            print(f"{name:26}{n:4}{dim:6}" + "".join(_cell(rows, k) for k in sizes))
    n, dim = size
    print(f"\nn = {n}, d = {dim}")
    for name, ratio in growth.items():
        print(f"{name}: predict at K = {many} against K = {few}: {ratio:.2f}×")
    part = frame[(frame["n"] == n) & (frame["d"] == dim)].pivot(
        index="K", columns="method", values="train_seconds"
    )
    for ours, theirs in TEXTBOOK.items():
        if ours in part and theirs in part:
            for k, ratio in (part[theirs] / part[ours]).dropna().items():
                print(f"{ours}: a training step at K = {k}: {ratio:.1f}× faster than the {theirs}")


def _cell(rows: pd.DataFrame, num_classes: int) -> str:
    if num_classes not in rows.index:
        return f"{'–':>9}{'–':>9}{'–':>6}"
    row = rows.loc[num_classes]
    if math.isnan(row["train_ratio"]):
        return f"{'–':>9}{row['predict_ratio']:8.3f}×{'–':>6}"
    return f"{row['train_ratio']:8.2f}×{row['predict_ratio']:8.2f}×{row['arrays']:6.1f}"


BLACK, BLUE, ORANGE, GREEN, RED, GREY = (
    "black",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#888888",
)
LOOKS = {  # ours are solid or dashed with a dot, what they are measured against is dotted
    "classification": (BLACK, "-", "o"),
    "nn.Linear, cross entropy": (BLACK, ":", "x"),
    "hard-linear": (BLUE, "-", "o"),
    "elastic-linear": (BLUE, "--", "o"),
    "textbook line": (BLUE, ":", "x"),
    "hard-semicircular": (ORANGE, "-", "o"),
    "elastic-semicircular": (ORANGE, "--", "o"),
    "textbook arc": (ORANGE, ":", "x"),
    "soft-poisson": (GREEN, "-", "o"),
    "soft-poisson-cosine": (GREEN, "--", "o"),
    "coral-pytorch": (RED, ":", "x"),
    "dlordinal Poisson": (GREY, ":", "x"),
}
"""What is drawn; soft-binomial costs what soft-poisson does, and all of dlordinal the same."""


def plot(frame: pd.DataFrame, file: Path) -> None:
    """Draw the milliseconds of a training step and of a prediction against K."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for axis, task, title in zip(
        axes, ("train", "predict"), ("a training step", "a prediction"), strict=True
    ):
        for name, (colour, line, marker) in LOOKS.items():
            rows = frame[frame["method"] == name]
            look = {"color": colour, "linestyle": line, "marker": marker, "ms": 4, "label": name}
            axis.plot(rows["K"], 1000 * rows[f"{task}_seconds"], **look)
        axis.set(xscale="log", yscale="log", xlabel="classes K", ylabel="milliseconds", title=title)
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7, handlelength=4, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=150)
