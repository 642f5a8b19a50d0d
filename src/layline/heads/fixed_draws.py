"""Standard normal numbers for heads that sample, in evaluation."""

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
        self._shape = (samples, 1, dim)
        generator = torch.Generator("cpu").manual_seed(0)
        self._exact = torch.randn(
            self._shape, generator=generator, dtype=torch.float64, device="cpu"
        )
        self._made: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def __reduce__(self) -> tuple[type["FixedDraws"], tuple[int, int]]:
        return FixedDraws, (self._shape[0], self._shape[2])

    def get(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "T 1 d"]:
        """Give them in the precision of the features, where those are."""
        key = (features.dtype, features.device)
        if key not in self._made:
            # Training may use them even if the first to ask was in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                self._made[key] = self._exact.to(features.dtype).to(features.device)
        return self._made[key]
