"""Tables of constants with a row for each class, such as U or soft labels: made once, then kept."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST = 1024
"""Up to this K the whole table is kept. Above, the rows of a batch are cheaper than the memory."""


class ConstantTable:
    """A (K, K) table, made once for what it depends on and for the dtype and device that ask.

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
        key: Hashable,
        make: Callable[[Tensor], Tensor],
        ranks: Int[Tensor, " n"],
        like: Tensor,
    ) -> Float[Tensor, "n K"]:
        """Give one row for each rank.

        Args:
            key: What the table depends on; another key has another table.
            make: Computes the rows for the ranks that it is given.
            ranks: Which rows are wanted.
            like: Has the dtype and the device that are wanted.
        """
        if self.num_classes > LARGEST:
            return make(ranks).to(like.dtype).to(like.device)
        kind = (key, like.dtype, like.device)
        if kind not in self._made:
            with torch.inference_mode(False), torch.no_grad():
                every = torch.arange(self.num_classes, device=like.device)
                self._made = {kind: make(every).to(like.dtype).to(like.device)}
        return self._made[kind].index_select(0, ranks)
