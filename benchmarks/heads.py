"""Compare the cost of heads with plain classification.

All heads take turns within one run, and every number is a ratio of medians, so that other load on
the machine affects them equally.

    make bench
    python benchmarks/heads.py --classes 8 101 --heads hard-linear soft-poisson
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch import nn

from layline import backbones
from layline.heads import OrdinalHead, create, names

BASELINE = "classification"
HARD = ["hard-linear", "hard-semicircular"]
HEADS = [*HARD, "elastic-linear", "elastic-semicircular", "arc", "soft-poisson", "soft-binomial"]
MANY = 100_000  # classes; here only predictions of the hard layouts are measured
Task = Callable[[], object]


def training_step(head: OrdinalHead, features: torch.Tensor, ranks: torch.Tensor) -> Task:
    """Prepare one forward and backward pass on given features."""
    features = features.detach().requires_grad_()

    def step() -> None:
        head.zero_grad()
        features.grad = None
        head.loss(features, ranks).backward()

    return step


def prediction(head: OrdinalHead, features: torch.Tensor) -> Task:
    """Prepare one prediction of given features."""
    return torch.inference_mode()(lambda: head.predict(features))


def measure(tasks: dict[Any, Task], repetitions: int) -> dict[Any, float]:
    """Return the median seconds of each task; they alternate in random order."""
    torch.empty(30 << 18)  # from here on malloc keeps its memory, as after a network's first step
    seconds: dict[Any, list[float]] = {name: [] for name in tasks}
    order, chance = list(tasks), random.Random(0)
    for turn in range(5 + repetitions):
        chance.shuffle(order)
        for name in order:
            start = time.perf_counter()
            tasks[name]()
            if turn >= 5:  # after a warm-up
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def compare(
    methods: list[str], n: int, dim: int, num_classes: int, repetitions: int
) -> pd.DataFrame:
    """Measure the training step and the prediction of each head."""
    torch.manual_seed(0)
    features, ranks = torch.randn(n, dim), torch.randint(num_classes, (n,))
    heads = {name: create(name, num_classes, dim) for name in (BASELINE, *methods)}
    steps = {name: training_step(head, features, ranks) for name, head in heads.items()}
    predictions = {name: prediction(head, features) for name, head in heads.items()}
    train, predict = measure(steps, repetitions), measure(predictions, repetitions)
    return pd.DataFrame(
        {
            "method": name,
            "K": num_classes,
            "train_ms": 1000 * train[name],
            "train_ratio": train[name] / train[BASELINE],
            "predict_ms": 1000 * predict[name],
            "predict_ratio": predict[name] / predict[BASELINE],
        }
        for name in heads
    )


def measure_growth(n: int, dim: int, repetitions: int) -> pd.Series:
    """Compare predictions of the hard layouts for very many classes with those for eight."""
    features, growth = torch.randn(n, dim), {}
    for name in HARD:
        tasks = {k: prediction(create(name, k, dim), features) for k in (8, MANY)}
        seconds = measure(tasks, repetitions)
        growth[name] = seconds[MANY] / seconds[8]
    return pd.Series(growth)


def measure_shares(methods: list[str], repetitions: int) -> pd.Series:
    """Compute the head's share of a training step of an image network at 64 pixels."""
    network = backbones.create("tf_efficientnet_lite0", dim=512)
    images, ranks = torch.randint(256, (32, 3, 64, 64), dtype=torch.uint8), torch.arange(32) % 8

    def step(head: nn.Module) -> Task:
        return lambda: head(network(images), ranks).backward()

    whole = measure({name: step(create(name, 8, 512)) for name in methods}, repetitions)
    features = torch.randn(32, 512)
    own = {name: training_step(create(name, 8, 512), features, ranks) for name in methods}
    return pd.Series(measure(own, 20 * repetitions)) / pd.Series(whole)


def main() -> None:
    """Measure, print the tables, and write one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[8, 101, 1000])
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", nargs="+", default=HEADS, help="names, or all")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    methods = (
        [name for name in names() if name != BASELINE] if given.heads == ["all"] else given.heads
    )
    n, dim, repetitions = given.samples, given.dim, given.repetitions
    table = pd.concat([compare(methods, n, dim, k, repetitions) for k in given.classes])
    for task in ("train", "predict"):
        ratios = table.pivot(index="method", columns="K", values=f"{task}_ratio")
        print(f"\n{task}: ratio to {BASELINE}, n = {n}, d = {dim}, {given.threads} threads")
        print(ratios.loc[[BASELINE, *methods]].round(2).to_string())
    print(f"\npredict: time for {MANY} classes / time for 8 classes")
    print(measure_growth(n, dim, repetitions).round(2).to_string())
    print("\nhead's share of a training step of tf_efficientnet_lite0 (32 images, 64 px), percent")
    print((100 * measure_shares(methods, max(repetitions // 20, 1))).round(2).to_string())
    given.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(given.out / "speed.csv", index=False)
    print(f"\nWritten: {given.out}/speed.csv")


if __name__ == "__main__":
    main()
