"""Rows of a table as a model takes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from layline.data.base import Indices
from layline.data.tables.cells import Values
from layline.data.tables.encoding import TableEncoding


@dataclass(frozen=True, eq=False)
class Rows:
    """Samples that are rows of a table.

    Attributes:
        values: The encoded cells, (n, columns).
        names: What each row is called in a list of predictions.
        encoding: How the cells became numbers.
    """

    values: Values
    names: Sequence[str]
    encoding: TableEncoding

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.encoding.columns))
        if self.values.shape != shape:
            raise ValueError(f"values must have the shape {shape}, got {self.values.shape}")

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, keep: Indices) -> Self:
        """Keep some rows only, in the order given."""
        return replace(self, values=self.values[keep], names=[self.names[i] for i in keep])
