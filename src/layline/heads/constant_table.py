"""A (K, K) table that never changes in training, such as U, or Q of a fixed layout."""

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
        self._made: dict[tuple[Hashable, torch.dtype, torch.device], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes, "_made": {}}

    def rows(
        self,
        maker: Hashable,
        make: Callable[[Tensor], Tensor],
        ranks: Int[Tensor, " n"] | None,
        like: Tensor,
    ) -> Float[Tensor, "n K"]:
        """Give one row for each rank.

        Args:
            maker: What the table depends on; another maker has another table.
            make: Computes the rows for the ranks that it is given.
            ranks: Which rows are wanted; None is all of them, in order.
            like: Has the dtype and the device that are wanted.
        """
        everyone = partial(torch.arange, self.num_classes, device=like.device)
        if self.num_classes > LARGEST:
            return make(everyone() if ranks is None else ranks).to(like)
        table = self.whole(maker, lambda: make(everyone()), like)
        return table if ranks is None else table.index_select(0, ranks)

    def whole(self, maker: Hashable, make: Callable[[], Tensor], like: Tensor) -> Tensor:
        """Give the table itself, of whatever shape, in the dtype and on the device of another."""
        key = (maker, like.dtype, like.device)
        if key not in self._made:
            with torch.inference_mode(False), torch.no_grad():
                self._made = {key: make().to(like.dtype).to(like.device)}
        return self._made[key]
