"""Data sets: samples, their ranks, the names of the classes and the partition."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    Self,
    final,
    overload,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.data.duplicates import DuplicateReport
    from layline.data.table_encoding import Rows

Indices = NDArray[np.int64]
Pixels = NDArray[np.uint8]


class KnownClasses(tuple[str, ...]):
    """The classes of a trained model, lowest first, for data that may lack some or have others.

    Given as ``classes`` to a source, what is not among them comes after them, for
    :func:`layline.data.labels.match_classes` to refuse or to leave out.
    """

    __slots__ = ()


@final
class Names(Sequence[str]):
    """Names of samples, all of them in one piece of memory.

    A million paths as strings take more room than their characters and are copied, reference by
    reference, into every worker. Here a subset shares the characters and has numbers of its own.

    Args:
        names: Any strings, also paths that are not UTF-8.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._text: bytes
        self._ends: Indices
        self._rows: Indices | None = None  # all of them, in order
        if isinstance(names, Names):
            self._text, self._ends, self._rows = names._text, names._ends, names._rows
        else:
            self._text, self._ends = _joined(
                name.encode("utf-8", "surrogatepass") for name in names
            )

    @classmethod
    def unpack(cls, text: bytes, ends: Indices) -> "Names":
        """Take what :meth:`pack` gave."""
        if len(ends) and (ends[-1] != len(text) or (np.diff(ends, prepend=0) < 0).any()):
            raise UserError("ends must be ascending up to the length of the text")
        names = cls()
        names._text, names._ends = text, ends
        return names

    def pack(self) -> tuple[bytes, Indices]:
        """Give the characters of all names, and where each ends."""
        if self._rows is None:
            return self._text, self._ends
        return _joined(map(self._bytes, self._rows.tolist()))

    def take(self, keep: Indices) -> "Names":
        """Give some of the names, in the order given."""
        names, keep = Names(self), np.asarray(keep, dtype=np.int64)
        names._rows = keep if self._rows is None else self._rows[keep]
        return names

    def _bytes(self, row: int) -> bytes:
        start = int(self._ends[row - 1]) if row else 0
        return self._text[start : int(self._ends[row])]

    def __len__(self) -> int:
        return len(self._ends if self._rows is None else self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "Names": ...

    def __getitem__(self, index: int | slice) -> "str | Names":
        """Give a name, or some of them."""
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        row = range(len(self))[index]
        row = row if self._rows is None else int(self._rows[row])
        return self._bytes(row).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        if self._rows is not None:
            yield from (self[index] for index in range(len(self)))
            return
        start = 0
        for end in self._ends.tolist():
            yield self._text[start:end].decode("utf-8", "surrogatepass")
            start = end

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names) and self._rows is None is other._rows:
            return self._text == other._text and np.array_equal(self._ends, other._ends)
        if isinstance(other, Names | tuple | list):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.pack()[0])

    def __repr__(self) -> str:
        return f"Names({listed(map(repr, self[:21]))}{' …' if len(self) > 21 else ''})"

    def __getstate__(self) -> dict[str, Any]:
        text, ends = self.pack()  # a worker gets the names of its own part only
        return {"_text": text, "_ends": ends, "_rows": None}


def _joined(parts: Iterable[bytes]) -> tuple[bytes, Indices]:
    """Join texts, and tell where each ends."""
    parts = list(parts)
    lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    return b"".join(parts), np.cumsum(lengths, dtype=np.int64)


class Inputs(Protocol):
    """Samples before preprocessing: :class:`Images`, or rows of a table."""

    @property
    def names(self) -> Sequence[str]:
        """What each sample is called in a list of predictions, such as its path."""

    def __len__(self) -> int: ...

    def subset(self, keep: Indices) -> Self:
        """Keep some samples only, in the order given."""

    def digest(self) -> str:
        """Name the content of the samples, in their order, whatever they are called."""


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
class Splits:
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

    def by_name(self) -> dict[str, Indices]:
        """Give the parts by name; the one for calibration only where there is one."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}
        return found | ({"calibration": self.calibration} if len(self.calibration) else {})

    def moved(self, place: Indices) -> "Splits":
        """Follow samples to their new places; those at -1 are left out."""
        moved = {name: place[part] for name, part in self.by_name().items()}
        return Splits(**{name: part[part >= 0] for name, part in moved.items()})


class Drawing(NamedTuple):
    """How a partition was drawn, where it was not given whole.

    Attributes:
        again: Draws it with samples kept together, from the number of each one's group, -1 for
            none; gives the partition and notes. What was given stays as it is.
        notes: Those of the drawing as it is, which are among the notes of the data set.
    """

    again: Callable[[Indices], tuple[Splits, tuple[str, ...]]]
    notes: tuple[str, ...]

    def without(self, place: Indices) -> "Drawing":
        """Draw the parts of the samples that are left, after some were left out.

        Args:
            place: Where each sample is now, -1 for one that was left out.
        """
        return self._replace(again=partial(_draw_and_leave_out, self.again, place))


def _draw_and_leave_out(
    again: Callable[[Indices], tuple[Splits, tuple[str, ...]]], place: Indices, copies: Indices
) -> tuple[Splits, tuple[str, ...]]:
    """Draw all samples, as without copies, and leave the same ones out of the parts."""
    parts, notes = again(np.where(place >= 0, copies[place], -1))
    return parts.moved(place), notes


@dataclass(frozen=True)
class Dataset:
    """A data set, as a source gives it.

    Attributes:
        inputs: The samples.
        ranks: The class of each sample, 0 for the lowest.
        classes: Names of the classes, lowest first.
        splits: Which samples are for training, validation and test.
        notes: What a user should know about the reading, one sentence each.
        fixed_classes: Whether the classes are those of a protocol, so that training may lack one.
        groups: What must stay in one part, such as the patient of each sample, if that is known.
        drawing: How the partition was drawn, if some of it was and it can be drawn again.
        duplicates: What copies of images mean for it, if they were looked for.
    """

    inputs: "Images | Rows"
    ranks: Indices
    classes: tuple[str, ...]
    splits: Splits
    notes: tuple[str, ...] = ()
    fixed_classes: bool = False
    groups: tuple[Hashable, ...] | None = None
    drawing: Drawing | None = None
    duplicates: "DuplicateReport | None" = None

    def __post_init__(self) -> None:
        count = len(self.inputs)
        if self.ranks.shape != (count,):
            raise UserError(f"ranks must have the shape ({count},), got {self.ranks.shape}")
        if self.groups is not None and len(self.groups) != count:
            raise UserError(f"groups must be {count}, got {len(self.groups)}: one for each sample")
        if len(self.classes) < 2:
            raise UserError(
                f"classes must be at least two, got {list(self.classes)}: nothing to tell apart"
            )
        if count and not (self.ranks.min() >= 0 and self.ranks.max() < len(self.classes)):
            raise UserError(
                f"ranks must be in 0…{len(self.classes) - 1}, got {self.ranks.min()} to "
                f"{self.ranks.max()}"
            )
        used = np.concatenate(list(self.splits.by_name().values()))
        if len(np.unique(used)) < len(used):
            raise UserError("partition must put a sample into one part only")

    def keep_together(self, copies: Indices) -> "Dataset":
        """Draw the partition again such that each of some groups is in one part.

        Args:
            copies: The number of each sample's group, -1 for none.
        """
        if self.drawing is None or copies.max(initial=-1) < 0:
            return self
        parts, notes = self.drawing.again(copies)
        before = self.drawing.notes
        others = tuple(note for note in self.notes if note not in before)
        place = next((i for i, note in enumerate(self.notes) if note in before), len(others))
        return replace(
            self,
            splits=parts,
            notes=(*others[:place], *notes, *others[place:]),
            drawing=self.drawing._replace(notes=notes),
        )

    def drop(self, indices: Iterable[int]) -> "Dataset":
        """Leave samples out."""
        keep = np.setdiff1d(np.arange(len(self.inputs)), np.fromiter(indices, dtype=np.int64))
        place = np.full(len(self.inputs), -1)
        place[keep] = np.arange(len(keep))
        return replace(
            self,
            inputs=self.inputs.subset(keep),
            ranks=self.ranks[keep],
            splits=self.splits.moved(place),
            groups=None if self.groups is None else tuple(self.groups[i] for i in keep.tolist()),
            drawing=self.drawing and self.drawing.without(place),
        )

    def check_complete(self) -> None:
        """Refuse an empty part, and a class that training never sees unless classes are fixed."""
        for name, part in self.splits.by_name().items():
            if len(part) == 0:
                raise UserError(
                    f"the {name} part must have samples, got none: give more data, or another split"
                )
        counts = np.bincount(self.ranks[self.splits.train], minlength=len(self.classes))
        absent = [name for name, count in zip(self.classes, counts, strict=True) if count == 0]
        if absent and not self.fixed_classes:
            raise UserError(
                f"every class must have training samples, got none of {', '.join(absent)}: "
                "add some, or leave the class out of classes"
            )


def groups_of(dataset: Dataset, index: Indices) -> list[Hashable] | None:
    """Give what some samples belong to, if that is known."""
    return None if dataset.groups is None else [dataset.groups[i] for i in index.tolist()]


def linked(count: int, links: Iterable[tuple[Indices, Indices]]) -> Indices:
    """Number the groups of samples that are linked, be it through others.

    Args:
        count: How many samples there are.
        links: Arrays of samples, and of what each of them is linked to.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    one, other = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = coo_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(count, count))
    label: Indices = connected_components(graph, directed=False)[1].astype(np.int64)
    return label


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
        if file.suffix.lower() in suffixes and not file.name.startswith((".", "~$"))
    ]
    if len(files) != 1:
        found = listed(sorted(files)) if files else "none"
        raise UserError(
            f"root must be one file of the kind {' or '.join(suffixes)}, got the folder {root} "
            f"with {found}: name the file"
        )
    return root / files[0]


def listed(items: Iterable[object]) -> str:
    """Write the first twenty items, and how many there are where that is not all."""
    texts = [str(item) for item in items]
    rest = f" … ({len(texts)} in all)" if len(texts) > 20 else ""
    return ", ".join(texts[:20]) + rest
