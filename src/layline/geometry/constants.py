"""What never changes in training: made once, then kept, for the dtype and the device that ask.

Constants are not buffers: converting a module to float32 and back would leave a buffer with the
digits of float32. They are not stored with a module or copied with it either, but made anew.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST = 1024
"""Up to this K a whole table is kept. Above, the rows of a batch are cheaper than the memory."""


class Constants:
    """Some tensors that are made together."""

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, torch.dtype, torch.device], tuple[Tensor, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_made": {}}

    def get(
        self, key: Hashable, make: Callable[[], tuple[Tensor, ...]], like: Tensor
    ) -> tuple[Tensor, ...]:
        """Give the tensors in the dtype and on the device of another one.

        Args:
            key: What they depend on; another key has others.
            make: Computes them.
            like: Has the dtype and the device that are wanted.
        """
        kind = (key, like.dtype, like.device)
        if kind not in self._made:
            with torch.inference_mode(False), torch.no_grad():
                self._made = {kind: tuple(x.to(like.dtype).to(like.device) for x in make())}
        return self._made[kind]


class ConstantTable:
    """A (K, K) table with a row for each class, such as U or soft labels.

    Args:
        num_classes: K.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._constants = Constants()

    def rows(
        self,
        key: Hashable,
        make: Callable[[Tensor], Tensor],
        ranks: Int[Tensor, " n"],
        like: Tensor,
    ) -> Float[Tensor, "n K"]:
        """Give one row for each rank; ``make`` computes the rows for the ranks that it is given."""
        if self.num_classes > LARGEST:
            return make(ranks).to(like.dtype).to(like.device)
        every = torch.arange(self.num_classes, device=like.device)
        (table,) = self._constants.get(key, lambda: (make(every),), like)
        return table.index_select(0, ranks)
