"""Where samples come from. To add a source: its file, and one line in ``SOURCES``.

A source is a function of the root and of its own options that gives a :class:`Dataset`. Its files
are read when it is asked, and its own libraries imported then.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layline.data.base import Dataset, Images, Inputs, Partition
from layline.data.partitions import stratified_holdout
from layline.registry import check_known, find


@dataclass(frozen=True)
class SourceSpec:
    """An entry of the registry.

    Attributes:
        read: Gives the data set, from ``root`` (a path, or None for an embedded source),
            ``partition`` (which official fold, or the seed of a random split) and own options.
        summary: What it is, in one line.
        origin: Where the data come from, with their licence; empty for the user's own.
        features: The features to train if the user does not say.
        partitions: How many partitions the protocol has; None if any seed makes one.
        needs_root: Whether there is something to point at.
    """

    read: Callable[..., Dataset]
    summary: str
    origin: str = ""
    features: str = "vgg16"
    partitions: int | None = None
    needs_root: bool = True


SOURCES: dict[str, SourceSpec] = {}


def names() -> tuple[str, ...]:
    """List the registered sources."""
    return tuple(SOURCES)


def options_of(name: str) -> tuple[str, ...]:
    """List the options that a source takes beside its root and the partition."""
    parameters = inspect.signature(find("source", name, SOURCES).read).parameters
    return tuple(key for key in parameters if key not in ("root", "partition"))


def read(name: str, root: str | Path | None = None, partition: int = 0, **options: Any) -> Dataset:
    """Read a data set by the name of its source.

    Args:
        name: One of :func:`names`.
        root: The folder or file that holds the data.
        partition: Which official fold, or the seed of a random split.
        **options: The source's own options, see :func:`options_of`.
    """
    spec = find("source", name, SOURCES)
    for option in options:
        check_known(f"option of {name}", option, options_of(name))
    if spec.partitions is not None and not 0 <= partition < spec.partitions:
        raise ValueError(
            f"partition must be in 0…{spec.partitions - 1}, got {partition}: "
            f"{name} has {spec.partitions} of them"
        )
    if not spec.needs_root:
        if root is not None:
            raise ValueError(f"root must be left out for {name}, got {root}: it needs no files")
        return spec.read(partition=partition, **options)
    if root is None:
        raise ValueError(f"root must be given for {name}: the folder or file with the data")
    root = Path(root).expanduser()
    if not root.exists():
        raise FileNotFoundError(f"root must exist, got {root}: check the path")
    return spec.read(root, partition=partition, **options)


__all__ = [
    "SOURCES",
    "Dataset",
    "Images",
    "Inputs",
    "Partition",
    "SourceSpec",
    "names",
    "options_of",
    "read",
    "stratified_holdout",
]
