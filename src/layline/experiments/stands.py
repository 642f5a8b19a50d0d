"""The paper's data sets, and what stands for each of them in a reproduction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from layline.data import SOURCES
from layline.experiments.paper import CATEGORIES

# The data sets of the paper: the source of each, and its options.
PAPER_DATA: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "historical-color": ("historical-color", {}),
        "adience": ("adience", {}),
        **{name: ("image-aesthetics", {"category": name}) for name in CATEGORIES.values()},
    }
)
TITLES = {"historical-color": "Historical Color", "adience": "Adience Face"} | {
    name: f"Image Aesthetics, {name}" for name in CATEGORIES.values()
}


@dataclass(frozen=True)
class Stand:
    """What stands for a data set of the paper.

    Attributes:
        source: Name of a source of ``layline.data``.
        partitions: How many of its partitions are used, from the first.
        options: The source's own options.
        root: Its folder or file, for a source that has one.
    """

    source: str
    partitions: int
    options: Mapping[str, Any] = field(default_factory=dict)
    root: Path | None = None

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.source} ({options})" if options else self.source

    @property
    def is_missing(self) -> bool:
        """Whether it is still to be said where the data are."""
        return self.root is None and SOURCES[self.source].needs_root


def at_most(count: int, source: str) -> int:
    """Count no more partitions than the protocol of a source has."""
    return min(count, SOURCES[source].partitions or count)
