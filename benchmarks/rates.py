"""Which learning rates suit tables and frozen features, on validation parts alone.

    python benchmarks/rates.py recipe --data-folder data --out rates.csv
    python benchmarks/rates.py edition --data-folder data --out rates.csv

``recipe`` trains as ``layline train`` does, ``edition`` as the second edition of the benchmark,
with fewer and larger steps. Every row of the result is one training. No test part is looked at.
What is in the file already is not trained again, so a stopped measurement goes on.
"""

import argparse
import csv
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from ablation import DATA, FROZEN, LITE, TABLE, table, train

from layline.training.config import combine

TABLES = {
    "era": "era",
    "esl": "esl",
    "lev": "lev",
    "swd": "swd",
    "wine": "winequality-red",
    "cement": "cement_strength",
    "boston": "boston-housing",
    "stock": "stock",
}
PHOTOGRAPHS: dict[str, dict[str, Any]] = {
    "photo-quality": {"source": "photo-quality", "size": 64},
    "retinamnist": {"source": "npz", "root": "retinamnist.npz", "size": 64},
    "vehicle-damage3": {"source": "folder", "root": "vehicle-damage3", "size": 160},
}


@dataclass(frozen=True)
class Mode:
    """How to train, and what to try.

    Attributes:
        epochs: At most.
        settings: Of the training.
        seeds: Of the training and of the split.
        methods: By the situation, a table or frozen features.
        rates: Of the features.
        head_rates: Of the head.
    """

    epochs: int
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    methods: dict[str, tuple[str, ...]]
    rates: tuple[float, ...]
    head_rates: tuple[float, ...]


_THREE = ("arc", "classification", "hard-semicircular")
_FIVE = (*_THREE, "soft-poisson", "ranking")
MODES = {
    "recipe": Mode(
        epochs=30,
        settings={"patience": 10},
        seeds=(0, 1),
        methods={TABLE: (*_FIVE, "hard-linear", "coral", "proportional-odds")},
        rates=(0.001, 0.003, 0.01),
        head_rates=(0.01, 0.03, 0.1),
    ),
    "edition": Mode(
        epochs=20,
        settings={"patience": 5, "batch_size": 64},
        seeds=(0,),
        methods={TABLE: _FIVE, FROZEN: _THREE},
        rates=(0.001, 0.003, 0.01),
        head_rates=(0.003, 0.01, 0.03, 0.1),
    ),
}


def main() -> None:
    """Train what is missing in the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("mode", choices=list(MODES))
    parser.add_argument("--data-folder", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("rates.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    mode = MODES[given.mode]
    found = {name: (TABLE, mode.epochs, table(file)) for name, file in TABLES.items()}
    for name, where in PHOTOGRAPHS.items():
        found[name] = FROZEN, mode.epochs, combine(LITE, {"data": where})
    DATA.update(found)
    done = set()
    if given.out.exists():
        with given.out.open() as file:
            done = {tuple(row.values())[:6] for row in csv.DictReader(file)}
    for name, seed, rate, head_rate in product(found, mode.seeds, mode.rates, mode.head_rates):
        for method in mode.methods.get(found[name][0], ()):
            row = {"mode": given.mode, "data": name, "seed": seed, "method": method}
            row |= {"rate": rate, "head_rate": head_rate}
            if tuple(map(str, row.values())) in done:
                continue
            own = {**mode.settings, "learning_rate": rate, "head_learning_rate": head_rate}
            row |= train(name, {"training": own}, method, seed, given.data_folder)
            is_new = not given.out.exists()
            with given.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(row))
                if is_new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
