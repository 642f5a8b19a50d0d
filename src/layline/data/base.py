"""Data sets: samples, their ranks, the names of the classes and the partition."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from layline.data.table import Rows

Indices = NDArray[np.int64]
Pixels = NDArray[np.uint8]


class KnownClasses(tuple[str, ...]):
    """The classes of a trained model, lowest first, for data that may lack some or have others.

    Given as ``classes`` to a source, what is not among them comes after them, for
    :func:`layline.data.labels.match_classes` to refuse or to leave out.
    """

    __slots__ = ()


class Inputs(Protocol):
    """Samples before preprocessing: :class:`Images`, or :class:`layline.data.table.Rows`."""

    @property
    def names(self) -> Sequence[str]:
        """What each sample is called in a list of predictions, such as its path."""

    def __len__(self) -> int: ...

    def subset(self, keep: Indices) -> Self:
        """Keep some samples only, in the order given."""


@runtime_checkable
class Images(Inputs, Protocol):
    """Samples that are images; ``isinstance`` tells them from rows."""

    @property
    def decoded(self) -> bool:
        """Whether loading an image needs no decoding."""

    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Decode an image: (height, width, 3), RGB, upright.

        Args:
            index: Which one.
            at_least: A JPEG may be decoded at a fraction of its size, as long as its shorter side
                keeps this many pixels; None decodes all of it.
        """


@dataclass(frozen=True)
class Partition:
    """The division of the samples into parts.

    Attributes:
        train: To learn from.
        validation: To choose the epoch by.
        test: To measure with, once.
        calibration: To calibrate with, chosen by nothing and choosing nothing; there may be none.
    """

    train: Indices
    validation: Indices
    test: Indices
    calibration: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def parts(self) -> dict[str, Indices]:
        """Give the parts by name; the one for calibration only where there is one."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}
        return found | ({"calibration": self.calibration} if len(self.calibration) else {})


@dataclass(frozen=True)
class Dataset:
    """A data set, as a source gives it.

    Attributes:
        inputs: The samples.
        ranks: The class of each sample, 0 for the lowest.
        classes: Names of the classes, lowest first.
        partition: Which samples are for training, validation and test.
        notes: What a user should know about the reading, one sentence each.
        fixed_classes: Whether the classes are those of a protocol, so that training may lack one.
        groups: What must stay in one part, such as the patient of each sample, if that is known.
    """

    inputs: "Images | Rows"
    ranks: Indices
    classes: tuple[str, ...]
    partition: Partition
    notes: tuple[str, ...] = ()
    fixed_classes: bool = False
    groups: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.inputs)
        if self.ranks.shape != (count,):
            raise ValueError(f"ranks must have the shape ({count},), got {self.ranks.shape}")
        if self.groups is not None and len(self.groups) != count:
            raise ValueError(f"groups must be {count}, got {len(self.groups)}: one for each sample")
        if len(self.classes) < 2:
            raise ValueError(
                f"classes must be at least two, got {list(self.classes)}: nothing to tell apart"
            )
        if count and not (self.ranks.min() >= 0 and self.ranks.max() < len(self.classes)):
            raise ValueError(f"ranks must be in 0…{len(self.classes) - 1}, got {self.ranks.max()}")
        used = np.concatenate(list(self.partition.parts().values()))
        if len(np.unique(used)) < len(used):
            raise ValueError("partition must put a sample into one part only")

    def drop(self, indices: Iterable[int]) -> "Dataset":
        """Leave samples out."""
        keep = np.setdiff1d(np.arange(len(self.inputs)), np.fromiter(indices, dtype=np.int64))
        place = np.full(len(self.inputs), -1)
        place[keep] = np.arange(len(keep))
        moved = {name: place[part] for name, part in self.partition.parts().items()}
        return replace(
            self,
            inputs=self.inputs.subset(keep),
            ranks=self.ranks[keep],
            partition=Partition(**{name: part[part >= 0] for name, part in moved.items()}),
            groups=None if self.groups is None else tuple(self.groups[i] for i in keep.tolist()),
        )

    def check_complete(self) -> None:
        """Refuse an empty part, and a class that training never sees unless classes are fixed."""
        for name, part in self.partition.parts().items():
            if len(part) == 0:
                raise ValueError(
                    f"the {name} part must have samples, got none: give more data, or another split"
                )
        counts = np.bincount(self.ranks[self.partition.train], minlength=len(self.classes))
        absent = [name for name, count in zip(self.classes, counts, strict=True) if count == 0]
        if absent and not self.fixed_classes:
            raise ValueError(
                f"every class must have training samples, got none of {', '.join(absent)}: "
                "add some, or leave the class out of classes"
            )


def groups_of(dataset: Dataset, index: Indices) -> list[Hashable] | None:
    """Give what some samples belong to, if that is known."""
    return None if dataset.groups is None else [dataset.groups[i] for i in index.tolist()]


def existing(root: str | Path) -> Path:
    """Give the path of a root, which has to be there."""
    root = Path(root)
    if not root.exists():
        raise FileNotFoundError(f"root must exist, got {root}: check the path")
    return root


def only_file(root: str | Path, suffixes: tuple[str, ...]) -> Path:
    """Give the file that a root is, or the only one of its kind in the folder."""
    root = existing(root)
    if not root.is_dir():
        return root
    files = [
        file.name
        for file in root.iterdir()
        if file.suffix.lower() in suffixes and not file.name.startswith(".")
    ]
    if len(files) != 1:
        found = listed(sorted(files)) if files else "none"
        raise ValueError(
            f"root must be one file of the kind {' or '.join(suffixes)}, got the folder {root} "
            f"with {found}: name the file"
        )
    return root / files[0]


def listed(items: Iterable[object]) -> str:
    """Write the first twenty items, and how many there are where that is not all."""
    texts = [str(item) for item in items]
    rest = f" … ({len(texts)} in all)" if len(texts) > 20 else ""
    return ", ".join(texts[:20]) + rest
