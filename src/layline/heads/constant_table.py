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
        ranks: Int[Tensor, " n"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "n K"]:
        """Give one row for each rank.

        Args:
            maker: What the table depends on; another maker has another table.
            make: Computes the rows for the ranks that it is given.
            ranks: Which rows are wanted.
            dtype: Of the result.
        """
        if self.num_classes > LARGEST:
            return make(ranks).to(dtype).to(ranks.device)
        everyone = partial(torch.arange, self.num_classes, device=ranks.device)
        return self.whole(maker, lambda: make(everyone()), dtype, ranks.device)[ranks]

    def whole(
        self,
        maker: Hashable,
        make: Callable[[], Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        """Give the table itself, of whatever shape, in this dtype and on this device."""
        key = (maker, dtype, device)
        if key not in self._made:
            with torch.inference_mode(False), torch.no_grad():
                self._made = {key: make().to(dtype).to(device)}
        return self._made[key]
