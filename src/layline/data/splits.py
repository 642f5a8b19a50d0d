"""Splits that the user made: their names, and what to do about a part that is missing."""

from collections.abc import Hashable, Sequence

import numpy as np

from layline.data.base import Indices, Partition
from layline.data.partitions import divide, three_way

WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
Groups = Sequence[Hashable] | None


def part_named(word: str) -> str:
    """Give the part that a word means: train, validation or test."""
    if word.casefold() not in WORDS:
        raise ValueError(f"split must be one of {', '.join(WORDS)}, got {word!r}: rename it")
    return WORDS[word.casefold()]


def split(
    splits: Sequence[str] | None,
    ranks: Indices,
    classes: Sequence[str],
    *,
    validation: float,
    test: float,
    seed: int,
    groups: Groups = None,
) -> tuple[Partition, tuple[str, ...]]:
    """Take the split that was given, or make one; say which."""
    if splits is not None:
        return given(
            splits, ranks, classes, validation=validation, test=test, seed=seed, groups=groups
        )
    kept = "" if groups is None else ", groups kept together"
    note = f"The split is random with seed {seed}, each class alike{kept}"
    return three_way(ranks, validation, test, seed, groups), (note,)


def given(
    splits: Sequence[str],
    ranks: Indices,
    classes: Sequence[str],
    *,
    validation: float,
    test: float,
    seed: int,
    groups: Groups = None,
) -> tuple[Partition, tuple[str, ...]]:
    """Make a partition of the parts that the user named.

    A missing validation or test part is taken out of the training part, since a model chosen by
    the samples it is measured with looks better than it is.

    Args:
        splits: The word for each sample.
        ranks: The class of each sample.
        classes: Names of the classes.
        validation: Share of the training samples to take where that part is missing.
        test: Likewise.
        seed: Decides which.
        groups: What must stay together, such as the patient of each sample.

    Returns:
        The partition, and sentences for the user about what was done.
    """
    meaning = {word: part_named(word) for word in set(splits)}
    names = np.array([meaning[word] for word in splits])
    parts = {name: np.flatnonzero(names == name) for name in ("train", "validation", "test")}
    _check_classes(parts, ranks, classes)
    if groups is not None:
        _check_groups(names, groups)
    shares = {"validation": validation, "test": test}
    missing = {name: share for name, share in shares.items() if len(parts[name]) == 0}
    notes = ["The split is the one given, whatever the partition"]
    if missing:
        train = parts["train"]
        inner = None if groups is None else [groups[i] for i in train.tolist()]
        taken = divide(ranks[train], missing, seed, inner)
        parts |= {name: train[part] for name, part in taken.items()}
        notes = [
            f"No {name} part was given: {len(parts[name])} of the {len(train)} training samples "
            f"were taken for it, with seed {seed}"
            for name in missing
        ]
    return Partition(**parts), tuple(notes)


def _check_classes(parts: dict[str, Indices], ranks: Indices, classes: Sequence[str]) -> None:
    """Refuse parts with a class that training never sees."""
    if len(parts["train"]) == 0:
        raise ValueError("split must have a train part, got none: there is nothing to learn from")
    for name, part in parts.items():
        unseen = np.setdiff1d(ranks[part], ranks[parts["train"]])
        if len(unseen):
            raise ValueError(
                f"the {name} part must have classes of the train part only, got "
                f"{', '.join(classes[rank] for rank in unseen)}: add training samples of it"
            )


def _check_groups(names: np.ndarray, groups: Sequence[Hashable]) -> None:
    """Refuse a group that is in two parts."""
    home: dict[Hashable, str] = {}
    for name, group in zip(names.tolist(), groups, strict=True):
        if home.setdefault(group, name) != name:
            raise ValueError(
                f"a group must be in one part only, got {group!r} in {home[group]} and {name}: "
                "what is learned of it would help in the other"
            )
