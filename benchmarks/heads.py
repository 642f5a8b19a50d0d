"""What a training step and a prediction of each head cost, against plain classification.

Every figure is a ratio of medians, measured with all competitors taking turns in one run, so that a
noisy machine disturbs them alike.

    make bench
    python benchmarks/heads.py --classes 8 101 --samples 256 --dim 512 --heads hard-linear
"""

import argparse
import math
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from competitors import BASELINE, BY_FORMULA, SOFT, build, chosen
from measuring import CLOCKS, medians, peak_bytes, prediction, training_step
from showing import plot, show

PREDICTED = 100_000
"""From this many classes on only predictions are measured, of layouts with a formula."""


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[8, 101, 1000, 10_000, PREDICTED])
    parser.add_argument("--samples", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--dim", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--heads", nargs="+", default=BY_FORMULA + SOFT, help="names, or all")
    parser.add_argument("--repetitions", type=int, default=60, help="turns of each competitor")
    parser.add_argument("--steps", type=int, default=1, help="steps at a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    return parser.parse_args()


def compare(given: argparse.Namespace, n: int, dim: int, num_classes: int) -> list[dict[str, Any]]:
    """Measure everyone at one size: seconds and ratio of both tasks, and memory of the first.

    With very many classes only those are asked that predict by a formula, and the baseline.
    """
    names, trains = chosen(given.heads, num_classes), num_classes < PREDICTED
    if not trains:
        names = [name for name in names if name in (BASELINE, *BY_FORMULA)]
    models = {name: build(name, num_classes, dim) for name in names}
    features, ranks = torch.randn(n, dim), torch.randint(num_classes, (n,))
    steps = {name: training_step(model, features, ranks) for name, model in models.items()}
    predictions = {name: prediction(model, features) for name, model in models.items()}
    how = given.repetitions, given.clock, given.steps
    training = medians(steps, *how) if trains else dict.fromkeys(names, math.nan)
    predicting = medians(predictions, *how)
    return [
        {
            "method": name,
            "n": n,
            "d": dim,
            "K": num_classes,
            "train_seconds": training[name],
            "train_ratio": training[name] / training[BASELINE],
            "predict_seconds": predicting[name],
            "predict_ratio": predicting[name] / predicting[BASELINE],
            "arrays": peak_bytes(steps[name]) / (4 * n * num_classes) if trains else math.nan,
        }
        for name in names
    ]


def growth(given: argparse.Namespace, n: int, dim: int) -> dict[str, float]:
    """Measure how a prediction grows from the fewest classes to very many, for each formula."""
    found = {}
    for name in (name for name in BY_FORMULA if name in chosen(given.heads, PREDICTED)):
        few, many, features = min(given.classes), PREDICTED, torch.randn(n, dim)
        tasks = {k: prediction(build(name, k, dim), features) for k in (few, many)}
        cost = medians(tasks, given.repetitions, given.clock, given.steps)
        found[name] = cost[many] / cost[few]
    return found


def main() -> None:
    """Measure, print one table, and write it with a plot of the cost against K."""
    given = options()
    torch.set_num_threads(given.threads)
    rows = []
    for n, dim, num_classes in product(given.samples, given.dim, given.classes):
        rows += compare(given, n, dim, num_classes)
    frame = pd.DataFrame(rows)
    n, dim = max(given.samples), max(given.dim)
    show(frame, growth(given, n, dim), few=min(given.classes), many=PREDICTED, size=(n, dim))
    given.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(given.out / "speed.csv", index=False)
    plot(frame[(frame["n"] == n) & (frame["d"] == dim)], given.out / "speed.png")
    print(f"\nWritten: {given.out}/speed.csv, speed.png")


if __name__ == "__main__":
    main()
