r"""Dividing samples into training, validation, test and calibration splits.

Every class keeps a training sample, and no split is empty. Groups with several samples (the images
of a patient, or duplicates of an image) are placed first, one after the other, each into the split
where it lowers

.. math:: \sum_{s,k} (n_{sk} - t_{sk})^2 / t_{sk}

most, with :math:`n_{sk}` the samples of class k in split s so far and :math:`t_{sk}` the number
that the split should have. Large groups and those of rare classes come first, since small ones can
balance them. Samples that are alone in their group then fill the splits up to their exact sizes,
which are distributed over the classes by largest remainder.

The calibration split is taken out of the training split by the same rules, last, so that the other
splits are the same with and without it. A limit on the labels of each class does not change the
test split.
"""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from layline.data.dataset import Dataset, Indices, KnownClasses, Splits, format_list, groups_of
from layline.data.tables import UnencodedRows
from layline.utils.validation import UserError, check_above, check_integer

SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("calibration", "calib"), "calibration"),
}
_MOST_FOR_CALIBRATION = 1000  # the coverage of prediction ranges is then certain to a percent
FEWEST_FOR_SPLITS = 1000  # labels of a table; with fewer, a cross-validation calibrates
FOLDS = 3  # of it; five take half as long again and calibrate no better
FEWEST_FOR_CALIBRATION = 9  # for ranges at 90 %; fewer would be lost to training for nothing
Groups = Sequence[Hashable] | None
Counts = NDArray[np.float64]  # samples by group or split, and by class


def assign_splits(
    words: Sequence[str] | None, ranks: Indices, classes: Sequence[str], groups: Groups = None
) -> Splits:
    """Build the splits that the data prescribe by a word for each sample, if they do."""
    if words is None:
        return Splits()
    for word in words:
        if word.casefold() not in SPLIT_WORDS:
            known = ", ".join(SPLIT_WORDS)
            raise UserError(f"{word!r} is not a split. Use one of the words {known}.")
    names = np.array([SPLIT_WORDS[word.casefold()] for word in words])
    splits = {name: np.flatnonzero(names == name) for name in dict.fromkeys(SPLIT_WORDS.values())}
    if isinstance(classes, KnownClasses):  # the data of a trained model may lack splits
        return Splits(**splits)
    if len(splits["train"]) == 0:
        raise UserError("The data have no training split.")
    for name, index in splits.items():
        unseen = np.setdiff1d(ranks[index], ranks[splits["train"]])
        if len(unseen):
            raise UserError(
                f"The {name} split has classes without training samples: "
                f"{', '.join(classes[rank] for rank in unseen)}. Add training samples of them."
            )
    split_of: dict[Hashable, str] = {}
    for name, group in zip(names.tolist(), groups or (), strict=False):
        if split_of.setdefault(group, name) != name:
            raise UserError(
                f"The group {group!r} is in the {split_of[group]} split and in the {name} split. "
                "Results would be too good; move its samples into one of them."
            )
    return Splits(**splits)


def find_groups(pattern: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Find the group of each sample in its path: the first capture of a pattern, or the match."""
    try:
        matches = [re.search(pattern, path) for path in paths]
    except (re.error, TypeError) as error:
        raise UserError(f"group_by is not a regular expression: {pattern!r} ({error}).") from None
    names = [
        "" if match is None else next((part for part in match.groups() if part), match[0])
        for match in matches
    ]
    without = [path for path, name in zip(paths, names, strict=True) if not name]
    if without:
        raise UserError(
            f"group_by '{pattern}' does not match {len(without):,} of {len(paths):,} paths, such "
            f"as {format_list(without[:3])}."
        )
    return tuple(names)


def draw_splits(
    dataset: Dataset,
    seed: int,
    calibration: float = 0.0,
    fewest: float = 0,
    per_class: int | None = None,
) -> Dataset:
    """Draw every split that the data do not prescribe, from training; groups stay together.

    The same seed gives the same splits. A share of the training samples is kept for calibration.
    With less than ``fewest`` samples outside the test split, all of them are for training: small
    data are cross-validated instead, see :func:`assign_folds`. ``per_class`` limits the samples of
    each class in all splits but the test split. The encoding of a table is learned from the
    training rows.
    """
    if per_class is not None:
        dataset = _limit_labels(dataset, seed, per_class)
    splits, notes = dataset.splits, list(dataset.notes)
    prescribed = any(len(index) for index in splits.by_name().values())
    pool = splits.train if prescribed else np.arange(len(dataset.ranks))
    if len(pool) == 0:
        raise UserError("The data have no training split.")
    missing = [name for name in ("validation", "test") if len(getattr(splits, name)) == 0]
    shares = {name: dataset.shares[name] for name in missing}
    labelled = len(pool) + len(splits.validation) + len(splits.calibration)
    labelled -= round(shares.get("test", 0.0) * len(pool))
    whole = labelled < fewest and ("validation" in missing or math.isinf(fewest))
    if whole and "test" not in missing:
        shares = {}  # few samples may not suffice for a validation split
    drawn = {}
    if shares:
        drawn = _divide(dataset.ranks[pool], shares, seed, groups_of(dataset, pool))
        splits = replace(splits, **{name: pool[index] for name, index in drawn.items()})
    if whole:  # the test split is the same with and without a cross-validation
        train = np.concatenate([splits.train, splits.validation, splits.calibration])
        splits = Splits(train=np.sort(train), test=splits.test)
        shares.pop("validation", None)
    if not prescribed:
        kept = "" if dataset.groups is None else ", groups kept together"
        notes.append(f"The split is random with seed {seed}, stratified by class{kept}.")
    else:
        notes += [
            f"The data have no {name} split: {len(drawn[name])} of the {len(pool)} training "
            f"samples are used for it, with seed {seed}."
            for name in shares
        ]
    more: tuple[str, ...] = ()
    if not whole:
        splits, more = hold_out_calibration(
            splits, dataset.ranks, calibration, seed, dataset.groups
        )
    inputs: Any = dataset.inputs
    if isinstance(inputs, UnencodedRows):
        inputs, about_columns = inputs.encode(splits.train)
        more += about_columns
    return replace(dataset, inputs=inputs, splits=splits, notes=(*notes, *more))


def _limit_labels(dataset: Dataset, seed: int, per_class: int) -> Dataset:
    """Keep a few random samples of each class in training, and the test split without a limit.

    The samples of a smaller limit are among those of a larger one. Validation and calibration
    samples count as labelled, so these splits are drawn again.
    """
    splits = dataset.splits if len(dataset.splits.test) else draw_splits(dataset, seed).splits
    pool = np.concatenate([splits.train, splits.validation, splits.calibration])
    pool = np.random.default_rng(seed).permutation(np.sort(pool))
    ranks = dataset.ranks[pool]
    kept = np.sort(np.concatenate([pool[ranks == k][:per_class] for k in np.unique(ranks)]))
    note = (
        f"Only {per_class} samples per class are used: {len(kept)} of the {len(pool)} labelled "
        "samples."
    )
    limited = Splits(train=kept, test=splits.test)
    return replace(dataset, splits=limited, notes=(*dataset.notes, note))


def assign_folds(
    ranks: Int[np.ndarray, " n"], folds: int, seed: int, groups: Groups = None
) -> Indices:
    """Assign each sample to a fold of a cross-validation, stratified by class.

    A group is in one fold. The only sample of a class, and the samples of its only group, have the
    fold -1: they are never held out, because without them the class could not be learned.
    """
    rng = np.random.default_rng(seed)
    numbers: dict[Hashable, int] = {}
    each = range(len(ranks)) if groups is None else groups
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in each])
    _, class_of = np.unique(ranks, return_inverse=True)
    table = _count_table(group_of, class_of, class_of.max() + 1)
    alone = (table > 0).sum(axis=0) == 1  # classes that a single group has
    free = np.flatnonzero(~(table[:, alone] > 0).any(axis=1))
    fold_of_group = np.full(len(table), -1)
    if len(free) > 1:
        own = table[free]
        # groups of the same main class are dealt to the folds in turn, large ones first
        order = np.lexsort((rng.random(len(free)), -own.sum(axis=1), own.argmax(axis=1)))
        fold_of_group[free[order]] = np.arange(len(free)) % folds
    fold_of: Indices = fold_of_group[group_of]
    return fold_of


def hold_out_calibration(
    splits: Splits, ranks: Int[np.ndarray, " n"], share: float, seed: int, groups: Groups = None
) -> tuple[Splits, tuple[str, ...]]:
    """Take a share of the training split for calibration, unless there is a split; with notes."""
    if not 0 <= share < 1:
        raise UserError(f"calibration must be in [0, 1), got {share}.")
    train = splits.train
    if share == 0 or len(splits.calibration):
        return splits, ()
    wanted = min(share * len(train), _MOST_FOR_CALIBRATION)
    own = None if groups is None else [groups[i] for i in train.tolist()]
    try:
        if wanted < FEWEST_FOR_CALIBRATION:
            raise UserError(f"{wanted:.0f} samples are too few; it needs {FEWEST_FOR_CALIBRATION}.")
        drawn = _divide(ranks[train], {"calibration": wanted / len(train)}, seed, own)
    except UserError as error:  # also too few groups, or samples of a class
        why = "There is no calibration split, so there are no prediction ranges."
        return splits, (f"{why} {error}",)
    taken = train[drawn["calibration"]]
    note = f"{len(taken)} of the {len(train)} training samples are kept for calibration."
    return replace(splits, train=train[drawn["train"]], calibration=taken), (note,)


def stratified_holdout(
    ranks: Int[np.ndarray, " n"], fraction: float, rng: np.random.Generator, groups: Groups = None
) -> tuple[Indices, Indices]:
    """Hold a fraction of the samples out, the same fraction of each class as far as possible.

    The result is the indices of the training samples and of those held out, in ascending order. The
    total is rounded, and is at least one sample unless the fraction is zero. A class always keeps
    one sample for training, so nothing is held out where every class has one sample only. A group
    is not divided.
    """
    if not 0 <= fraction < 1:
        raise UserError(f"fraction must be in [0, 1), got {fraction}.")
    split_of = _draw(ranks, [fraction] if fraction else [], groups, rng)
    return np.flatnonzero(split_of == 0), np.flatnonzero(split_of == 1)


def _divide(
    ranks: Indices, shares: Mapping[str, float], seed: int, groups: Groups
) -> dict[str, Indices]:
    """Hold several splits out at once; the rest is ``train``."""
    check_integer("seed", seed, 0, "the splits are drawn from it")
    for name, share in shares.items():
        check_above(name, share, 0, "it is the share to hold out")
    fractions = list(shares.values())
    if sum(fractions) >= 1:
        raise UserError(f"{' and '.join(shares)} must be below 1 together, got {fractions}.")
    different = len(np.unique(ranks))
    held_out = sum(max(round(share * len(ranks)), 1) for share in fractions)
    if groups is None and held_out > len(ranks) - different:
        raise UserError(
            f"There are too few samples: {len(ranks)} of {different} classes cannot be divided "
            f"into train, {' and '.join(shares)} with every class in training."
        )
    split_of = _draw(ranks, fractions, groups, np.random.default_rng(seed))
    return {name: np.flatnonzero(split_of == s) for s, name in enumerate(["train", *shares])}


def _draw(
    ranks: Indices, fractions: Sequence[float], groups: Groups, rng: np.random.Generator
) -> Indices:
    """Number the split of each sample, 0 for training: large groups first, then single samples."""
    numbers: dict[Hashable, int] = {}
    each = range(len(ranks)) if groups is None else groups
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in each])
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    grouped = np.bincount(group_of)[group_of] > 1
    _, number = np.unique(group_of[grouped], return_inverse=True)
    table = _count_table(number, class_of[grouped], len(counts))
    targets = np.outer([1 - sum(fractions), *fractions], counts)
    split_of = np.full(len(ranks), -1)
    split_of[grouped] = _place_groups(table, targets, {}, rng)[number]
    for split, fraction in enumerate(fractions, start=1):
        total = max(round(fraction * len(ranks)), 1)
        placed, free, learned = (
            np.bincount(class_of[split_of == s], minlength=len(counts)) for s in (split, -1, 0)
        )
        wanted = np.maximum(total * counts / len(ranks) - placed, 0) if placed.any() else counts
        room = np.maximum(free - (learned == 0), 0)  # training needs one of each class
        shares = _largest_remainder(wanted, room, max(total - placed.sum(), 0), rng)
        for k, take in enumerate(shares):
            members = np.flatnonzero((class_of == k) & (split_of == -1))
            split_of[rng.choice(members, size=take, replace=False)] = split
    split_of[split_of == -1] = 0
    trained = len(np.unique(ranks[split_of == 0])) == len(counts)
    if groups is None or (trained and len(np.unique(split_of)) > len(fractions)):
        return split_of
    # too few groups for that: place each of them, with one fixed for each split
    table = _count_table(group_of, class_of, len(counts))
    result: Indices = _place_groups(table, targets, _first_groups(table, fractions), rng)[group_of]
    return result


def _largest_remainder(
    counts: Indices | Counts, room: Indices, total: int, rng: np.random.Generator
) -> Indices:
    """Distribute ``total`` over classes in proportion to ``counts``, as far as they have room."""
    total = min(total, int(room.sum()))
    quota = total * counts / max(counts.sum(), 1)
    shares: Indices = np.minimum(np.floor(quota).astype(np.int64), room)
    tie_break = rng.permutation(len(counts))
    while shares.sum() < total:
        remainder = np.where(shares < room, quota - shares, -np.inf)
        shares[np.lexsort((tie_break, remainder))[-1]] += 1
    return shares


def _count_table(group_of: Indices, class_of: Indices, num_classes: int) -> Counts:
    """Count samples by group and class."""
    table = np.zeros((group_of.max(initial=-1) + 1, num_classes))
    np.add.at(table, (group_of, class_of), 1)
    return table


def _place_groups(
    table: Counts, targets: Counts, pinned: dict[int, int], rng: np.random.Generator
) -> Indices:
    """Choose the split of each group, with some of them fixed beforehand."""
    weight = (table**2 / targets.sum(axis=0)).sum(axis=1)
    # large groups rather first; without the jitter the same ones would always be together
    order = np.argsort(-weight * rng.uniform(0.25, 1, len(weight)))
    present = table > 0
    holders = present.sum(axis=0)  # groups still to come that have the class
    filled = np.zeros_like(targets)
    splits = np.zeros(len(table), dtype=np.int64)
    for group in [*pinned, *(g for g in order if g not in pinned)]:
        row = table[group]
        if group in pinned:
            split = pinned[group]
        elif (present[group] & (holders == 1) & (filled[0] == 0)).any():
            split = 0  # no other group can bring this class into training
        else:
            split = int(np.argmin((row * (row + 2 * (filled - targets)) / targets).sum(axis=1)))
        splits[group] = split
        filled[split] += row
        holders = holders - present[group]
    return splits


def _first_groups(table: Counts, fractions: Sequence[float]) -> dict[int, int]:
    """Choose a small group for each split held out, such that training can have every class."""
    present = table > 0
    holders = present.sum(axis=0)
    free = [
        g for g in np.argsort(table.sum(axis=1), kind="stable") if (holders[present[g]] > 1).all()
    ]
    splits = 1 + np.argsort(fractions, kind="stable")
    for chosen in combinations(free, len(fractions)):
        if (present[list(chosen)].sum(axis=0) < holders).all():
            return {int(g): int(split) for g, split in zip(chosen, splits, strict=True)}
    raise UserError(
        f"{len(table)} groups are too few for {len(fractions) + 1} splits with every class in "
        "training. Add samples of more groups, or give the split yourself."
    )
