"""Stress tests of a method: wrong labels, or a class without labels, outside the test split."""

from dataclasses import replace
from typing import Literal

import numpy as np

from layline.data.dataset import Dataset, Splits
from layline.utils.validation import UserError

Stress = Literal["none", "noise", "gap"]
_NOISE = 0.2  # share of the labels that are wrong


def gap_class(num_classes: int) -> int:
    """Choose the rank whose labels are missing in the stress test ``gap``."""
    return num_classes // 2


def stress_labels(dataset: Dataset, stress: Literal["noise", "gap"], seed: int) -> Dataset:
    """Change the labels outside the test split, after the splits were drawn.

    ``noise`` moves a fifth of the labels by one rank, up or down at random; at the ends of the
    scale the only way is inwards. ``gap`` removes the samples of a middle class, which stays in the
    scale. After both, a class may lack training samples.
    """
    splits, ranks, top = dataset.splits, dataset.ranks.copy(), len(dataset.classes) - 1
    others = {name: index for name, index in splits.by_name().items() if name != "test"}
    if stress == "noise":
        pool = np.concatenate(list(others.values()))
        rng = np.random.default_rng([seed, 1])  # not the numbers that drew the splits
        moved = rng.choice(pool, size=round(_NOISE * len(pool)), replace=False)
        steps = rng.choice([-1, 1], size=len(moved))
        steps = np.where(ranks[moved] == 0, 1, np.where(ranks[moved] == top, -1, steps))
        ranks[moved] += steps
        note = f"Stress test: {len(moved)} of the {len(pool)} labels are moved by one class."
    else:
        if top < 2:
            raise UserError("The stress test gap needs at least three classes, got two.")
        missing = gap_class(len(dataset.classes))
        others = {name: index[ranks[index] != missing] for name, index in others.items()}
        splits = Splits(**others, test=splits.test)
        note = f"Stress test: no labels of {dataset.classes[missing]}."
    notes = (*dataset.notes, note)
    return replace(dataset, ranks=ranks, splits=splits, notes=notes, fixed_classes=True)
