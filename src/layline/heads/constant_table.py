"""What never changes in training: tables such as U, or Q of a fixed layout; rows of constants."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST = 1024
"""Up to this K the whole table is kept. Above, the rows of a batch are cheaper than the memory."""


class ConstantTable:
    """Rows of the table, made once for what makes it, and for each dtype and device that asks.

    Not a buffer: converting a module to float32 and back would leave a buffer with the digits of
    float32. It is not stored with the module either, but made anew.

    Args:
        num_classes: K.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._made: dict[tuple[Hashable, torch.dtype, torch.device], tuple[Tensor, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes, "_made": {}}

    def table(
        self, maker: Hashable, make: Callable[[Tensor], Tensor], ranks: Tensor, like: Tensor
    ) -> Float[Tensor, "n K"]:
        """Give one row for each rank, of a single table; see :meth:`rows`."""
        (rows,) = self.rows(maker, lambda ranks: (make(ranks),), ranks, like)
        return rows

    def rows(
        self,
        maker: Hashable,
        make: Callable[[Tensor], tuple[Tensor, ...]],
        ranks: Int[Tensor, " n"] | None,
        like: Tensor,
    ) -> tuple[Tensor, ...]:
        """Give one row for each rank, of every table.

        Args:
            maker: What the tables depend on; another maker has others.
            make: Computes the rows for the ranks that it is given.
            ranks: Which rows are wanted; None is all of them, in order.
            like: Has the dtype and the device that are wanted.
        """
        everyone = partial(torch.arange, self.num_classes, device=like.device)
        if self.num_classes > LARGEST:
            made = make(everyone() if ranks is None else ranks)
            return tuple(rows.to(like.dtype).to(like.device) for rows in made)
        tables = self.whole(maker, lambda: make(everyone()), like)
        return tables if ranks is None else tuple(x.index_select(0, ranks) for x in tables)

    def whole(
        self, maker: Hashable, make: Callable[[], tuple[Tensor, ...]], like: Tensor
    ) -> tuple[Tensor, ...]:
        """Give all that is made at once, in the dtype and on the device of another tensor."""
        key = (maker, like.dtype, like.device)
        if key not in self._made:
            with torch.inference_mode(False), torch.no_grad():
                self._made = {key: tuple(x.to(like.dtype).to(like.device) for x in make())}
        return self._made[key]
