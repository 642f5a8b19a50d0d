"""Data sets: samples, their ranks, the names of the classes, groups and splits."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from layline.utils.validation import UserError

if TYPE_CHECKING:
    from layline.data.duplicates import DuplicateReport
    from layline.data.tables import Rows

Indices = NDArray[np.int64]
Pixels = NDArray[np.uint8]
SHARES = {"validation": 0.1, "test": 0.2}


class KnownClasses(tuple[str, ...]):
    """The classes of a trained model, lowest first; the data may lack some or have others."""

    __slots__ = ()


class Images(ABC):
    """Samples that are images, decoded when they are loaded."""

    names: Sequence[str]  # of the images in a list of predictions, such as their paths

    def __len__(self) -> int:
        return len(self.names)

    @property
    @abstractmethod
    def decoded(self) -> bool:
        """Whether loading an image needs no decoding."""

    @abstractmethod
    def load(self, index: int, at_least: int | None = None) -> Pixels:
        """Return an image, see :func:`layline.data.images.decode`; the caller may write to it."""

    @abstractmethod
    def subset(self, keep: Indices) -> Self:
        """Select images, in the order given."""

    def digest(self) -> str:
        """Hash the pixels in their order; names do not count."""
        digest = hashlib.blake2b(digest_size=16)
        for index in range(len(self)):
            pixels = self.load(index)
            digest.update(repr(pixels.shape).encode() + pixels.tobytes())
        return digest.hexdigest()


_NO_SAMPLES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Splits:
    """The indices of the samples of each split."""

    train: Indices = field(default_factory=_NO_SAMPLES.copy)
    validation: Indices = field(default_factory=_NO_SAMPLES.copy)
    test: Indices = field(default_factory=_NO_SAMPLES.copy)
    calibration: Indices = field(default_factory=_NO_SAMPLES.copy)

    def by_name(self) -> dict[str, Indices]:
        """Return the splits by name; those that select and calibrate only if they have samples."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        splits["calibration"] = self.calibration
        return {k: index for k, index in splits.items() if k in ("train", "test") or len(index)}


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Sources fill the splits that the data or the protocol prescribe and leave others empty;
    :func:`layline.data.splits.draw_splits` fills them.
    """

    inputs: "Images | Rows"  # the samples; before the splits of a table are drawn, UnencodedRows
    ranks: Indices  # the class of each sample, 0 for the lowest
    classes: tuple[str, ...]  # lowest first
    splits: Splits = field(default_factory=Splits)
    notes: tuple[str, ...] = ()  # what a user should know about the data, one sentence each
    fixed_classes: bool = False  # they are those of a protocol or model: training may lack one
    groups: tuple[Hashable, ...] | None = None  # such as the patient; a group stays in one split
    shares: dict[str, float] = field(default_factory=SHARES.copy)  # of splits that are drawn
    duplicates: "DuplicateReport | None" = None  # if they were searched for

    def __post_init__(self) -> None:
        count = len(self.inputs)
        if self.ranks.shape != (count,):
            raise UserError(f"ranks must have the shape ({count},), got {self.ranks.shape}.")
        if self.groups is not None and len(self.groups) != count:
            raise UserError(f"There are {len(self.groups)} groups for {count} samples.")
        if len(self.classes) < 2:
            raise UserError(f"At least two classes are needed, got {list(self.classes)}.")
        if not np.isin(self.ranks, np.arange(len(self.classes))).all():
            raise UserError(f"ranks must be in 0…{len(self.classes) - 1}.")
        used = np.concatenate(list(self.splits.by_name().values()))
        if len(np.unique(used)) < len(used):
            raise UserError("A sample is in several splits.")

    def drop(self, indices: Iterable[int]) -> "Dataset":
        """Remove samples."""
        keep = np.setdiff1d(np.arange(len(self.inputs)), np.fromiter(indices, dtype=np.int64))
        place = np.full(len(self.inputs), -1)
        place[keep] = np.arange(len(keep))
        moved = {name: place[index] for name, index in self.splits.by_name().items()}
        return replace(
            self,
            inputs=self.inputs.subset(keep),
            ranks=self.ranks[keep],
            splits=Splits(**{name: index[index >= 0] for name, index in moved.items()}),
            groups=None if self.groups is None else tuple(self.groups[i] for i in keep.tolist()),
        )

    def check_complete(self) -> None:
        """Refuse an empty split, and a class without training samples unless classes are fixed."""
        for name, index in self.splits.by_name().items():
            if len(index) == 0:
                raise UserError(f"The {name} split is empty. Add data, or choose another split.")
        present = np.unique(self.ranks[self.splits.train])
        absent = [name for rank, name in enumerate(self.classes) if rank not in present]
        if absent and not self.fixed_classes:
            raise UserError(
                f"There are no training samples of {', '.join(absent)}. Add some, or set classes."
            )


def groups_of(dataset: Dataset, index: Indices) -> list[Hashable] | None:
    """Return the groups of some samples, if groups are known."""
    return None if dataset.groups is None else [dataset.groups[i] for i in index.tolist()]


def require_path(path: str | Path) -> Path:
    """Return a path that must exist."""
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    return path


def find_file(root: str | Path, suffixes: tuple[str, ...]) -> Path:
    """Return a file, or the only file of a kind in a folder."""
    root = require_path(root)
    if not root.is_dir():
        return root
    files = [file.name for file in root.iterdir() if file.suffix.lower() in suffixes]
    files = [name for name in files if not name.startswith((".", "~$"))]
    if len(files) != 1:
        kind, found = " or ".join(suffixes), format_list(sorted(files)) or "none"
        raise UserError(f"{root} must contain one {kind} file, found {found}. Name the file.")
    return root / files[0]


def format_list(items: Iterable[object]) -> str:
    """Join the first twenty items with commas, followed by their number if there are more."""
    texts = [str(item) for item in items]
    rest = f" … ({len(texts)} in all)" if len(texts) > 20 else ""
    return ", ".join(texts[:20]) + rest


def format_lines(title: str, lines: Sequence[str]) -> str:
    """Put the first twenty lines below a title, followed by the number of the others."""
    rest = [f"… and {len(lines) - 20} more"] if len(lines) > 20 else []
    return "\n  ".join([title, *lines[:20], *rest])
