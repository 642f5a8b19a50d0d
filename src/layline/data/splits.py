r"""Dividing samples into training, validation, test and calibration.

Every class keeps a training sample, and no part is empty. Without groups the sizes are exact, and
shared over the classes by largest remainder. With groups (a patient's images are all in one part)
groups are placed one after the other, each into the part where it lowers

.. math:: \sum_{p,k} (n_{pk} - t_{pk})^2 / t_{pk}

most, with :math:`n_{pk}` the samples of class k in part p so far and :math:`t_{pk}` as many as
the part should have. Large groups and those of rare classes come first, since small ones can
correct what they leave.

Copies of images (see :mod:`layline.data.copies`) are such groups, few among many single
images: they are placed first, then the single images fill the parts up to their sizes, each class
alike. Groups of the user that share copies become one.

The part for calibration is taken out of the training part by the same rules, last, so that the
others are the same with and without it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from layline.data.dataset import Indices, KnownClasses, Splits, linked
from layline.utils.errors import UserError
from layline.utils.validation import check_above, check_integer

PART_WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "calibration": "calibration",
    "calib": "calibration",
}
UNDRAWN = -1  # in the place of a seed: parts that are given are kept, and none is drawn
MOST_FOR_CALIBRATION = 1000  # the coverage of ranges is then certain to a percent
FEWEST_FOR_CALIBRATION = 9  # for ranges at 90 %; fewer would be lost to training for nothing
Groups = Sequence[Hashable] | None
Counts = NDArray[np.float64]  # samples by group or part, and by class


def part_named(word: str) -> str:
    """Give the part that a word means: train, validation or test."""
    if word.casefold() not in PART_WORDS:
        raise UserError(f"split must be one of {', '.join(PART_WORDS)}, got {word!r}: rename it")
    return PART_WORDS[word.casefold()]


@dataclass(frozen=True)
class RandomSplit:
    """How samples are drawn for the parts that the data do not have ready-made.

    Attributes:
        validation: Share of the samples to choose the epoch by.
        test: Share of the samples to measure with.
        seed: The same seed gives the same partition.
        calibration: Share of the training part to calibrate with.
    """

    validation: float
    test: float
    seed: int
    calibration: float = 0.0

    def draw(
        self,
        ranks: Int[np.ndarray, " n"],
        groups: Groups = None,
        copies: Int[np.ndarray, " n"] | None = None,
    ) -> Splits:
        """Divide samples at random, each class alike; a group goes into one part.

        Args:
            ranks: The class of each sample.
            groups: What each sample belongs to.
            copies: The number of the group of copies that each is in, -1 for none.
        """
        return Splits(**_divide(ranks, self._shares, self.seed, groups, copies))

    def partition(
        self,
        ranks: Indices,
        classes: Sequence[str],
        words: Sequence[str] | None,
        groups: Groups = None,
        copies: Int[np.ndarray, " n"] | None = None,
    ) -> tuple[Splits, tuple[str, ...]]:
        """Take the split that the data have, or draw one.

        A missing validation or test part is taken out of the training part, since a model chosen
        by the samples it is measured with looks better than it is.

        Args:
            ranks: The class of each sample.
            classes: Names of the classes.
            words: The part of each sample, a word of ``PART_WORDS``; None if there is no split.
            groups: What must stay in one part, such as the patient of each sample.
            copies: The number of the group of copies that each is in, -1 for none. What is given
                is not changed for their sake.

        Returns:
            The partition, and notes for the user about what was done.
        """
        if self.seed == UNDRAWN:
            return _as_given(len(ranks), words), ()
        parts, notes = self._partition(ranks, classes, words, groups, copies)
        parts, more = with_calibration(parts, ranks, self.calibration, self.seed, groups, copies)
        return parts, (*notes, *more)

    def _partition(
        self,
        ranks: Indices,
        classes: Sequence[str],
        words: Sequence[str] | None,
        groups: Groups,
        copies: Indices | None,
    ) -> tuple[Splits, tuple[str, ...]]:
        if words is None:
            kept = "" if groups is None else ", groups kept together"
            note = f"The split is random with seed {self.seed}, each class alike{kept}"
            return self.draw(ranks, groups, copies), (note,)
        part_of = {word: part_named(word) for word in set(words)}
        names = np.array([part_of[word] for word in words])
        parts = {name: np.flatnonzero(names == name) for name in dict.fromkeys(PART_WORDS.values())}
        _check_classes(parts, ranks, classes)
        if groups is not None:
            _check_groups(names.tolist(), groups)
        missing = {name: share for name, share in self._shares.items() if len(parts[name]) == 0}
        if not missing:
            return Splits(**parts), ("The split is the one given, whatever the partition",)
        train = parts["train"]
        drawn = _divide(ranks[train], missing, self.seed, *_of(train, groups, copies))
        parts |= {name: train[part] for name, part in drawn.items()}
        return Splits(**parts), tuple(
            f"No {name} part was given: {len(parts[name])} of the {len(train)} training samples "
            f"were taken for it, with seed {self.seed}"
            for name in missing
        )

    @property
    def _shares(self) -> dict[str, float]:
        return {"validation": self.validation, "test": self.test}


def _as_given(count: int, words: Sequence[str] | None) -> Splits:
    """Keep the parts that are given; without any, all samples are there to measure with."""
    if words is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Splits(nothing, nothing, np.arange(count))
    names = np.array([part_named(word) for word in words])
    parts = dict.fromkeys(PART_WORDS.values())
    return Splits(**{name: np.flatnonzero(names == name) for name in parts})


def with_calibration(
    parts: Splits,
    ranks: Int[np.ndarray, " n"],
    share: float,
    seed: int,
    groups: Groups = None,
    copies: Int[np.ndarray, " n"] | None = None,
) -> tuple[Splits, tuple[str, ...]]:
    """Take a part for calibration out of the training part, unless there is one.

    Args:
        parts: The other parts stay as they are.
        ranks: The class of each sample.
        share: Of the training part, in [0, 1); at most 1,000 samples are taken.
        seed: The same seed takes the same samples.
        groups: What must stay in one part, such as the patient of each sample.
        copies: The number of the group of copies that each is in, -1 for none.

    Returns:
        The partition, and notes for the user about what was done.
    """
    if not 0 <= share < 1:
        raise UserError(
            f"calibration must be a share in [0, 1), got {share}: 0 takes nothing, 0.1 is usual"
        )
    train = parts.train
    if share == 0 or len(parts.calibration):
        return parts, ()
    wanted = min(share * len(train), MOST_FOR_CALIBRATION)
    why = f"No part for calibration, and so no ranges: {share:.0%} of the training samples"
    if wanted < FEWEST_FOR_CALIBRATION:
        return parts, (f"{why} would be {wanted:.0f}, and {FEWEST_FOR_CALIBRATION} are needed",)
    own = _of(train, groups, copies)
    try:
        drawn = _divide(ranks[train], {"calibration": wanted / len(train)}, seed, *own)
    except ValueError as error:  # too few groups, or samples of a class
        return parts, (f"{why} could not be taken ({error})",)
    taken = train[drawn["calibration"]]
    note = (
        f"For calibration {len(taken)} of the {len(train)} training samples are kept apart "
        "(--calibration 0 for none)"
    )
    return replace(parts, train=train[drawn["train"]], calibration=taken), (note,)


def stratified_holdout(
    ranks: Int[np.ndarray, " n"],
    fraction: float,
    rng: np.random.Generator,
    groups: Groups = None,
) -> tuple[Indices, Indices]:
    """Hold a fraction of the samples out, the same fraction of each class as far as it divides.

    The total is rounded, and is at least one sample unless the fraction is zero. A class always
    keeps one sample for training, so nothing is held out where every class has one sample only.

    Args:
        ranks: The class of each sample.
        fraction: Share of the samples to hold out, in [0, 1).
        rng: Breaks ties between classes and draws the samples.
        groups: What must stay together, such as the patient of each sample. The fraction is then
            met as nearly as they allow.

    Returns:
        The indices of the samples to train on and of those held out, each in ascending order.
    """
    if not 0 <= fraction < 1:
        raise UserError(f"fraction must be in [0, 1), got {fraction}: something must be left")
    if groups is not None and fraction > 0:
        part_of = _draw_grouped(ranks, groups, [fraction], rng)
    else:
        total = max(round(fraction * len(ranks)), 1) if fraction > 0 else 0
        part_of = _draw_stratified(ranks, [total], rng)
    return np.flatnonzero(part_of == 0), np.flatnonzero(part_of == 1)


def _check_classes(parts: dict[str, Indices], ranks: Indices, classes: Sequence[str]) -> None:
    if len(parts["train"]) == 0:
        raise UserError("split must have a train part, got none: there is nothing to learn from")
    if isinstance(classes, KnownClasses):
        return  # a model has seen them before
    for name, part in parts.items():
        unseen = np.setdiff1d(ranks[part], ranks[parts["train"]])
        if len(unseen):
            raise UserError(
                f"the {name} part must have classes of the train part only, got "
                f"{', '.join(classes[rank] for rank in unseen)}: add training samples of it"
            )


def _check_groups(names: list[str], groups: Sequence[Hashable]) -> None:
    part_of: dict[Hashable, str] = {}
    for name, group in zip(names, groups, strict=True):
        if part_of.setdefault(group, name) != name:
            raise UserError(
                f"a group must be in one part only, got {group!r} in {part_of[group]} and {name}: "
                "what is learned of it would help in the other"
            )


def _of(
    index: Indices, groups: Groups, copies: Indices | None
) -> tuple[list[Hashable] | None, Indices | None]:
    """Give the groups and copies of some samples; copies join the groups of all samples."""
    if groups is not None:
        groups = _joined(groups, copies)
        return [groups[i] for i in index.tolist()], None
    return None, None if copies is None else copies[index]


def _joined(groups: Sequence[Hashable], copies: Indices | None) -> Sequence[Hashable]:
    """Make one group of those that share copies."""
    if copies is None or copies.max(initial=-1) < 0:
        return groups
    first: dict[Hashable, int] = {}
    links = np.array([first.setdefault(group, i) for i, group in enumerate(groups)])
    copied = np.flatnonzero(copies >= 0)
    _, place, number = np.unique(copies[copied], return_index=True, return_inverse=True)
    ends = (np.arange(len(groups)), links), (copied, copied[place[number]])
    joined: list[int] = linked(len(groups), ends).tolist()
    return joined


def _divide(
    ranks: Indices,
    fractions: Mapping[str, float],
    seed: int,
    groups: Groups,
    copies: Indices | None = None,
) -> dict[str, Indices]:
    """Hold several parts out at once and call the rest ``train``."""
    check_integer("seed", seed, 0, "the partition is drawn from it")
    for name, fraction in fractions.items():
        check_above(name, fraction, 0, "it is the share to hold out")
    if sum(fractions.values()) >= 1:
        raise UserError(
            f"{' and '.join(fractions)} must be below 1 together, got "
            f"{' and '.join(map(str, fractions.values()))}: training needs samples"
        )
    rng = np.random.default_rng(seed)
    if groups is not None:
        shares = list(fractions.values())
        part_of = _draw_grouped(ranks, _joined(groups, copies), shares, rng)
    elif copies is not None and np.bincount(copies[copies >= 0], minlength=1).max() > 1:
        part_of = _draw_with_copies(ranks, copies, list(fractions.values()), rng)
    else:
        totals = [max(round(fraction * len(ranks)), 1) for fraction in fractions.values()]
        different = len(np.unique(ranks))
        if sum(totals) > len(ranks) - different:
            raise UserError(
                f"{' and '.join(fractions)} must leave a training sample of each class, got "
                f"{len(ranks)} samples of {different} classes to hold {sum(totals)} out: "
                "give more samples, or smaller shares"
            )
        part_of = _draw_stratified(ranks, totals, rng)
    return {name: np.flatnonzero(part_of == p) for p, name in enumerate(["train", *fractions])}


def _draw_stratified(ranks: Indices, totals: Sequence[int], rng: np.random.Generator) -> Indices:
    """Number the part of each sample, 0 for training."""
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    part_of = np.zeros(len(ranks), dtype=np.int64)
    room = counts - 1
    for part, total in enumerate(totals, start=1):
        shares = _largest_remainder(counts, room, total, rng)
        room = room - shares
        for k, take in enumerate(shares):
            members = np.flatnonzero((class_of == k) & (part_of == 0))
            part_of[rng.choice(members, size=take, replace=False)] = part
    return part_of


def _largest_remainder(
    counts: Indices | Counts, room: Indices, total: int, rng: np.random.Generator
) -> Indices:
    """Share ``total`` over classes in proportion to ``counts``, as far as they have room."""
    total = min(total, int(room.sum()))
    quota = total * counts / max(counts.sum(), 1)
    shares: Indices = np.minimum(np.floor(quota).astype(np.int64), room)
    tie_break = rng.permutation(len(counts))
    while shares.sum() < total:
        remainder = np.where(shares < room, quota - shares, -np.inf)
        shares[np.lexsort((tie_break, remainder))[-1]] += 1
    return shares


def _draw_with_copies(
    ranks: Indices, copies: Indices, fractions: Sequence[float], rng: np.random.Generator
) -> Indices:
    """Number the part of each sample, 0 for training: groups of copies first, then the rest."""
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    sizes = np.bincount(copies[copies >= 0])
    in_group = np.where(copies >= 0, sizes[copies], 0) > 1
    _, group_of = np.unique(copies[in_group], return_inverse=True)
    table = np.zeros((group_of.max() + 1, len(counts)))
    np.add.at(table, (group_of, class_of[in_group]), 1)
    targets = np.outer([1 - sum(fractions), *fractions], counts)
    part_of = np.full(len(ranks), -1)
    part_of[in_group] = _place_groups(table, targets, _shuffled(table, counts, rng), {})[group_of]
    for part, fraction in enumerate(fractions, start=1):
        total = max(round(fraction * len(ranks)), 1)
        placed = np.bincount(class_of[part_of == part], minlength=len(counts))
        free = np.bincount(class_of[part_of == -1], minlength=len(counts))
        learned = np.bincount(class_of[part_of == 0], minlength=len(counts))
        wanted = np.maximum(total * counts / len(ranks) - placed, 0)
        room = np.maximum(free - (learned == 0), 0)  # training needs one of each class
        shares = _largest_remainder(wanted, room, max(total - placed.sum(), 0), rng)
        for k, take in enumerate(shares):
            members = np.flatnonzero((class_of == k) & (part_of == -1))
            part_of[rng.choice(members, size=take, replace=False)] = part
    part_of[part_of == -1] = 0
    trained = len(np.unique(ranks[part_of == 0])) == len(counts)
    if trained and len(np.unique(part_of)) > len(fractions):
        return part_of
    alone = np.where(in_group, copies, copies.max() + 1 + np.arange(len(ranks)))
    try:
        return _draw_grouped(ranks, alone.tolist(), fractions, rng)
    except ValueError:
        raise UserError(
            f"different images must be enough for {len(fractions) + 1} parts with every class in "
            f"training, got {len(np.unique(alone))} beside their copies: give more of them"
        ) from None


def _draw_grouped(
    ranks: Indices, groups: Sequence[Hashable], fractions: Sequence[float], rng: np.random.Generator
) -> Indices:
    """Number the part of each sample, 0 for training."""
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    if len(group_of) != len(ranks):
        raise UserError(f"groups must be {len(ranks)}, got {len(group_of)}: one for each sample")
    _, class_of, counts = np.unique(ranks, return_inverse=True, return_counts=True)
    table = np.zeros((len(numbers), len(counts)))
    np.add.at(table, (group_of, class_of), 1)
    targets = np.outer([1 - sum(fractions), *fractions], counts)
    order = _shuffled(table, counts, rng)
    parts = _place_groups(table, targets, order, {})
    if len(np.unique(parts)) <= len(fractions):
        parts = _place_groups(table, targets, order, _first_groups(table, fractions))
    part_of: Indices = parts[group_of]
    return part_of


def _shuffled(table: Counts, counts: Indices, rng: np.random.Generator) -> Indices:
    """Order groups at random, but large ones and those of rare classes rather first."""
    weight = (table**2 / counts).sum(axis=1)
    # the jitter makes the seed count: without it the same large groups would always be together
    order: Indices = np.argsort(-weight * rng.uniform(0.25, 1, len(weight)))
    return order


def _place_groups(
    table: Counts, targets: Counts, order: Indices, pinned: dict[int, int]
) -> Indices:
    """Give the part of each group, with some of them fixed beforehand."""
    present = table > 0
    holders = present.sum(axis=0)  # groups still to come that have the class
    filled = np.zeros_like(targets)
    parts = np.zeros(len(table), dtype=np.int64)
    for group in [*pinned, *(g for g in order if g not in pinned)]:
        row = table[group]
        if group in pinned:
            part = pinned[group]
        elif (present[group] & (holders == 1) & (filled[0] == 0)).any():
            part = 0  # no other group can bring this class into training
        else:
            part = int(np.argmin((row * (row + 2 * (filled - targets)) / targets).sum(axis=1)))
        parts[group] = part
        filled[part] += row
        holders = holders - present[group]
    return parts


def _first_groups(table: Counts, fractions: Sequence[float]) -> dict[int, int]:
    """Choose a small group for each part held out, such that training can have every class."""
    present = table > 0
    holders = present.sum(axis=0)
    free = [
        g for g in np.argsort(table.sum(axis=1), kind="stable") if (holders[present[g]] > 1).all()
    ]
    parts = 1 + np.argsort(fractions, kind="stable")
    for chosen in combinations(free, len(fractions)):
        if (present[list(chosen)].sum(axis=0) < holders).all():
            return {int(g): int(part) for g, part in zip(chosen, parts, strict=True)}
    raise UserError(
        f"groups must be enough for {len(fractions) + 1} parts with every class in training, got "
        f"{len(table)}: give samples of more groups, or the split yourself"
    )
