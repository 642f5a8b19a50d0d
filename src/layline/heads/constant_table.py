"""A (K, K) table that never changes in training, such as U, or Q of a fixed layout."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGEST = 1024
"""Up to this K the whole table is kept. Above, the rows of a batch are cheaper than the memory."""


class ConstantTable:
    """Rows of the table, made once for each dtype and device that asks.

    Not a buffer: converting a module to float32 and back would leave a buffer with the digits of
    float32, and it would be stored in every checkpoint.

    Args:
        num_classes: K.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._made: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def rows(
        self, make: Callable[[Tensor], Tensor], ranks: Int[Tensor, " n"], dtype: torch.dtype
    ) -> Float[Tensor, "n K"]:
        """Give one row for each rank.

        Args:
            make: Computes the rows for the ranks that it is given.
            ranks: Which rows are wanted.
            dtype: Of the result.
        """
        if self.num_classes > LARGEST:
            return make(ranks).to(dtype)
        key = (dtype, ranks.device)
        if key not in self._made:
            # Training uses the table even if the first to ask was in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                everyone = torch.arange(self.num_classes, device=ranks.device)
                self._made[key] = make(everyone).to(dtype)
        return self._made[key][ranks]
