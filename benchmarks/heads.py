"""What a training step and a prediction of each head cost, against plain classification.

Every figure is a ratio of medians, measured with the head and the baseline taking turns, so that a
noisy machine disturbs both alike.

    make bench
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from layline.heads import OrdinalHead, create, names

BASELINE = "classification"


def training_step(head: OrdinalHead, n: int) -> Callable[[], None]:
    """Prepare one forward and backward pass on ready features."""
    features = torch.randn(n, head.dim, requires_grad=True)
    ranks = torch.randint(head.num_classes, (n,))

    def step() -> None:
        head.zero_grad()
        head.loss(features, ranks).backward()

    return step


def prediction(head: OrdinalHead, n: int) -> Callable[[], None]:
    """Prepare one prediction of ready features."""
    features = torch.randn(n, head.dim)

    @torch.inference_mode()
    def predict() -> None:
        head.predict(features)

    return predict


def medians(tasks: dict[str, Callable[[], None]], repetitions: int) -> dict[str, float]:
    """Time the tasks in turns, after a warm-up, and give the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(repetitions + 5):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn >= 5:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def main() -> None:
    """Print one table: a row per head, and for each K the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[8, 101, 1000])
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    ratios: dict[str, list[float]] = {name: [] for name in names()}
    for num_classes in given.classes:
        heads = {name: create(name, num_classes, given.dim) for name in names()}
        for prepare in (training_step, prediction):
            baseline = prepare(heads[BASELINE], given.samples)
            for name, head in heads.items():
                tasks = {"baseline": baseline, "head": prepare(head, given.samples)}
                cost = medians(tasks, given.repetitions)
                ratios[name].append(cost["head"] / cost["baseline"])

    print(f"Cost against {BASELINE}: n = {given.samples}, d = {given.dim}\n")
    print(f"{'':26}" + "".join(f"{f'K = {k}':>18}" for k in given.classes))
    print(f"{'head':26}" + f"{'train':>9}{'predict':>9}" * len(given.classes))
    for name, row in ratios.items():
        print(f"{name:26}" + "".join(f"{ratio:8.2f}×" for ratio in row))


if __name__ == "__main__":
    main()
