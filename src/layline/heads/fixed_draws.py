"""Standard normal numbers for heads that sample, in evaluation."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class FixedDraws:
    """Standard normal numbers that are the same at every call, kept for each dtype and device.

    Not a buffer: converting a module to float32 and back would leave it with the digits of float32.
    They are not stored with the module, but made anew.

    Args:
        samples: T.
        dim: d.
    """

    def __init__(self, samples: int, dim: int) -> None:
        self.shape = (samples, 1, dim)
        self._made: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self.shape, "_made": {}}

    def get(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "T 1 d"]:
        """Give them in the precision of the features, where those are."""
        key = (features.dtype, features.device)
        if key not in self._made:
            # Training may use them even if the first to ask was in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                generator = torch.Generator("cpu").manual_seed(0)
                exact = torch.randn(self.shape, generator=generator, dtype=torch.float64)
                self._made[key] = exact.to(features.dtype).to(features.device)
        return self._made[key]
